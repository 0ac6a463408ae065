//! `Probe`: the commands that find out whether a server answers. Both name a key, since a proxy that
//! chooses the server by the key refuses a command without one, or hangs up on it. `Made`: a connection
//! over which the server has answered.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisResult, Value};
use tokio::time::Instant;

use super::client::RESPONSE_TIMEOUT;
use super::credentials::LoggedIn;
use super::handshake::Connected;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::{kind, of_connecting};
use crate::store::redis::keys::Prefix;

pub(super) struct Probe {
    prefix: Prefix,
    /// The tag of the key, which decides where in a cluster it is.
    tag: Mutex<String>,
}

impl Probe {
    pub(super) fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            tag: Mutex::new("probe".to_owned()),
        }
    }

    /// From now on the key has this tag.
    pub(super) fn set_tag(&self, tag: String) {
        *self.tag.lock().unwrap_or_else(PoisonError::into_inner) = tag;
    }

    /// A script that does nothing. A PING would not do: a server answers it even while scripts wait.
    pub(super) fn script(&self) -> Cmd {
        let mut script = redis::cmd("EVAL");
        script.arg("return 1").arg(1).arg(self.key());
        script
    }

    /// The first command on a connection. Every server answers it after the login.
    pub(super) fn greeting(&self) -> Cmd {
        let mut read = redis::cmd("GET");
        read.arg(self.key());
        read
    }

    fn key(&self) -> String {
        let tag = self.tag.lock().unwrap_or_else(PoisonError::into_inner);
        self.prefix.own_key(&tag)
    }
}

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
        // Also for a hook: if its client stopped waiting sooner, that would look like an answer.
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

/// Waits for the server's first answer, since a proxy may accept connections without a server behind
/// it. An error reply is an answer, too, unless the server rejects this client.
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
