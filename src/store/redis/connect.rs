//! Connections: made by deadpool-redis, with all timeouts set. The one place that knows where the
//! server is.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::{Connection, Manager, Pool, PoolError, Runtime};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{AsyncConnectionConfig, ConnectionInfo, IntoConnectionInfo};

use super::error::of_connecting;
use super::keys::Prefix;
use super::{Clock, RedisStore};
use crate::error::{StoreError, StoreErrorKind};

/// How long a connection attempt may take; far longer than a decision, which does not wait for it
/// beyond its own deadline.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// After this the client gives a reply up; no decision has a later deadline.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Sent data that stays unacknowledged for so long breaks the connection.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(5);
/// An idle connection is probed this often, so that middleboxes do not forget it.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Questions that may wait in the client to be written: all that a lane lets in.
const WRITE_QUEUE: usize = super::lane::MOST_IN_FLIGHT;

/// Makes connections, one at a time.
pub(super) struct Connector(Pool);

impl Connector {
    pub(super) fn new(pool: Pool) -> Self {
        Self(pool)
    }

    fn to(server: ConnectionInfo) -> Result<Self, StoreError> {
        let tcp = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(socket2::TcpKeepalive::new().with_time(KEEPALIVE));
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(USER_TIMEOUT);
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            .set_pipeline_buffer_size(WRITE_QUEUE);
        let manager = Manager::new_with_config(server.set_tcp_settings(tcp), config)
            .map_err(of_connecting)?;
        Pool::builder(manager)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECT_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            .build()
            .map(Self)
            .map_err(|error| StoreError::with_source(StoreErrorKind::Configuration, error))
    }

    /// A connection to keep. The pool may be a user's without any timeout, so there is one here.
    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        match tokio::time::timeout(CONNECT_TIMEOUT, self.0.get()).await {
            Ok(Ok(connection)) => Ok(Connection::take(connection)),
            Ok(Err(PoolError::Backend(error))) => Err(of_connecting(error)),
            Ok(Err(error)) => Err(StoreError::with_source(StoreErrorKind::Unreachable, error)),
            Err(elapsed) => Err(StoreError::with_source(
                StoreErrorKind::Unreachable,
                elapsed,
            )),
        }
    }
}

/// Builds a [`RedisStore`] with more than the defaults.
#[must_use]
pub struct RedisStoreBuilder {
    url: String,
    prefix: Option<String>,
    clock: Option<Arc<dyn Clock>>,
}

impl RedisStoreBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: None,
            clock: None,
        }
    }

    /// What all keys begin with; `throttle` unless said. 1 to 64 printable ASCII characters
    /// without blanks and braces. Applications with different prefixes count apart.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// Takes the time from this clock instead of the server's. For tests only: the processes of a
    /// fleet do not have the same time. The clock must be ahead of the server's, as a new
    /// [`ManualClock`](crate::ManualClock) is, or keys expire the moment they are written.
    pub fn clock_for_tests(mut self, clock: impl Clock) -> Self {
        self.clock = Some(Arc::new(clock));
        self
    }

    /// Connects and runs an empty script, so that a wrong address or password, and a user that may
    /// not run scripts or not use keys of this prefix, are found at start-up.
    ///
    /// # Errors
    ///
    /// As for [`RedisStore::connect`]; and a prefix that is out of range.
    pub async fn connect(self) -> Result<RedisStore, StoreError> {
        let store = self.connect_lazy()?;
        store.lane().try_out(store.question_to_try()).await?;
        Ok(store)
    }

    /// Connects with the first decision: the service starts even when the server is down, and its
    /// policies' failure modes decide until it is up.
    ///
    /// # Errors
    ///
    /// When the URL cannot be read, or the prefix is out of range.
    pub fn connect_lazy(self) -> Result<RedisStore, StoreError> {
        let wrong = |error| StoreError::with_source(StoreErrorKind::Configuration, error);
        let prefix = self
            .prefix
            .as_deref()
            .map_or(Ok(Prefix::default()), Prefix::new);
        let prefix = prefix.map_err(|error| wrong(error.to_string()))?;
        // The URL may hold a password: it never appears in an error.
        let server = self.url.as_str().into_connection_info().map_err(|error| {
            wrong(format!(
                "the store's URL cannot be used ({error}), expected \
                 redis://[user:password@]host[:port][/database]"
            ))
        })?;
        Ok(RedisStore::over(Connector::to(server)?, prefix, self.clock))
    }
}
