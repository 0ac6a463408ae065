//! `RedisStoreBuilder`: the settings of a store besides the address of its server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::RedisStore;
#[cfg(feature = "config")]
use super::connection::Logins;
use super::connection::{
    Address, Connector, Handshake, Hook, Masters, RESPONSE_TIMEOUT, RedisCredentials, Tls,
};
use super::in_flight::InFlight;
use super::keys::Prefix;
use super::settings::{Settings, Source, Waits};
use crate::error::{StoreError, StoreErrorKind};
use crate::task::InFlightWork;
use crate::time::Clock;

/// Builds a [`RedisStore`] with settings other than the defaults.
#[must_use]
pub struct RedisStoreBuilder {
    source: Origin,
    prefix: Option<String>,
    max_in_flight: usize,
    waits: Waits,
    clock: Option<Arc<dyn Clock>>,
    tls: Tls,
    credentials: Option<RedisCredentials>,
    sentinel_credentials: Option<RedisCredentials>,
    own_thread: Option<bool>,
}

/// Where connections come from.
enum Origin {
    Url(String),
    /// From there, as the store is then called.
    Hook(Hook, &'static str),
}

impl RedisStoreBuilder {
    pub(super) fn at(url: &str) -> Self {
        Self::from(Origin::Url(url.to_owned()))
    }

    pub(super) fn over(hook: Hook, name: &'static str) -> Self {
        Self::from(Origin::Hook(hook, name))
    }

    fn from(source: Origin) -> Self {
        Self {
            source,
            prefix: None,
            max_in_flight: InFlight::USUAL,
            waits: Waits::USUAL,
            clock: None,
            tls: Tls::default(),
            credentials: None,
            sentinel_credentials: None,
            own_thread: None,
        }
    }

    /// Sets the prefix of all keys: 1 to 64 printable ASCII characters without spaces and braces,
    /// by default `throttle`. Applications with different prefixes count separately.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// Sets how many decisions of this process may be in flight at once, to all servers together,
    /// including those that wait to be asked, and those whose callers have left, until they are
    /// answered or the limiter's deadline passes: by default 1024, at most 65 536. Any further one
    /// fails at once, as [`StoreErrorKind::Overloaded`]: no queue grows without bound.
    ///
    /// On average, the number of decisions in flight is the number of decisions a second times the
    /// time that each takes: 1024 are 20 000 a second at 50 ms.
    pub fn max_in_flight(mut self, decisions: usize) -> Self {
        self.max_in_flight = decisions;
        self
    }

    /// Sets how long a request waits for the answers to others before it is asked without them: by
    /// default 10 ms, at most 60 s. As long as the server keeps up, a decision takes at most this time
    /// and a round trip. See [how requests are asked together](RedisStore#round-trips).
    pub fn wait_for_batches(mut self, time: Duration) -> Self {
        self.waits.for_batches = time.min(RESPONSE_TIMEOUT);
        self
    }

    /// In a cluster, a request about several subjects waits for the slower nodes, for as long again
    /// as the decided part took and this time more: by default 10 ms, at most 60 s. The store does
    /// not know the limiter's deadline; the default fits a timeout of 50 ms. See
    /// [Clusters](RedisStore#clusters).
    ///
    /// A node is waited for if it is farther away than the others by no more than this.
    pub fn wait_for_other_nodes(mut self, time: Duration) -> Self {
        self.waits.for_other_nodes = time.min(RESPONSE_TIMEOUT);
        self
    }

