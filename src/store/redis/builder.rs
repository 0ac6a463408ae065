//! `RedisStoreBuilder`: the settings of a store.

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
    /// A hook, and the name of the store.
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

    /// Sets the prefix of all keys, by default `throttle`: 1 to 64 printable ASCII characters
    /// without spaces and braces. Applications with different prefixes count separately.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// Sets how many decisions of this process may be in flight, over all servers: by default 1024,
    /// at most 65 536. Any further decision fails at once with [`StoreErrorKind::Overloaded`], so no
    /// queue grows without bound.
    ///
    /// Decisions that wait for a batch count, too. Those whose callers have left count until they
    /// are answered or the limiter's deadline passes. On average, the number in flight is the rate of
    /// decisions times their duration: 1024 are 20 000 a second at 50 ms.
    pub fn max_in_flight(mut self, decisions: usize) -> Self {
        self.max_in_flight = decisions;
        self
    }

    /// Sets how long a request waits for calls in flight before it is sent anyway: by default 10 ms,
    /// at most 60 s. If the server keeps up, a decision takes at most this time and a round trip. See
    /// [Round trips](RedisStore#round-trips).
    pub fn wait_for_batches(mut self, time: Duration) -> Self {
        self.waits.for_batches = time.min(RESPONSE_TIMEOUT);
        self
    }

    /// Sets how long a decided request about several subjects of a cluster waits for the other
    /// nodes, in addition to the time that the decision took: by default 10 ms, at most 60 s.
    ///
    /// So the store waits for nodes whose round trip is longer by up to this time. The store does not
    /// know the limiter's deadline; the default fits a timeout of 50 ms. See
    /// [Clusters](RedisStore#clusters).
    pub fn wait_for_other_nodes(mut self, time: Duration) -> Self {
        self.waits.for_other_nodes = time.min(RESPONSE_TIMEOUT);
        self
    }

    /// Sets the certificate authorities to trust instead of the system's, in PEM. The text may
    /// contain several. Not for connections of the application, which have their own settings.
    #[cfg(feature = "redis-tls")]
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.authority = Some(pem.into());
        self
    }

    /// Sets the name that the certificates of all servers must be for, instead of their addresses.
    /// Use it if cluster nodes or Sentinels announce IP addresses while the certificates are for a
    /// name. Not for a pool.
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

    /// **Dangerous**: accepts every certificate, also a self-signed or expired one or one for another
    /// name.
    ///
    /// An attacker between this process and the server can then read the password and all keys, and
    /// forge decisions. Prefer [`ca_certificate`](Self::ca_certificate), which also accepts a
    /// self-signed certificate, and [`tls_server_name`](Self::tls_server_name). Not for a pool.
    ///
    /// The feature `redis-tls-insecure` also lets other users of the crate `redis` in the same
    /// program end their URLs in `#insecure`. URLs of this crate may not.
    #[cfg(feature = "redis-tls-insecure")]
    pub fn danger_accept_invalid_certs(mut self) -> Self {
        self.tls.accepts_any_certificate = true;
        self
    }

    /// Sets the client certificate with its chain, and its private key, both in PEM, for servers that
    /// ask for one.
    #[cfg(feature = "redis-tls")]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.tls.client = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Sets credentials that may change at any time, instead of those in the URL. They are for a
    /// single server, all nodes of a cluster, and the master that Sentinel names. Sentinels
    /// themselves use the login at the end of the URL. Not for connections of the application, which
    /// log in by themselves.
    pub fn credentials(mut self, credentials: RedisCredentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Logs in with these logins, which a reload of the configuration may replace.
    #[cfg(feature = "config")]
    pub(crate) fn logins(mut self, logins: &Logins) -> Self {
        self.credentials = Some(logins.servers.clone());
        self.sentinel_credentials = Some(logins.sentinels.clone());
        self
    }

    /// Sets whether the store runs on a thread of its own, with a tokio runtime. By default it runs
    /// on the runtime that uses it first, and moves to a thread once a second runtime uses it: see
    /// [Runtimes](RedisStore#runtimes).
    ///
    /// With `true` it runs on the thread from the beginning. A decision then takes two more thread
    /// switches, but never waits for other work on its runtime.
    ///
    /// With `false` it never moves. Questions of other runtimes then run on the first one and wait
    /// until it is free. If it has ended, the store continues on the next runtime that uses it.
    pub fn own_thread(mut self, own_thread: bool) -> Self {
        self.own_thread = Some(own_thread);
        self
    }

    /// Sets a clock to use instead of the server's. For tests only, since the clocks of a fleet's
    /// processes differ.
    ///
    /// Do not pause tokio's time in such a test: see [testing](crate::guide::testing).
    #[cfg(any(test, feature = "test-util"))]
    #[cfg_attr(docsrs, doc(cfg(feature = "test-util")))]
    pub fn clock_for_tests(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Connects and runs a self-test, like [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// Those of [`RedisStore::connect`], or if the prefix, a number or a TLS setting is invalid.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.connect_lazy()?;
        store.try_out().await?;
        Ok(store)
    }

    /// Builds the store without connecting: the first decision connects. The service starts even
    /// when the server is down, and the failure modes decide until it is up.
    ///
    /// # Errors
    ///
    /// If the URL, the prefix, a number or a TLS setting is invalid.
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
                let own = "TLS settings and credentials do not apply to a pool or to connections of the \
                application: set them there";
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

/// Without addresses and keys, since URLs contain passwords.
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
