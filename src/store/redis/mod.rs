//! The fleet's store: every verdict is one script call on a Redis or Valkey server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::deny_cache::denials::Denials;
use super::{Answer, Check, Store};
use crate::error::StoreError;
use crate::time::{Clock, Micros};

mod connect;
mod error;
mod keys;
mod lane;
mod reply;
mod script;

use ::redis::Cmd;
use connect::Connector;
use keys::Prefix;
use lane::Lane;
use reply::Expected;
use script::Question;

pub use connect::RedisStoreBuilder;
#[cfg(fuzzing)]
pub use reply::fuzzing::redis_reply;

/// Counts in Redis or Valkey, for all processes that use the same server and prefix.
///
/// Each request is one script call: read, decide and write in one atomic step, on the server's
/// clock, whatever the number of policies. Needs Redis 6.2 or newer, and a tokio runtime with time
/// and I/O enabled. Clones share the connection.
///
/// A subject that is known to be denied is answered from memory, without a command to the server,
/// for at most a second: see [`DenyCache`](crate::DenyCache) for what that means, and
/// [`without_deny_cache`](Self::without_deny_cache) to have every question asked.
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
pub struct RedisStore {
    server: Arc<Server>,
    denials: Option<Arc<Denials>>,
}

struct Server {
    lane: Lane,
    prefix: Prefix,
    clock: Option<Arc<dyn Clock>>,
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
        Self::over(Connector::new(pool), Prefix::default(), None)
    }

    /// Asks the server every time, also about a subject that is known to be denied. Of this handle
    /// and clones made of it afterwards.
    #[must_use]
    pub fn without_deny_cache(self) -> Self {
        Self {
            denials: None,
            ..self
        }
    }

    /// How long a denial is remembered; a second unless said. So long a reset, a credit or a raised
    /// limit in another process can go unseen. Of this handle and clones made of it afterwards.
    #[must_use]
    pub fn deny_cache_max_age(self, age: Duration) -> Self {
        let denials = self.denials.map_or_else(
            || Denials::new(self.server.clock.clone()).with_max_age(age),
            |denials| denials.with_max_age(age),
        );
        Self {
            denials: Some(Arc::new(denials)),
            ..self
        }
    }

    /// How many questions were answered from memory, without a command to the server.
    pub fn deny_cache_hits(&self) -> u64 {
        self.denials.as_ref().map_or(0, |denials| denials.hits())
    }

    fn over(connector: Connector, prefix: Prefix, clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            denials: Some(Arc::new(Denials::new(clock.clone()))),
            server: Arc::new(Server {
                lane: Lane::new(connector),
                prefix,
                clock,
            }),
        }
    }

    fn lane(&self) -> &Lane {
        &self.server.lane
    }

    /// A script that does nothing with a key of ours: who may not run it may run none.
    fn question_to_try(&self) -> Cmd {
        script::nothing(&self.server.prefix)
    }
}

impl Store for RedisStore {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match &self.denials {
            Some(denials) => Denials::ask(denials, checks, &self.server),
            None => self.server.ask(checks),
        }
    }
}

impl Store for Server {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        // Zero asks the server's clock.
        let now = match &self.clock {
            Some(clock) => clock.now(),
            None => Micros::ZERO,
        };
        let question = Question::new(checks, &self.prefix, now);
        let expected = Expected::of(checks);
        let trip = self.lane.send(question);
        Answer::Pending(Box::pin(async move { expected.read(trip.await?) }))
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.server.prefix)
            .finish_non_exhaustive()
    }
}