    /// Sets the certificate authority, in PEM, that must have signed the server's certificate,
    /// instead of those that the system trusts. One file may hold several. Not for connections
    /// of the application's, which have their own.
    #[cfg(feature = "redis-tls")]
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// Sets the name that the certificates of all servers must be for, in place of the addresses by
    /// which they are reached. So a cluster can be used whose nodes announce addresses while their
    /// certificate is for a name, and a master that Sentinel names by its address. Not for a pool.
    ///
    /// ```no_run
    /// use tower_throttle::RedisStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let store = RedisStore::builder("rediss-cluster://cache.example.com:10000")
    ///     .tls_server_name("cache.example.com")
    ///     .connect()
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "redis-tls")]
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.server_name = Some(name.into());
        self
    }

    /// **Dangerous**: accepts whatever certificate a server shows, such as a self-signed one, one
    /// for another name or one that has expired. Anybody between this process and the server can
    /// then read the password and all keys, and decide in the server's place. Prefer
    /// [`ca_certificate`](Self::ca_certificate), which a self-signed certificate can be, too, and
    /// [`tls_server_name`](Self::tls_server_name). Not for a pool.
    ///
    /// The feature `redis-tls-insecure` has a side effect on other users of the crate `redis` in the
    /// same program: their URLs may end in `#insecure`. Those of this crate may not.
    #[cfg(feature = "redis-tls-insecure")]
    pub fn danger_accept_invalid_certs(mut self) -> Self {
        self.tls.accepts_any_certificate = true;
        self
    }

    /// Sets the certificate to show to a server that asks for one, with its chain, and its private
    /// key, both in PEM.
    #[cfg(feature = "redis-tls")]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.client = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Logs in with these credentials, which may change at any time, in place of those in the URL:
    /// on a single server, on all nodes of a cluster, and on the master that Sentinel names. The
    /// Sentinels themselves are asked with the login at the end of the URL. Not for connections
    /// of the application's, which have their own.
    pub fn credentials(mut self, credentials: RedisCredentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Logs in as a file says, which may be read again.
    #[cfg(feature = "config")]
    pub(crate) fn logins(mut self, logins: &Logins) -> Self {
        self.credentials = Some(logins.servers.clone());
        self.sentinel_credentials = Some(logins.sentinels.clone());
        self
    }

    /// Whether connections and all else that the store does live on a thread of its own, with a
    /// tokio runtime for them. By default they live on the runtime that asks first, and move to such
    /// a thread once a second runtime asks: see [Runtimes](RedisStore#runtimes).
    ///
    /// With `true` they live there from the beginning. A decision then takes two changes of threads
    /// more, but waits for no other work of its runtime.
    ///
    /// With `false` they never move. What other runtimes ask is then asked on the first one, as
    /// quickly as that one is free, and if it has ended, on the next one that asks.
    pub fn own_thread(mut self, own_thread: bool) -> Self {
        self.own_thread = Some(own_thread);
        self
    }

    /// Takes the time from this clock instead of the server's. For tests only, as the clocks of a
    /// fleet's processes differ. The clock must be ahead of the server's, as a new
    /// [`ManualClock`](crate::ManualClock) is, or keys expire the moment they are written. Round trips
    /// then count as if they took no time, and questions wait for each other accordingly.
    ///
    /// Do not pause tokio's time in such a test: see [testing](crate::guide::testing).
    #[cfg(any(test, feature = "test-util"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn clock_for_tests(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Connects, and tries everything that decisions will do on a key of its own, so that faults
    /// are found at start-up: see [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// As for [`RedisStore::connect`]; and a prefix, a number or a TLS setting that cannot be used.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.connect_lazy()?;
        store.try_out().await?;
        Ok(store)
    }

    /// Connects with the first decision: the service starts even when the server is down, and its
    /// policies' failure modes decide until it is up.
    ///
    /// # Errors
    ///
    /// If the URL or a TLS setting cannot be used, or the prefix or a number is out of range.
    pub fn connect_lazy(self) -> Result<RedisStore, StoreError> {
        let wrong = |error| StoreError::with_source(StoreErrorKind::Configuration, error);
        let prefix = self
            .prefix
            .as_deref()
            .map_or(Ok(Prefix::default()), Prefix::new);
        let prefix = prefix.map_err(|error| wrong(error.to_string()))?;
        let max_in_flight = InFlight::checked(self.max_in_flight);
        let max_in_flight = max_in_flight.map_err(|error| wrong(error.to_string()))?;
        let handshake = |credentials| Handshake {
            tls: self.tls.clone(),
            credentials,
        };
        let (name, source) = match self.source {
            Origin::Url(url) => {
                let address = Address::parse(&url).map_err(wrong)?;
                let name = address.to_string();
                let servers = handshake(self.credentials);
                let sentinels = handshake(self.sentinel_credentials);
                (name, source_at(address, servers, sentinels)?)
            }
            Origin::Hook(..) if !self.tls.is_default() || self.credentials.is_some() => {
                let own = "a pool has TLS settings and credentials of its own, and so have other \
                           connections of the application";
                return Err(wrong(own.to_owned()));
            }
            Origin::Hook(hook, name) => (name.to_owned(), Source::One(Connector::Hook(hook))),
        };
        let settings = Settings {
            source,
            name: name.into(),
            prefix,
            clock: self.clock,
            max_in_flight,
            waits: self.waits,
            in_flight_work: InFlightWork::default(),
        };
        Ok(RedisStore::new(settings, self.own_thread))
    }
}

/// Without the addresses of its servers, as URLs contain passwords, and without keys.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("max_in_flight", &self.max_in_flight)
            .finish_non_exhaustive()
    }
}

fn source_at(
    address: Address,
    handshake: Handshake,
    sentinels_handshake: Handshake,
) -> Result<Source, StoreError> {
    Ok(Source::One(match address {
        Address::Server(server) => Connector::to(server, &handshake)?,
        Address::Sentinels(sentinels) => {
            let masters = Masters::new(sentinels, handshake, sentinels_handshake)?;
            Connector::Sentinel(Arc::new(masters))
        }
        Address::Cluster(seeds) => {
            // Checks the settings, which are the same for all nodes.
            for seed in &seeds {
                handshake.prepare(seed.clone())?;
            }
            return Ok(Source::Cluster { seeds, handshake });
        }
    }))
}
