//! Makes connections: to a server, to the master that Sentinel names, or by a hook of the
//! application's. A connection is made once the server has answered over it.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::{TcpSettings, socket2};
use redis::{AsyncConnectionConfig, ConnectionInfo, RedisResult, Value};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::credentials::LoggedIn;
use super::handshake::{Connected, Handshake};
use super::hook::Hook;
use super::probe::Probe;
use super::sentinel::{Master, Masters};
use super::tls::{choose_cryptography, is_over_tls};
use crate::error::{StoreError, StoreErrorKind};
use crate::random::random;
use crate::store::redis::error::{kind, of_connecting, of_silence};
use crate::store::redis::in_flight::InFlight;

/// How long a connection attempt may take. That is far longer than a decision, which waits for it
/// only until its own deadline.
pub(in crate::store::redis) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between the starts of two attempts: a server that is down, or refuses, gets at most two
/// a second from each process.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// After this time the client stops waiting for a reply; no decision has a later deadline.
pub(in crate::store::redis) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection breaks if sent data stays unacknowledged for this long.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often an idle connection is probed, so that middleboxes do not forget it.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How many questions may wait in the client to be written: as many as a store admits by default.
/// Beyond that, questions wait for room.
const WRITE_QUEUE: usize = InFlight::USUAL;

/// Makes connections.
pub(in crate::store::redis) enum Connector {
    /// To one server.
    Server {
        server: Box<ConnectionInfo>,
        handshake: Handshake,
    },
    /// To the master that Sentinel names.
    Sentinel(Arc<Masters>),
    /// To the server of the application's connections.
    Hook(Hook),
}

/// A connection to keep, over which the server has answered.
pub(super) struct Made {
    pub(super) connection: MultiplexedConnection,
    /// Keeps it logged in with credentials that may change.
    pub(super) logged_in: Option<LoggedIn>,
    /// How long the answer took.
    pub(super) trip: Duration,
    /// The server, if Sentinels have named it.
    pub(super) master: Option<Master>,
}

impl Made {
    /// Waits for the server's first answer.
    pub(super) async fn greeted(
        connected: Connected,
        probe: &Probe,
        master: Option<Master>,
    ) -> Result<Self, StoreError> {
        let Connected {
            mut connection,
            logged_in,
        } = connected;
        // Also for a hook: a reply that its client does not wait for would look like an
        // answer.
        connection.set_response_timeout(RESPONSE_TIMEOUT);
        let begun = Instant::now();
        greet(&mut connection, probe).await.map_err(of_connecting)?;
        Ok(Self {
            connection,
            logged_in,
            trip: begun.elapsed(),
            master,
        })
    }
}

impl Connector {
    /// # Errors
    ///
    /// If a TLS setting cannot be used.
    pub(in crate::store::redis) fn to(
        server: ConnectionInfo,
        handshake: &Handshake,
    ) -> Result<Self, StoreError> {
        Ok(Self::Server {
            server: Box::new(handshake.prepare(server)?),
            handshake: handshake.clone(),
        })
    }

    /// The same, without connections of its own: those belong to a runtime.
    pub(in crate::store::redis) fn anew(&self) -> Self {
        match self {
            Self::Server { server, handshake } => Self::Server {
                server: server.clone(),
                handshake: handshake.clone(),
            },
            Self::Sentinel(masters) => Self::Sentinel(Arc::new(masters.anew())),
            Self::Hook(hook) => Self::Hook(hook.clone()),
        }
    }

    /// Makes a connection to keep, as soon as possible. Also returns when the last attempt began.
    ///
    /// An attempt may hang because of a problem that is over by now, for example a network that
    /// lost its first packets. So others are started beside it, and the first connection is used.
    pub(super) async fn connect_soon(
        self: Arc<Self>,
        probe: Arc<Probe>,
    ) -> (Instant, Result<Made, StoreError>) {
        let mut attempts = JoinSet::new();
        loop {
            let begun = Instant::now();
            let (connector, probe) = (Arc::clone(&self), Arc::clone(&probe));
            attempts.spawn(async move { connector.connect(&probe).await });
            match tokio::time::timeout_at(begun + pause(), attempts.join_next()).await {
                Ok(Some(Ok(made))) => return (begun, made),
                Ok(Some(Err(gone))) => {
                    let error = StoreError::with_source(StoreErrorKind::Unreachable, gone);
                    return (begun, Err(error));
                }
                // There is at least one.
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Makes a connection to keep. It has its own timeout, as a hook may have none.
    async fn connect(&self, probe: &Probe) -> Result<Made, StoreError> {
        let made = match tokio::time::timeout(CONNECT_TIMEOUT, self.make(probe)).await {
            Ok(made) => made,
            Err(elapsed) => Err(of_silence(elapsed)),
        };
        made.map_err(|error| self.naming(error))
    }

    /// The error with the server's name, unless it names one already. A hook does not tell where it
    /// connects to.
    pub(super) fn naming(&self, error: StoreError) -> StoreError {
        match self {
            Self::Server { server, .. } => error.of_server(server.addr()),
            Self::Sentinel(masters) => error.of_server(masters),
            Self::Hook(_) => error,
        }
    }

    /// A hook may use TLS, too, but its cryptography is up to the application, like its other
    /// settings.
    fn is_over_tls(&self) -> bool {
        match self {
            Self::Server { server, .. } => is_over_tls(server.addr()),
            Self::Sentinel(masters) => masters.are_over_tls(),
            Self::Hook(_) => false,
        }
    }

    async fn make(&self, probe: &Probe) -> Result<Made, StoreError> {
        if self.is_over_tls() {
            choose_cryptography();
        }
        match self {
            Self::Server { server, handshake } => {
                let connected = handshake.connect(server).await.map_err(of_connecting)?;
                Made::greeted(connected, probe, None).await
            }
            Self::Sentinel(masters) => Masters::connect(masters, probe).await,
            Self::Hook(hook) => hook.connect(probe).await,
        }
    }
}

/// Waits for the server's first answer: whatever accepts connections may have no server behind it.
/// What the server says is its answer to questions, too, unless it turns this client away.
async fn greet(connection: &mut MultiplexedConnection, probe: &Probe) -> RedisResult<()> {
    match connection.send_packed_command(&probe.greeting()).await? {
        Value::ServerError(error) => {
            let error = error.into();
            match kind(&error) {
                StoreErrorKind::Unreachable | StoreErrorKind::BadReply => Err(error),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// [`RECONNECT_PAUSE`], or up to a fifth longer, so that a fleet that lost its server at one moment
/// does not come back all at once.
pub(in crate::store::redis) fn pause() -> Duration {
    let scatter = random() % 1_000;
    RECONNECT_PAUSE + RECONNECT_PAUSE / 5_000 * scatter as u32
}

/// Without `CLIENT SETINFO`, which some proxies hang up on and some servers refuse: nothing but the
/// login and the database is told before the first question.
pub(super) fn with_our_settings(server: ConnectionInfo) -> ConnectionInfo {
    let login = server.redis_settings().clone().set_skip_set_lib_name();
    server
        .set_redis_settings(login)
        .set_tcp_settings(tcp_settings())
}

fn tcp_settings() -> TcpSettings {
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
        // At least half of the pauses differ.
        assert!(pauses.len() > 500, "{}", pauses.len());
    }
}
