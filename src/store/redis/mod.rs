//! The fleet's store: every verdict is one script call on a Redis or Valkey server.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use smallvec::SmallVec;
use tokio::runtime::Handle;

use super::check::{OwnedCheck, of_each, question};
use super::deny_cache::table::Denials;
use super::deny_cache::ticket::CacheTicket;
use super::{Answer, Check, GivenBack, PendingAnswer, Recovered, Store};
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::sharded::ShardedArc;
use crate::time::{Clock, SystemClock};
use batch::Batcher;
use connection::Hook;
use home::{Home, Work};
use settings::Settings;

mod ask;
mod backend;
mod batch;
mod builder;
mod cluster;
mod connection;
mod error;
mod home;
mod in_flight;
mod keys;
#[cfg(feature = "deadpool")]
mod pools;
mod question;
mod reply;
mod script;
mod self_test;
mod settings;
mod split;

pub use builder::RedisStoreBuilder;
#[cfg(feature = "config")]
pub(crate) use connection::Logins;
pub use connection::RedisCredentials;
#[cfg(feature = "config")]
pub(crate) use keys::DEFAULT_PREFIX;
#[cfg(fuzzing)]
pub use reply::fuzzing::redis_reply;

/// Counts in Redis or Valkey, for all processes that use the same server and prefix.
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
///
/// One script call decides a request: it reads, decides and writes in one atomic step, on the
/// server's clock, whatever the number of policies. Needs Redis 6.2 or newer, and a tokio runtime
/// with time and I/O enabled. Clones share the connection.
///
/// A subject that is known to be denied is answered from memory, without a command to the server,
/// for at most a second: see [`DenyCache`](crate::store::DenyCache) for what that means, and
/// [`without_deny_cache`](Self::without_deny_cache) to ask every question.
///
/// # Round trips
///
/// A request waits for others only as long as that is cheaper than asking by itself. To a server that
/// is far, from 0.3 ms on, each is sent at once; those for which the server has no time before the
/// answers to others are back wait for these, and are then asked together, as one script. So are all
/// while the server is busy, as its late answers tell, and on a server nearby, where its time is what
/// is scarce: a few are asked alone, and others wait for an answer. Nobody waits longer than 10 ms,
/// or [another time](RedisStoreBuilder::wait_for_batches).
///
/// Requests are asked together with others of the same script:
///
/// - `gcra`, `token_bucket`, and `leaky_bucket` without delay have one script for all, which costs the
///   server least, if nothing is given back later: for one rate or several, one policy, several or a
///   [group](crate::Policy::group). Not a limit of several rates in shadow beside other policies, nor
///   a group beside policies outside of it.
/// - All others have one for each set of algorithms.
///
/// Requests that ask the same of the same keys take a few steps of the script, however many they are:
/// a hot key costs the server little, whatever its load. Those that are asked alone, or far away
/// beside others in flight, may overtake each other.
///
/// In a cluster, only requests about the same subject share scripts, and one of these is in flight at
/// a time.
///
/// # Servers
///
/// | URL | |
/// |---|---|
/// | `redis://[user:password@]host[:port][/database][?protocol=3]` | one server, optionally by RESP3; `rediss://` over TLS |
/// | `redis+unix:///path/to.sock[?db=0&user=u&pass=p&protocol=3]` | one server, over its socket |
/// | `redis-sentinel://[user:password@]host[:port],.../master[/database]` | the master that Sentinel names; `rediss-sentinel://` over TLS |
/// | `redis-cluster://[user:password@]host[:port],...` | a cluster, by any of its nodes, or an endpoint in front of one; `rediss-cluster://` over TLS |
///
/// `valkey` may replace `redis`, as in `valkeys://` over TLS. Characters of a user or password that
/// have a meaning in a URL are written with percent signs, such as `%40` for `@`. A user without a
/// password, `user@`, is logged in with an empty one, as a user with `nopass` may be. Sentinels are
/// asked one after the other, without a login unless the URL ends in
/// `?sentinel_user=u&sentinel_password=p`, and again for every connection. A demoted master is left
/// at its first refusal, and the question that it refused is asked once more. A Sentinel that names
/// a server that is gone or a replica, as one does that is cut off from the others, is skipped.
///
/// All Sentinels are also asked about twice a second, so that the store moves within a second of
/// their naming another master, even if the former one still answers. The server that more of them
/// name than name the one in use is the new one. `docs/operations.md` says what a failover forgets,
/// and why to set `min-replicas-to-write 1`.
///
/// A proxy may stand in front of a server, even one that refuses commands without a key, as twemproxy
/// does: apart from the login and the choice of a database, every command names a key of the prefix.
/// All keys must be on one server.
///
/// A user and a password that change, such as the tokens of managed services, are given as
/// [`RedisCredentials`] instead of in the URL.
///
/// TLS needs the feature `redis-tls`. A server's certificate must be signed by an authority that the
/// system trusts, or by that of [`ca_certificate`](RedisStoreBuilder), and be for the address by
/// which the server is reached, or for the [`tls_server_name`](RedisStoreBuilder). TLS uses the
/// process's cryptography, `rustls::crypto::CryptoProvider`; if the application has installed none,
/// the first connection installs ring's.
///
/// # Runtimes
///
/// The store lives on the tokio runtime that asks first: its connections are driven there. Once a
/// second runtime asks, it moves to a thread of its own for good, and whatever becomes of a runtime
/// concerns its own callers only. So it may be a `static`, or be shared by the workers of a server that
/// each have a runtime. [`own_thread`](RedisStoreBuilder::own_thread) has it live there from the
/// beginning, or never. The thread ends when the store is dropped.
///
/// A connection that a pool of yours has made before belongs to the runtime that made it, and stands
/// still with that.
///
/// # Clusters
///
/// All checks of one subject are in one slot, and are one script. A request whose policies have
/// different subjects, such as one by address and one for everybody, takes a script for each, in
/// the order of the policies; subjects all of whose policies are in shadow come last, all at once.
/// If a later script denies, what the earlier ones took is given back; for that moment, a round
/// trip or two, others cannot use it. All other subjects are asked, without taking anything, what they say
/// to the same request, so that the longest wait is told and each [`Penalty`](crate::Penalty)
/// counts what its own policy denies.
///
/// A denial waits for those others, and an enforced decision for what is in shadow: for as long
/// again as it took itself and 10 ms more, or
/// [another time](RedisStoreBuilder::wait_for_other_nodes). Then it stands. A subject without an
/// answer by then is [`NotAsked`](crate::Outcome::NotAsked) beside a denial, and otherwise
/// [`FailedOpen`](crate::Outcome::FailedOpen); its penalties, and what it takes in shadow, may have
/// counted nevertheless. A request whose policies are all in shadow waits for all of them.
///
/// A [place](crate::Limit::concurrency) may have been taken though the answer was lost. Its policy
/// then reports that it failed open, even beside a denial, and the limiter keeps giving the place
/// back until the store has done so.
///
/// What was taken is also given back if a node gives no answer, unless its policies then
/// [let requests pass](crate::FailureMode::Allow): the others are enforced nevertheless. While a
/// slot moves, requests about it go on, unless they have several policies: scripts cannot use keys
/// some of which have moved, so such requests wait until all have, as far as their deadline allows.
///
/// Nodes are found by the addresses or host names that the cluster gives them. A node without the
/// host name that it should have is found by its address, once the slots that move there have
/// moved.
///
/// A managed service may offer a single endpoint in front of a cluster, which has the rules of one
/// but refuses `CLUSTER SLOTS`. Use `redis-cluster://` there, too: the endpoint is asked about all
/// slots, by scripts that have the keys of one. A node of a cluster whose user only lacks the right
/// to `CLUSTER SLOTS` is told from it by its redirections, and refused by [`connect`](Self::connect).
///
/// # Keys
///
/// Keys are `{prefix}:{layout}:{<hash of the subject>}:{policy}`, where the layout is the algorithm
/// and the version of its state: `throttle:gcra2:{9d15372b1830735a0a2d05214669e327}:client`. A
/// [`Penalty`](crate::Penalty) has a key beside that of its policy, with the layout `penalty2`, and so
/// has each [further rate](crate::Limit::and) of a limit, with its period in the layout:
/// `gcra2+3600s`. The policies of a [group](crate::Policy::group) whose limits are
/// [`gcra`](crate::Limit::gcra), [`token_bucket`](crate::Limit::token_bucket) or
/// [`leaky_bucket`](crate::Limit::leaky_bucket) share one key,
/// `{prefix}:group2:{<hash of the subject>}:{group}`; all others have keys of their own there, too.
/// All keys expire by themselves. Use a dedicated server with `maxmemory-policy noeviction`: an
/// evicted key is a forgotten debt.
///
/// Versions of this crate with other layouts count apart. While both are in use, as during a
/// roll-out, together they admit up to twice the limit.
///
/// # Rights
///
/// With access control lists, its user needs
///
/// ```text
/// ~{prefix}:* +eval +evalsha +time +get +mget +exists +set +setrange +incrby +del +llen +lindex
/// +lset +lpush +rpush +ltrim +zscore +zcount +zrangebyscore +zrevrange +zadd +zrem
/// +zremrangebyscore +pexpireat
/// ```
///
/// and `+select` if the URL names a database other than 0. In a cluster it also needs
/// `+cluster|slots +asking`, on every node, but not on an endpoint that does not tell its nodes. A
/// Sentinel that has users needs one with `+sentinel|get-master-addr-by-name`.
#[derive(Clone)]
pub struct RedisStore {
    home: Arc<Home>,
    denials: Option<ShardedArc<Denials>>,
}

