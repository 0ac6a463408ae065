//! `Sentinel`: one Sentinel, asked over a connection that is kept for the next question.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionInfo, RedisResult};
use tokio::runtime::{Handle, Id};

use super::ServerName;
use crate::error::StoreError;
use crate::store::redis::connection::connect::{config, with_our_settings};
use crate::store::redis::error::{of_sentinel, of_silence};

pub(super) struct Sentinel {
    at: ConnectionInfo,
    /// With the runtime that serves it: another one might wait for one that is not driven.
    kept: Mutex<Option<(Id, MultiplexedConnection)>>,
}

impl Sentinel {
    pub(super) fn new(at: ConnectionInfo) -> Self {
        Self {
            at: with_our_settings(at),
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
            Err(elapsed) => of_silence(elapsed),
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
        // It may have been closed since, or have logged in with a password that was changed.
        let connecting = Client::open(self.at.clone())?;
        let connection = connecting
            .get_multiplexed_async_connection_with_config(&config())
            .await?;
        let named = ask(connection.clone(), name).await?;
        *self.lock() = Some((Handle::current().id(), connection));
        Ok(named)
    }

    fn kept(&self) -> Option<MultiplexedConnection> {
        let kept = self.lock();
        let (runtime, connection) = kept.as_ref()?;
        (*runtime == Handle::current().id()).then(|| connection.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Id, MultiplexedConnection)>> {
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
