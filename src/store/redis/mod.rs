//! The fleet's store: every verdict is one script call on a Redis or Valkey server.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::deny_cache::denials::Denials;
use super::{Answer, Check, Recovered, Store};
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::key::Subject;
use crate::time::{Clock, Micros};

mod address;
mod builder;
mod cluster;
mod coalesce;
mod connect;
mod error;
mod held;
mod keys;
mod lane;
mod plain;
mod plain_pack;
mod reply;
mod script;
mod self_test;
mod sentinel;
mod split;
mod tls;

use cluster::Cluster;
use coalesce::{Coalescing, Told, Turn};
use connect::Connector;
use error::is_other_form;
use keys::Prefix;
use lane::{Failed, Lane};
use plain::Plain;
use plain_pack::PlainPack;
use reply::Expected;
use script::{Question, Scripted};
use self_test::SelfTest;

pub use builder::RedisStoreBuilder;
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
/// # Servers
///
/// | URL | |
/// |---|---|
/// | `redis://[user:password@]host[:port][/database]` | one server; `rediss://` over TLS |
/// | `redis+unix:///path/to.sock[?db=0&user=u&pass=p]` | one server, over its socket |
/// | `redis-sentinel://[user:password@]host[:port],.../master[/database]` | the master that Sentinel names; `rediss-sentinel://` over TLS |
/// | `redis-cluster://[user:password@]host[:port],...` | a cluster, by any of its nodes; `rediss-cluster://` over TLS |
///
/// Characters of a user or password that mean something in a URL are written with percent signs,
/// as `%40` for `@`. Sentinels are asked in their order, without a login unless the URL ends in
/// `?sentinel_user=u&sentinel_password=p`, and anew for every connection: a master that was demoted
/// is left at its first refusal, and the question it refused is asked once more.
///
/// TLS needs the feature `redis-tls`. It trusts the certificates that the system trusts, or those
/// of [`ca_certificate`](RedisStoreBuilder). Its cryptography is that of the process,
/// `rustls::crypto::CryptoProvider`; where the application has installed none, it installs ring's.
///
/// # Clusters
///
/// All checks of one subject are in one slot, and are one script. A request whose policies have
/// different subjects, as one by address and one for everybody, takes a script for each, in the
/// order of the policies. When a later one denies, or its node gives no answer, what the earlier
/// ones took is given back; for that moment, a trip or two, it is missing to others. While a slot
/// moves, requests about it go on, unless they have several policies: scripts do not reach keys of
/// which some have moved, so those wait for up to half a second, as far as their deadline lets them.
///
/// # Keys
///
/// Keys are `{prefix}:{layout}:{<hash of the subject>}:{policy}`, where the layout is the algorithm
/// and the version of its state: `throttle:gcra1:{9d15372b1830735a0a2d05214669e327}:client`. A
/// [`Penalty`](crate::Penalty) has a key beside that of its policy, with the layout `penalty1`. The
/// [further rates](crate::Limit::and) of a limit are in the key of the first, but for those of a sliding
/// log, whose keys have their periods in the layout: `sliding_log1+3600s`. The policies of a
/// [group](crate::Policy::group) have one key together, `{prefix}:group1:{<hash of the subject>}:{group}`.
/// All of them expire by themselves. Use a server of its own with `maxmemory-policy noeviction`: an
/// evicted key is a forgotten debt.
///
/// # Rights
///
/// With access control lists, its user needs `~{prefix}:* +eval +evalsha +time +get +set +incrby +del
/// +llen +lindex +lset +lpush +rpush +ltrim +zscore +zrangebyscore +zrevrange +zadd +zrem +pexpireat +pttl`. In
/// a cluster it needs `+cluster|slots +asking` too, on every node; and with a Sentinel that has
/// users, that one needs `+sentinel|get-master-addr-by-name`.
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
    server: Server,
    denials: Option<Arc<Denials>>,
}

/// The servers, without a memory of denials. Clones share the connections.
#[derive(Clone)]
struct Server(Arc<Shared>);

struct Shared {
    servers: Servers,
    prefix: Prefix,
    clock: Option<Arc<dyn Clock>>,
    coalescing: Coalescing,
}

/// Who is asked. Clones share the connections.
#[derive(Clone)]
enum Servers {
    One(Lane),
    Cluster(Cluster),
}

impl RedisStore {
    /// Connects to the server or servers of this URL, [see above](Self#servers), and tries what
    /// decisions will do, on a key of its own that it leaves no trace of.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read, when no server can be reached, and when decisions would fail: a
    /// wrong password, a right that is missing, a replica, a node of a cluster that is not addressed
    /// as one, and the like. The [source](std::error::Error::source) says what to do. Use
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
        Self::over_pool(Connector::Pool(pool))
    }

    /// The same from a pool that asks Sentinel. A connection that it kept to a master that was
    /// demoted is let go of. The user needs `+role` beside the rights above.
    #[cfg(feature = "deadpool-sentinel")]
    pub fn from_sentinel_pool(pool: deadpool_redis::sentinel::Pool) -> Self {
        Self::over_pool(Connector::SentinelPool(pool))
    }

    fn over_pool(connector: Connector) -> Self {
        Self::over(Servers::One(Lane::new(connector)), Prefix::default(), None)
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
            || Denials::new(self.server.0.clock.clone()).with_max_age(age),
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

    fn over(servers: Servers, prefix: Prefix, clock: Option<Arc<dyn Clock>>) -> Self {
        Self {
            denials: Some(Arc::new(Denials::new(clock.clone()))),
            server: Server(Arc::new(Shared {
                servers,
                prefix,
                clock,
                coalescing: Coalescing::default(),
            })),
        }
    }

    /// Does what decisions do, on keys of its own.
    async fn try_out(&self) -> Result<(), StoreError> {
        let Shared {
            servers, prefix, ..
        } = &*self.server.0;
        match servers {
            Servers::One(lane) => {
                SelfTest::read(&lane.try_out(&SelfTest::of_server(prefix)).await?)
            }
            Servers::Cluster(cluster) => cluster.try_out(prefix).await,
        }
    }
}