impl RedisStore {
    /// Connects to the server or servers of this URL, [see above](Self#servers), and tries what
    /// decisions will do, on a key of its own that it removes.
    ///
    /// # Errors
    ///
    /// If the URL cannot be read, if no server can be reached, and if decisions would fail: a wrong
    /// password, a missing right, a replica, a node of a cluster that is not addressed as one, a
    /// command that the server lacks, and so on. A node of a cluster that gives no answer is no
    /// error as long as others do. The error says what to do. Use
    /// [`RedisStoreBuilder::connect_lazy`] to start without waiting for the server.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Builds a store with other settings than the defaults of [`connect`](Self::connect).
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::at(url)
    }

    /// Builds a store over connections of the crate `redis` 1 that you make, such as those of any
    /// pool (of deadpool-redis see `from_pool`, with the feature `deadpool`):
    ///
    /// ```no_run
    /// use redis::Client;
    /// use tower_throttle::RedisStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::open("redis://127.0.0.1:6379")?;
    /// let store = RedisStore::builder_with(move || {
    ///     let client = client.clone();
    ///     async move { client.get_multiplexed_async_connection().await }
    /// });
    /// let store = store.prefix("shop").connect().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// All requests share one connection. `make` is called for it, and again when it breaks or its
    /// server refuses to write; while a call takes longer than half a second, another one begins
    /// beside it, and after 2 seconds it is given up. It must not block its thread. The error, of
    /// whatever type, is the reason that is logged and reported.
    ///
    /// Each new connection is asked for its role, by `HELLO`, and refused if it is to a replica, as
    /// one may be that a pool has kept since before a failover. A proxy in front that answers this by
    /// hanging up is then asked for another connection, without the question.
    ///
    /// A connection to a cluster is another type: it sends a question again whose answer was lost,
    /// which may then count twice. List the nodes in a URL instead.
    pub fn builder_with<F, E>(make: impl Fn() -> F + Send + Sync + 'static) -> RedisStoreBuilder
    where
        F: Future<Output = Result<MultiplexedConnection, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        RedisStoreBuilder::over(Hook::new(make), BY_HOOK)
    }

    /// Asks the server every time, even about a subject that is known to be denied. Applies to this
    /// handle and to clones made of it afterwards.
    #[must_use]
    pub fn without_deny_cache(self) -> Self {
        Self {
            denials: None,
            ..self
        }
    }

    /// Sets how long a denial is remembered: by default a second. A reset, a credit or a raised
    /// limit in another process can go unnoticed for that long. Applies to this handle and to
    /// clones made of it afterwards.
    #[must_use]
    pub fn deny_cache_max_age(self, age: Duration) -> Self {
        let denials = self.denials.as_ref().map_or_else(
            || Denials::new(self.home.settings().clock.clone()).with_max_age(age),
            |denials| denials.with_max_age(age),
        );
        Self {
            denials: Some(ShardedArc::new(denials)),
            ..self
        }
    }

    /// How many questions were answered from memory: without a command to the server, or in place
    /// of an answer that did not come.
    pub fn deny_cache_hits(&self) -> u64 {
        self.denials.as_ref().map_or(0, |denials| denials.hits())
    }

    fn new(settings: Settings, own_thread: Option<bool>) -> Self {
        Self {
            denials: Some(ShardedArc::new(Denials::new(settings.clock.clone()))),
            home: Arc::new(Home::new(settings, own_thread)),
        }
    }

    async fn try_out(&self) -> Result<(), StoreError> {
        let here = Handle::try_current().ok();
        let tried = self.home.run(here, |batcher| {
            Box::pin(async move { batcher.backend.try_out().await })
        });
        tried.await
    }

    fn ask_placed(&self, checks: &[Check<'_>]) -> Answer {
        let ask = |ticket| Answer::Pending(self.answer(checks, ticket));
        match &self.denials {
            None => ask(None),
            Some(denials) => Denials::recall_or(denials, checks, ask),
        }
    }

    /// The same checks with the boundaries of calendars around the time of the process, from which a
    /// script takes those around its own.
    // Out of line: most limits have no calendar.
    #[inline(never)]
    fn placed<'a>(&self, checks: &[Check<'a>]) -> SmallVec<[Check<'a>; 1]> {
        let clock = &self.home.settings().clock;
        let wall = (clock.as_ref()).map_or_else(|| SystemClock.wall_clock(), Clock::wall_clock);
        of_each(checks, |check| Check {
            algorithm: check.algorithm.aligned_by(wall, wall),
            ..*check
        })
    }

    fn answer(&self, checks: &[Check<'_>], ticket: Option<CacheTicket>) -> PendingAnswer {
        let here = Handle::try_current().ok();
        if here.is_some() || self.home.own_runtime().is_some() {
            let answer = |batcher: Batcher| ask::ask(batcher, checks, ticket);
            return self.home.run(here, answer);
        }
        // Outside of any runtime. Whoever polls the answer may be on one.
        let (home, checks) = (Arc::clone(&self.home), of_each(checks, OwnedCheck::of));
        Box::pin(async move {
            let here = Handle::try_current().ok();
            let answer = |batcher: Batcher| ask::ask(batcher, &question(&checks), ticket);
            home.run(here, answer).await
        })
    }
}

