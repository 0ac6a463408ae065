//! `RedisStore`: every decision is one script call on a Redis or Valkey server.

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

/// Counts permits in Redis or Valkey, for all processes that use the same server and prefix.
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
/// server's clock, for any number of policies. It needs Redis 6.2 or newer, or Valkey, and a tokio
/// runtime with time and I/O enabled. Clones share the connection.
///
/// A subject that is known to be denied is denied from memory for at most a second, without a command
/// to the server. See [`DenyCache`](crate::store::DenyCache), and
/// [`without_deny_cache`](Self::without_deny_cache) to switch it off.
///
/// # Round trips
///
/// Requests that arrive while script calls are in flight may be batched into the next call. When a
/// request waits for that depends on the server:
///
/// - If a round trip takes 0.3 ms or more, each request is sent at once, until the calls in flight keep
///   the server busy. Further requests wait for an answer, and then share a call.
/// - If the server is nearer, or busy, so that its answers are late, a few calls are in flight, and
///   other requests wait for an answer.
///
/// No request waits longer than 10 ms, or
/// [the time that you set](RedisStoreBuilder::wait_for_batches).
///
/// Requests can share a call if they use the same script:
///
/// - One script, which costs the server least, serves `gcra`, `token_bucket`, and `leaky_bucket`
///   without delay, for one rate or several, and for one policy, several or a
///   [group](crate::Policy::group). It does not serve requests that may give permits back later, a
///   limit of several rates in shadow beside other policies, or a group beside policies outside of it.
/// - All others have a script for each set of algorithms.
///
/// Equal requests about the same keys take a few steps of the script, however many they are, so a hot
/// key costs the server little. Requests in different calls may overtake each other.
///
/// In a cluster, only requests about the same subject share a call, and one such call is in flight at a
/// time.
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
/// `valkey` may replace `redis`, as in `valkeys://` over TLS. Percent-encode characters of a user or a
/// password that have a meaning in a URL, such as `%40` for `@`. A user without a password, `user@`,
/// logs in with an empty one, as a user with `nopass` may. Give a user and a password that change, such
/// as the tokens of managed services, as [`RedisCredentials`] instead of in the URL.
///
/// **Sentinel.** Every connection attempt asks the Sentinels for the master, one after the other. They
/// get no login unless the URL ends in `?sentinel_user=u&sentinel_password=p`. The attempt skips a
/// Sentinel that names a replica or an unreachable server. If a demoted master refuses a question, the
/// store reconnects and asks it once more. The store also asks all Sentinels about twice a second, and
/// moves to another master once more Sentinels name it than name the one in use, even if the former
/// one still answers. `docs/operations.md` describes what a failover forgets, and why to set
/// `min-replicas-to-write 1`.
///
/// **Proxies.** A proxy may stand in front of a server, even one that refuses commands without a key,
/// such as twemproxy: except for the login and the choice of a database, every command names a key
/// with the prefix. All keys must be on one server.
///
/// **TLS** needs the feature `redis-tls`. The server's certificate must be signed by an authority that
/// the system trusts, or by your [`ca_certificate`](RedisStoreBuilder). It must be for the address
/// of the server, or for your [`tls_server_name`](RedisStoreBuilder). TLS uses the process's
/// `rustls::crypto::CryptoProvider`; if the application has installed none, the first connection
/// installs ring's.
///
/// # Runtimes
///
/// The store's connections run on the tokio runtime that uses the store first. When a second runtime
/// uses it, the store moves to a thread of its own for good. From then on, a runtime that ends or
/// blocks affects only its own callers. So the store may be a `static`, or be shared by server workers
/// with a runtime each. [`own_thread`](RedisStoreBuilder::own_thread) makes the store use a thread
/// from the beginning, or never. The thread ends when the store is dropped.
///
/// A connection that your pool has made belongs to the runtime that made it, and works only while that
/// runtime runs.
///
/// # Clusters
///
/// All keys of one subject are in one slot, so one script decides its checks. If the policies of a
/// request have different subjects, such as an address and a user, there is one script for each
/// subject, in the order of the policies. Subjects with only shadow policies come last, concurrently.
///
/// If a script denies, the permits that earlier scripts took are given back. For a round trip or two,
/// other requests cannot use them. All other subjects are then asked without taking anything, so that
/// the longest wait is reported and each [`Penalty`](crate::Penalty) counts the denials of its policy.
///
/// A denial waits for these other subjects, and an enforced decision for the shadow policies: for the
/// time that the decision took and 10 ms more, or
/// [the time that you set](RedisStoreBuilder::wait_for_other_nodes). A subject without an answer by
/// then is [`NotAsked`](crate::Outcome::NotAsked) if the request is denied, and otherwise
/// [`FailedOpen`](crate::Outcome::FailedOpen); its penalties and shadow policies may have counted
/// nevertheless. A request with only shadow policies waits for all of them.
///
/// If a node gives no answer, what the request took elsewhere is given back, unless the policies of
/// that node [let requests pass](crate::FailureMode::Allow); then the other policies are enforced. A
/// [concurrency](crate::Limit::concurrency) place may have been taken although the answer was lost. Its
/// policy then reports `FailedOpen`, even beside a denial, and the limiter retries giving the place
/// back until the store has done so.
///
/// While a slot moves to another node, requests with one policy continue. Requests with several
/// policies wait within their deadline until all keys have moved, because a script cannot use keys on
/// two nodes.
///
/// Nodes are found by the addresses or host names that the cluster announces. A node without the host
/// name that it should have is found by its address, once the slots that move to it have moved.
///
/// Some managed services offer a single endpoint in front of a cluster, which refuses `CLUSTER SLOTS`.
/// Use `redis-cluster://` for it, too: the store then sends the scripts for all slots to the endpoint.
/// [`connect`](Self::connect) refuses a plain cluster node whose user has no permission for
/// `CLUSTER SLOTS`; it recognises such a node by its redirections.
///
/// # Keys
///
/// Keys are `{prefix}:{layout}:{<hash of the subject>}:{policy}`. The layout is the algorithm and the
/// version of its state: `throttle:gcra2:{9d15372b1830735a0a2d05214669e327}:client`. There are more
/// keys for
///
/// - a [`Penalty`](crate::Penalty), with the layout `penalty2`;
/// - each [further rate](crate::Limit::and), with its period in the layout: `gcra2+3600s`;
/// - a [group](crate::Policy::group), `{prefix}:group2:{<hash of the subject>}:{group}`, which holds the
///   states of its policies with [`gcra`](crate::Limit::gcra),
///   [`token_bucket`](crate::Limit::token_bucket) or [`leaky_bucket`](crate::Limit::leaky_bucket).
///   Policies with other algorithms keep their own keys;
/// - the end of a hold by [`Feedback`](crate::Feedback), with the layout `gcra2+hold`.
///
/// All keys expire. Use a dedicated server with `maxmemory-policy noeviction`: evicting a key resets
/// its usage.
///
/// Versions of this crate with different layouts count separately. While both run, as during a
/// roll-out, they admit up to twice the limit together.
///
/// # Permissions
///
/// With access control lists, the store's user needs
///
/// ```text
/// ~{prefix}:* +eval +evalsha +time +get +mget +exists +set +setrange +incrby +del +llen +lindex
/// +lset +lpush +rpush +ltrim +zscore +zcount +zrangebyscore +zrevrange +zadd +zrem
/// +zremrangebyscore +pexpireat
/// ```
///
/// and `+select` if the URL names a database other than 0. In a cluster it also needs
/// `+cluster|slots +asking` on every node, but not on an endpoint that hides its nodes. On Sentinels
/// with access control lists, the user needs `+sentinel|get-master-addr-by-name`.
#[derive(Clone)]
pub struct RedisStore {
    home: Arc<Home>,
    denials: Option<ShardedArc<Denials>>,
}

