//! `Made`: a connection over which the server has answered.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisResult, Value};
use tokio::time::Instant;

use super::client::RESPONSE_TIMEOUT;
use super::credentials::LoggedIn;
use super::handshake::Connected;
use super::probe::Probe;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::{kind, of_connecting};

/// A connection to keep, over which the server has answered.
pub(super) struct Made {
    pub(super) connection: MultiplexedConnection,
    /// Keeps it logged in with credentials that may change.
    pub(super) logged_in: Option<LoggedIn>,
    /// How long the answer took.
    pub(super) trip: Duration,
}

impl Made {
    /// Waits for the server's first answer.
    pub(super) async fn greeted(connected: Connected, probe: &Probe) -> Result<Self, StoreError> {
        let Connected {
            mut connection,
            logged_in,
        } = connected;
        // Also for a hook: a reply that its client does not wait for would look like an
        // answer.
        connection.set_response_timeout(RESPONSE_TIMEOUT);
        let start = Instant::now();
        greet(&mut connection, probe).await.map_err(of_connecting)?;
        Ok(Self {
            connection,
            logged_in,
            trip: start.elapsed(),
        })
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