// A hook does not tell where it connects to.
const BY_HOOK: &str = "Redis by connections of the application";

impl Store for RedisStore {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        if checks.iter().any(|check| check.algorithm.is_by_calendar()) {
            return self.ask_placed(&self.placed(checks));
        }
        self.ask_placed(checks)
    }
    fn recovered(&self, within: Duration) -> Option<Recovered> {
        let home = Arc::clone(&self.home);
        Some(Box::pin(async move {
            let recovered = |batcher: Batcher| -> Work<()> {
                Box::pin(async move {
                    batcher.backend.recovered(within).await;
                    Ok(())
                })
            };
            // If it cannot tell, a question will.
            let _ = home.run(Handle::try_current().ok(), recovered).await;
        }))
    }

    fn remembered(&self, checks: &[Check<'_>]) -> Option<Decisions> {
        self.denials.as_ref()?.recall(checks)
    }

    fn given_back(&self) -> Option<GivenBack> {
        // Only in a cluster does it give back by itself.
        let settings = self.home.settings();
        let flush = || -> GivenBack { Box::pin(settings.in_flight_work.flush().done()) };
        settings.is_cluster().then(flush)
    }

    fn fails_in_parts(&self) -> bool {
        self.home.settings().is_cluster()
    }

    fn name(&self) -> String {
        self.home.settings().name.to_string()
    }

    fn runtime(&self) -> Option<Handle> {
        self.home.own_runtime().cloned()
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.home.settings().prefix)
            .finish_non_exhaustive()
    }
}