impl RedisStore {
    /// Connects to the servers of this [URL](Self#servers), and runs a self-test on a key of its
    /// own, which it removes.
    ///
    /// To start without waiting for the server, use [`RedisStoreBuilder::connect_lazy`].
    ///
    /// # Errors
    ///
    /// If the URL is invalid, if no server can be reached, or if decisions would fail: for example
    /// because of a wrong password, a missing permission, a replica, a cluster node without
    /// `redis-cluster://`, or a command that the server lacks. The error names the remedy. In a
    /// cluster, an unreachable node is no error while others answer.
    pub async fn connect(url: &str) -> Result<Self, StoreError> {
        Self::builder(url).connect().await
    }

    /// Builds a store with other settings than [`connect`](Self::connect).
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::at(url)
    }

    /// Builds a store over connections that you make with the crate `redis` 1, for example with a
    /// pool. For deadpool-redis see `from_pool` (feature `deadpool`).
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
    /// All requests share one connection. The store calls `make` to get it, and again when it breaks
    /// or its server becomes read-only. If a call takes longer than 0.5 s, a second one starts
    /// beside it; each is dropped after 2 s. `make` must not block its thread. Its error is logged
    /// and reported as the cause.
    ///
    /// The store sends `HELLO` over each new connection and refuses a replica, which a pool may have
    /// kept since before a failover. If a proxy hangs up on `HELLO`, `make` is called again, and that
    /// connection is used without it.
    ///
    /// Connections of the type for clusters are not supported: that type repeats a command whose
    /// answer was lost, which may count twice. List the nodes in a URL instead.
    pub fn builder_with<F, E>(make: impl Fn() -> F + Send + Sync + 'static) -> RedisStoreBuilder
    where
        F: Future<Output = Result<MultiplexedConnection, E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        RedisStoreBuilder::over(Hook::new(make), BY_HOOK)
    }

    /// Switches the deny cache off: the server decides every request. Applies to this handle and to
    /// clones made of it afterwards.
    #[must_use]
    pub fn without_deny_cache(self) -> Self {
        Self {
            denials: None,
            ..self
        }
    }

    /// Sets how long a denial is remembered: by default 1 s. For that long, a denial may outlive a
    /// reset, a credit or a raised limit in another process. Applies to this handle and to clones
    /// made of it afterwards.
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

    /// The number of questions that the deny cache answered, including those that the server did
    /// not answer.
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
        // Outside of any runtime. The future may be polled on one.
        let (home, checks) = (Arc::clone(&self.home), of_each(checks, OwnedCheck::of));
        Box::pin(async move {
            let here = Handle::try_current().ok();
            let answer = |batcher: Batcher| ask::ask(batcher, &question(&checks), ticket);
            home.run(here, answer).await
        })
    }
}

// The servers of a hook are unknown.
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
            // On an error, the next question finds out.
            let _ = home.run(Handle::try_current().ok(), recovered).await;
        }))
    }

    fn remembered(&self, checks: &[Check<'_>]) -> Option<Decisions> {
        self.denials.as_ref()?.recall(checks)
    }

    fn given_back(&self) -> Option<GivenBack> {
        // Only in a cluster does it give back in the background.
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
