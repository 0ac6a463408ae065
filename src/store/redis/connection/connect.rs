//! Makes connections: to a server, to the master that Sentinel names, or by a hook of the
//! application's. A connection is made once the server has answered over it.

use std::sync::Arc;

use redis::ConnectionInfo;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{CONNECT_TIMEOUT, pause};
use super::handshake::Handshake;
use super::hook::Hook;
use super::probe::{Made, Probe};
use super::sentinel::{Master, Masters};
use super::tls::{choose_cryptography, is_over_tls};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::{of_connecting, of_time_out};

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

    /// Makes a connection to keep, as soon as possible. Returns it with its server, if Sentinels
    /// named that, and the time when the last attempt began.
    ///
    /// An attempt may hang because of a problem that is over by now, for example a network that
    /// lost its first packets. So others are started beside it, and the first connection is used.
    pub(super) async fn connect_soon(
        self: Arc<Self>,
        probe: Arc<Probe>,
    ) -> (Instant, Result<(Made, Option<Master>), StoreError>) {
        let mut attempts = JoinSet::new();
        loop {
            let start = Instant::now();
            let (connector, probe) = (Arc::clone(&self), Arc::clone(&probe));
            attempts.spawn(async move { connector.connect(&probe).await });
            match tokio::time::timeout_at(start + pause(), attempts.join_next()).await {
                Ok(Some(Ok(made))) => return (start, made),
                Ok(Some(Err(gone))) => {
                    let error = StoreError::with_source(StoreErrorKind::Unreachable, gone);
                    return (start, Err(error));
                }
                // There is at least one.
                Ok(None) | Err(_) => {}
            }
        }
    }

    /// Makes a connection to keep. It has its own timeout, as a hook may have none.
    async fn connect(&self, probe: &Probe) -> Result<(Made, Option<Master>), StoreError> {
        let made = match tokio::time::timeout(CONNECT_TIMEOUT, self.make(probe)).await {
            Ok(made) => made,
            Err(elapsed) => Err(of_time_out(elapsed)),
        };
        made.map_err(|error| self.naming(error))
    }

    /// Adds the server's name to the error, unless it has one. The server of a hook is unknown.
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

    async fn make(&self, probe: &Probe) -> Result<(Made, Option<Master>), StoreError> {
        if self.is_over_tls() {
            choose_cryptography();
        }
        match self {
            Self::Server { server, handshake } => {
                let connected = handshake.connect(server).await.map_err(of_connecting)?;
                Ok((Made::greeted(connected, probe).await?, None))
            }
            Self::Sentinel(masters) => {
                let (made, server) = masters.connect(probe).await?;
                Ok((made, Some(Master::new(masters, server))))
            }
            Self::Hook(hook) => Ok((hook.connect(probe).await?, None)),
        }
    }
}
