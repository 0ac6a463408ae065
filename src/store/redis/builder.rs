//! `RedisStoreBuilder`: all that can be said of a store beside where its server is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::RedisStore;
use super::cluster::Cluster;
use super::connection::{Address, Certificates, Connector, Lane, Masters, RESPONSE_TIMEOUT};
use super::keys::Prefix;
use super::places::Places;
use super::server::{Server, Servers};
use super::waits::Waits;
use crate::error::{StoreError, StoreErrorKind};
use crate::time::Clock;

/// Builds a [`RedisStore`] with more than the defaults.
#[must_use]
pub struct RedisStoreBuilder {
    source: Source,
    prefix: Option<String>,
    max_in_flight: usize,
    waits: Waits,
    clock: Option<Arc<dyn Clock>>,
    certificates: Certificates,
}

/// Where connections come from.
enum Source {
    Url(String),
    Pool(Connector),
}

impl RedisStoreBuilder {
    pub(super) fn at(url: &str) -> Self {
        Self::from(Source::Url(url.to_owned()))
    }

    pub(super) fn over_pool(pool: Connector) -> Self {
        Self::from(Source::Pool(pool))
    }

    fn from(source: Source) -> Self {
        Self {
            source,
            prefix: None,
            max_in_flight: Places::USUAL,
            waits: Waits::USUAL,
            clock: None,
            certificates: Certificates::default(),
        }
    }

    /// What all keys begin with; `throttle` unless said. 1 to 64 printable ASCII characters without
    /// spaces and braces. Applications with different prefixes count apart.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// How many decisions of this process may be under way at once, to all servers together, those among
    /// them that wait for a trip; 1024 unless said, 65 536 at most. A further one fails at once, as
    /// [`StoreErrorKind::Overloaded`]: nothing waits in a queue without bound.
    ///
    /// Decisions a second times the time that each takes are under way on average: 1024 are 20 000 a second
    /// at 50 ms.
    pub fn max_in_flight(mut self, decisions: usize) -> Self {
        self.max_in_flight = decisions;
        self
    }

    /// How long a request waits for a trip that others are on, as those about the same key are, before it goes on
    /// one beside it; 10 ms unless said, 60 s at most. As long as the server keeps up, a decision takes no longer
    /// than this and a round trip. See [how requests share trips](RedisStore).
    ///
    /// About a hot key each process asks a server that is farther away than this once in this time, and one that is
    /// nearer once in each round trip.
    pub fn wait_for_trips(mut self, time: Duration) -> Self {
        self.waits.for_trips = time.min(RESPONSE_TIMEOUT);
        self
    }

    /// How much longer than it took itself, what is decided about some subjects of a request waits for the
    /// nodes of a cluster that have the others; 10 ms unless said, 60 s at most. The store does not know by
    /// when its limiter decides: this fits the 50 ms that a decision has unless said. See
    /// [Clusters](RedisStore#clusters).
    ///
    /// A node is heard that is farther away than the others by no more than this; or by half of it, where
    /// nobody has asked it for a second and so its connection is first made sure of, while the others are asked.
    pub fn wait_for_other_nodes(mut self, time: Duration) -> Self {
        self.waits.for_other_nodes = time.min(RESPONSE_TIMEOUT);
        self
    }

    /// The certificate authority, in PEM, that the server's certificate must come from, instead of
    /// those that the system trusts. One file may hold several. Not for a pool, which has its own.
    #[cfg(feature = "redis-tls")]
    pub fn ca_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.authority = Some(pem.into());
        self
    }

    /// The certificate to show to a server that asks for one, with the certificates it depends on,
    /// and its private key, both in PEM.
    #[cfg(feature = "redis-tls")]
    pub fn client_certificate(
        mut self,
        certificate_pem: impl Into<Vec<u8>>,
        key_pem: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.client = Some((certificate_pem.into(), key_pem.into()));
        self
    }

    /// Takes the time from this clock instead of the server's. For tests only: the processes of a
    /// fleet do not have the same time. The clock must be ahead of the server's, as a new
    /// [`ManualClock`](crate::ManualClock) is, or keys expire the moment they are written.
    pub fn clock_for_tests(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Connects, and tries everything that decisions will do on a key of its own, so that what is
    /// wrong is found at start-up: see [`RedisStore::connect`].
    ///
    /// # Errors
    ///
    /// As for [`RedisStore::connect`]; and a prefix, a number or a certificate that cannot be used.
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
    /// When the URL or a certificate cannot be read, or the prefix or a number is out of range.
    pub fn connect_lazy(self) -> Result<RedisStore, StoreError> {
        let wrong = |error| StoreError::with_source(StoreErrorKind::Configuration, error);
        let prefix = self
            .prefix
            .as_deref()
            .map_or(Ok(Prefix::default()), Prefix::new);
        let prefix = prefix.map_err(|error| wrong(error.to_string()))?;
        let places = Places::new(self.max_in_flight).map_err(|error| wrong(error.to_string()))?;
        let servers = match self.source {
            Source::Url(url) => {
                let address = Address::parse(&url).map_err(wrong)?;
                servers_at(address, &self.certificates)?
            }
            Source::Pool(_) if !self.certificates.is_empty() => {
                return Err(wrong("a pool has certificates of its own".to_owned()));
            }
            Source::Pool(pool) => Servers::One(Lane::new(pool)),
        };
        let server = Server::spread(servers, prefix, self.clock, places, self.waits);
        Ok(RedisStore::over(server))
    }
}

/// Not where its servers are, as passwords stand in URLs.
impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("max_in_flight", &self.max_in_flight)
            .finish_non_exhaustive()
    }
}

fn servers_at(address: Address, certificates: &Certificates) -> Result<Servers, StoreError> {
    Ok(match address {
        Address::Server(server) => {
            Servers::One(Lane::new(Connector::to(certificates.apply(server)?)?))
        }
        Address::Sentinels(sentinels) => {
            let masters = Masters::new(sentinels, certificates)?;
            Servers::One(Lane::new(Connector::Sentinel(masters)))
        }
        Address::Cluster(nodes) => {
            let nodes = nodes.into_iter().map(|node| certificates.apply(node));
            Servers::Cluster(Cluster::new(nodes.collect::<Result<_, _>>()?))
        }
    })
}