impl Store for RedisStore {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match &self.denials {
            Some(denials) => Denials::ask(denials, checks, &self.server),
            None => self.server.ask(checks),
        }
    }

    fn recovered(&self, within: Duration) -> Option<Recovered> {
        self.server.recovered(within)
    }
}

impl Store for Server {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let Some(first) = checks.first() else {
            return Answer::Ready(Ok(std::iter::empty().collect()));
        };
        let is_split = matches!(self.0.servers, Servers::Cluster(_))
            && checks.iter().any(|check| check.subject != first.subject);
        Answer::Pending(if is_split {
            Box::pin(split::ask(self.clone(), split::parts(checks)))
        } else if let Some(plain) = Plain::of(checks, &self.0.prefix, self.now()) {
            Box::pin(self.clone().plain_trip(plain))
        } else if let Some(pack) = PlainPack::of(checks, &self.0.prefix, self.now()) {
            Box::pin(self.clone().plain_pack_trip(pack))
        } else {
            Box::pin(self.trip(checks, first.subject))
        })
    }

    fn recovered(&self, within: Duration) -> Option<Recovered> {
        Some(match self.0.servers.clone() {
            Servers::One(lane) => Box::pin(lane.recovered(within)),
            Servers::Cluster(cluster) => Box::pin(cluster.recovered(within)),
        })
    }
}

impl Server {
    /// One script call; in a cluster, about this subject. The future owns all it needs.
    fn trip(
        &self,
        checks: &[Check<'_>],
        subject: Subject,
    ) -> impl Future<Output = Result<Decisions, StoreError>> + Send + use<> {
        let question = Question::new(checks, &self.0.prefix, self.now());
        let expected = Expected::of(checks);
        let servers = self.0.servers.clone();
        async move { expected.read(servers.send(&question, subject).await?) }
    }

    /// The same of a plain take, by the script for such; where the key's state has another form, by
    /// the one for everything.
    async fn plain_trip(self, plain: Plain) -> Result<Decisions, StoreError> {
        let subject = plain.check().subject;
        let debt = loop {
            match Coalescing::enter(&self, &plain)? {
                Turn::Go(trip) => {
                    let debt = self.ask_plain(&plain, subject).await;
                    drop(trip);
                    break debt?;
                }
                Turn::Wait(told) => match told.await {
                    Ok(Told::Debt(debt)) => break Some(debt),
                    Ok(Told::OtherForm) => break None,
                    Ok(Told::Failed(error)) => return Err(error),
                    Ok(Told::NotAsked) => {}
                    Err(gone) => {
                        return Err(StoreError::with_source(StoreErrorKind::Interrupted, gone));
                    }
                },
            }
        };
        match debt {
            Some(debt) => Ok(plain.decide(debt)),
            None => self.trip(&[plain.check()], subject).await,
        }
    }

    /// The same of plain takes whose states share a key.
    async fn plain_pack_trip(self, pack: PlainPack) -> Result<Decisions, StoreError> {
        let subject = pack.subject();
        let answer = match self.0.servers.send(&pack, subject).await {
            Ok(reply) => pack.read(&reply),
            Err(Failed::Answer(error)) if is_other_form(&error) => None,
            Err(failed) => return Err(failed.into()),
        };
        match answer {
            Some(decisions) => Ok(decisions),
            None => self.trip(&pack.checks(), subject).await,
        }
    }

    /// What the key of plain takes owed; `None` when its state has another form.
    async fn ask_plain(
        &self,
        question: &impl Scripted,
        subject: Subject,
    ) -> Result<Option<u64>, StoreError> {
        match self.0.servers.send(question, subject).await {
            Ok(reply) => Ok(plain::debt(&reply)),
            Err(Failed::Answer(error)) if is_other_form(&error) => Ok(None),
            Err(failed) => Err(failed.into()),
        }
    }

    /// Zero asks the server's clock.
    fn now(&self) -> Micros {
        self.0
            .clock
            .as_ref()
            .map_or(Micros::ZERO, |clock| clock.now())
    }
}

impl Servers {
    /// Sends a question, in a cluster one about this subject.
    async fn send(&self, question: &impl Scripted, subject: Subject) -> Result<Value, Failed> {
        match self {
            Self::One(lane) => lane.send(question).await,
            Self::Cluster(cluster) => cluster.send(question, subject).await,
        }
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("prefix", &self.server.0.prefix)
            .finish_non_exhaustive()
    }
}
