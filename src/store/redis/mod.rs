//! The fleet's store: every verdict is one script call on a Redis or Valkey server.

use std::fmt;
use std::sync::Arc;

use super::{Answer, Check, Store};
use crate::error::StoreError;
use crate::time::{Clock, Micros};

mod address;
mod builder;
mod connect;
mod error;
mod held;
mod keys;
mod lane;
mod reply;
mod script;
mod self_test;
mod sentinel;
mod tls;

use connect::Connector;
use keys::Prefix;
use lane::Lane;
use reply::Expected;
use script::Question;
use self_test::SelfTest;

pub use builder::RedisStoreBuilder;

/// Counts in Redis or Valkey, for all processes that use the same server and prefix.
///
/// Each request is one script call: read, decide and write in one atomic step, on the server's
/// clock, whatever the number of policies. Needs Redis 6.2 or newer, and a tokio runtime with time
/// and I/O enabled. Clones share the connection.
///
/// Keys are `{prefix}:{layout}:{<hash of the subject>}:{policy}`, where the layout is the algorithm
/// and the version of its state: `throttle:gcra1:{9d15372b1830735a0a2d05214669e327}:client`. A
/// [`Penalty`](crate::Penalty) has a key beside that of its policy, with the layout `penalty1`. All
/// of them expire by themselves. Use a server of its own with `maxmemory-policy noeviction`: an
/// evicted key is a forgotten debt.
///
/// With access control lists, its user needs `~{prefix}:* +eval +evalsha +time +get +set +del +llen
/// +lindex +lset +lpush +rpush +ltrim +zscore +zrangebyscore +zrevrange +zadd +zrem +pexpireat`.
///
/// ```no_run
/// use tower_throttle::{Limit, Limiter, MINUTE, Policy, RedisStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = RedisStore::connect("redis://127.0.0.1:6379").await?;
/// let limiter = Limiter::new(store, [Policy::new("api", Limit::gcra(100, MINUTE))])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RedisStore(Arc<Shared>);

struct Shared {
    lane: Lane,
    prefix: Prefix,
    clock: Option<Box<dyn Clock>>,
}

impl RedisStore {
    /// Connects to one server: `redis://[user:password@]host[:port][/database]`, or
    /// `redis+unix:///path/to.sock`.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read, or the server cannot be reached or refuses the user. Use
    /// [`RedisStoreBuilder::connect_lazy`] to start without waiting for the server.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// For all that [`connect`](Self::connect) leaves at its default.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    /// Takes its connections from a pool of yours, whatever it is configured with, with the
    /// default prefix. The connection in use is taken out of the pool for good, so that the pool
    /// keeps its size for others.
    ///
    /// Connects with the first decision.
    pub fn from_pool(pool: deadpool_redis::Pool) -> Self {
        Self::over(Connector::Pool(pool), Prefix::default(), None)
    }

    /// The same from a pool that asks Sentinel. A connection that it kept to a master that was
    /// demoted is let go of. The user needs `+role` beside the rights above.
    #[cfg(feature = "deadpool-sentinel")]
    pub fn from_sentinel_pool(pool: deadpool_redis::sentinel::Pool) -> Self {
        Self::over(Connector::SentinelPool(pool), Prefix::default(), None)
    }

    fn over(connector: Connector, prefix: Prefix, clock: Option<Box<dyn Clock>>) -> Self {
        Self(Arc::new(Shared {
            lane: Lane::new(connector),
            prefix,
            clock,
        }))
    }

    /// Does what decisions do, on keys of its own.
    async fn try_out(&self) -> Result<(), StoreError> {
        let Shared { lane, prefix, .. } = &*self.0;
        SelfTest::read(&lane.try_out(&SelfTest::of_server(prefix)).await?)
    }
}

impl Store for RedisStore {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        // Zero asks the server's clock.
        let now = match &self.0.clock {
            Some(clock) => clock.now(),
            None => Micros::ZERO,
        };
        let question = Question::new(checks, &self.0.prefix, now);
        let expected = Expected::of(checks);
        let trip = self.0.lane.send(question);
        Answer::Pending(Box::pin(async move { expected.read(trip.await?) }))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.0.prefix)
            .finish_non_exhaustive()
    }
}
