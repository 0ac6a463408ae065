//! `Sentinel`: one Sentinel, asked over a connection that is kept for the next question.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, RedisResult};

use crate::error::StoreError;
use crate::store::redis::connection::handshake::{Connected, Handshake};
use crate::store::redis::error::{of_sentinel, of_time_out};

/// A server as a Sentinel names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis::connection) struct ServerName {
    pub(super) host: String,
    pub(super) port: u16,
}

impl From<(String, u16)> for ServerName {
    fn from((host, port): (String, u16)) -> Self {
        Self { host, port }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

pub(super) struct Sentinel {
    at: ConnectionInfo,
    handshake: Handshake,
    kept: Mutex<Option<Connected>>,
}

impl Sentinel {
    /// # Errors
    ///
    /// If a TLS setting cannot be used.
    pub(super) fn new(at: ConnectionInfo, handshake: &Handshake) -> Result<Self, StoreError> {
        Ok(Self {
            at: handshake.prepare(at)?,
            handshake: handshake.clone(),
            kept: Mutex::default(),
        })
    }

    /// The same, without a connection.
    pub(super) fn anew(&self) -> Self {
        Self {
            at: self.at.clone(),
            handshake: self.handshake.clone(),
            kept: Mutex::default(),
        }
    }

    /// The server that it names as the master of this name; `None` if it knows no such master.
    pub(super) async fn master(
        &self,
        name: &str,
        patience: Duration,
    ) -> Result<Option<ServerName>, StoreError> {
        let error = match tokio::time::timeout(patience, self.query(name)).await {
            Ok(Ok(named)) => return Ok(named.map(ServerName::from)),
            Ok(Err(error)) => of_sentinel(error),
            Err(elapsed) => of_time_out(elapsed),
        };
        *self.lock() = None;
        Err(self.naming(error))
    }

    /// The error with the Sentinel's address.
    pub(super) fn naming(&self, error: StoreError) -> StoreError {
        error.of_server(self.at.addr())
    }

    async fn query(&self, name: &str) -> RedisResult<Option<(String, u16)>> {
        if let Some(kept) = self.kept()
            && let Ok(named) = ask(kept, name).await
        {
            return Ok(named);
        }
        // It may be closed, or logged in with an old password.
        let connected = self.handshake.connect(&self.at).await?;
        let named = ask(connected.connection.clone(), name).await?;
        *self.lock() = Some(connected);
        Ok(named)
    }

    fn kept(&self) -> Option<MultiplexedConnection> {
        Some(self.lock().as_ref()?.connection.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<Connected>> {
        // No step under the lock leaves anything half done.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn ask(
    mut connection: MultiplexedConnection,
    name: &str,
) -> RedisResult<Option<(String, u16)>> {
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    question.query_async(&mut connection).await
}
