//! Connections: made by deadpool-redis, with all timeouts set, or as Sentinel says.

use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::{Connection, Manager, Pool, PoolError, Runtime, TimeoutType};
use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::sentinel::Masters;
use super::tls::{choose_cryptography, is_over_tls};
use crate::error::{StoreError, StoreErrorKind};
use crate::random::random;
use crate::store::redis::error::{of_connecting, of_silence};
use crate::store::redis::places::Places;

/// How long a connection attempt may take; far longer than a decision, which does not wait for it
/// beyond its own deadline.
pub(in crate::store::redis) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Between the beginnings of two attempts: a server that is down, or refuses, has at most two a
/// second of each process.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// Attempts that are under way at once, when each takes as long as it may.
const MOST_ATTEMPTS: usize = 4;
/// After this the client gives a reply up; no decision has a later deadline.
pub(in crate::store::redis) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// Sent data that stays unacknowledged for so long breaks the connection.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(5);
/// An idle connection is probed this often, so that middleboxes do not forget it.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Questions that may wait in the client to be written: all that a store lets in, unless more are said.
/// Those beyond it wait for their turn to.
const WRITE_QUEUE: usize = Places::USUAL;

/// Makes connections.
pub(in crate::store::redis) enum Connector {
    /// To one server.
    Server { pool: Pool, address: ConnectionAddr },
    /// Wherever a user's pool leads.
    Pool(Pool),
    /// To the master that Sentinel names.
    Sentinel(Masters),
    #[cfg(feature = "deadpool-sentinel")]
    SentinelPool(deadpool_redis::sentinel::Pool),
}

impl Connector {
    pub(in crate::store::redis) fn to(server: ConnectionInfo) -> Result<Self, StoreError> {
        let server = server.set_tcp_settings(tcp_settings());
        let address = server.addr().clone();
        let manager = Manager::new_with_config(server, config()).map_err(of_connecting)?;
        Pool::builder(manager)
            .max_size(MOST_ATTEMPTS)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECT_TIMEOUT))
            .create_timeout(Some(CONNECT_TIMEOUT))
            .recycle_timeout(Some(CONNECT_TIMEOUT))
            .build()
            .map(|pool| Self::Server { pool, address })
            .map_err(|error| StoreError::with_source(StoreErrorKind::Configuration, error))
    }

    /// A connection to keep, as soon as there can be one, and when the last attempt began.
    ///
    /// An attempt that hangs may hang because of what is over by now, as a network that lost its
    /// first packets: others are begun beside it, and the first that is there is taken.
    pub(super) async fn connect_soon(
        self: Arc<Self>,
    ) -> (Instant, Result<MultiplexedConnection, StoreError>) {
        let mut attempts = JoinSet::new();
        loop {
            let begun = Instant::now();
            let connector = Arc::clone(&self);
            attempts.spawn(async move { connector.connect().await });
            match tokio::time::timeout_at(begun + pause(), attempts.join_next()).await {
                Ok(Some(Ok(made))) => return (begun, made),
                Ok(Some(Err(_)) | None) => {
                    return (begun, Err(StoreError::new(StoreErrorKind::Unreachable)));
                }
                Err(_elapsed) => {}
            }
        }
    }

    /// A connection to keep. The pool may be a user's without any timeout, so there is one here.
    async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let made = match tokio::time::timeout(CONNECT_TIMEOUT, self.make()).await {
            Ok(made) => made,
            Err(_elapsed) if self.is_used_up() => Err(StoreError::with_source(
                StoreErrorKind::Unreachable,
                "all connections of the pool are in use",
            )),
            Err(elapsed) => Err(of_silence(elapsed)),
        };
        made.map_err(|error| match self {
            Self::Server { address, .. } => error.of_server(address),
            _ => error,
        })
    }

    /// Whether it is a user's pool that has given away all that it may have: that says nothing of the
    /// server.
    fn is_used_up(&self) -> bool {
        let status = match self {
            Self::Pool(pool) => pool.status(),
            Self::Server { .. } | Self::Sentinel(_) => return false,
            #[cfg(feature = "deadpool-sentinel")]
            Self::SentinelPool(pool) => pool.status(),
        };
        status.available == 0 && status.size == status.max_size
    }

    /// A user's pool may be, too, but its cryptography is the user's business, as all else of it.
    fn is_over_tls(&self) -> bool {
        match self {
            Self::Server { address, .. } => is_over_tls(address),
            Self::Sentinel(masters) => masters.are_over_tls(),
            Self::Pool(_) => false,
            #[cfg(feature = "deadpool-sentinel")]
            Self::SentinelPool(_) => false,
        }
    }

    async fn make(&self) -> Result<MultiplexedConnection, StoreError> {
        if self.is_over_tls() {
            choose_cryptography();
        }
        let mut connection = match self {
            Self::Server { pool, .. } | Self::Pool(pool) => {
                Connection::take(pool.get().await.map_err(of_pool)?)
            }
            Self::Sentinel(masters) => masters.connect().await?,
            #[cfg(feature = "deadpool-sentinel")]
            Self::SentinelPool(pool) => super::sentinel::from_pool(pool).await?,
        };
        // Also on one of a user's pool: a reply that its client does not wait for would look like an answer.
        connection.set_response_timeout(RESPONSE_TIMEOUT);
        Ok(connection)
    }
}

/// [`RECONNECT_PAUSE`], or up to a fifth longer: a fleet that lost its server in one moment does not
/// come back to it in one.
pub(in crate::store::redis) fn pause() -> Duration {
    let scatter = random() % 1_000;
    RECONNECT_PAUSE + RECONNECT_PAUSE / 5_000 * scatter as u32
}

pub(super) fn of_pool(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => of_connecting(error),
        error @ PoolError::Timeout(TimeoutType::Create) => of_silence(error),
        error => StoreError::with_source(StoreErrorKind::Unreachable, error),
    }
}

pub(super) fn tcp_settings() -> TcpSettings {
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(socket2::TcpKeepalive::new().with_time(KEEPALIVE));
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    tcp
}

pub(super) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_pipeline_buffer_size(WRITE_QUEUE)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn between_two_attempts_is_half_a_second_or_up_to_a_fifth_longer_at_random() {
        let pauses: HashSet<_> = (0..1_000).map(|_| pause()).collect();
        let range = Duration::from_millis(500)..=Duration::from_millis(600);
        for pause in &pauses {
            assert!(range.contains(pause), "{pause:?}");
        }
        let spread = *pauses.iter().max().unwrap() - *pauses.iter().min().unwrap();
        assert!(spread > Duration::from_millis(90), "{spread:?}");
        // Of a thousand ways to scatter.
        assert!(pauses.len() > 500, "{}", pauses.len());
    }
}
