//! `Hook`: makes connections to one server as the application says.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisError;
use redis::aio::MultiplexedConnection;
use tokio::time::timeout;

use super::handshake::{Connected, is_replica};
use super::probe::{Made, Probe};
use crate::error::{StoreError, StoreErrorKind};
use crate::one_line::OneLine;
use crate::store::redis::error::of_connecting;

/// The longest time for a server's answer about its role.
const ROLE_TIMEOUT: Duration = Duration::from_millis(500);

/// Clones are the same hook.
#[derive(Clone)]
pub(in crate::store::redis) struct Hook {
    make: Arc<dyn Fn() -> Making + Send + Sync>,
    /// Whether its servers are asked whether they are replicas.
    pub(super) asks_role: bool,
}

type BoxError = Box<dyn Error + Send + Sync>;
type Making = Pin<Box<dyn Future<Output = Result<MultiplexedConnection, BoxError>> + Send>>;

impl Hook {
    pub(in crate::store::redis) fn new<F, E>(make: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<MultiplexedConnection, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        let make = move || -> Making {
            let making = make();
            Box::pin(async move { making.await.map_err(Into::into) })
        };
        Self {
            make: Arc::new(make),
            asks_role: true,
        }
    }

    /// A connection over which the server has answered, and not to a replica.
    pub(super) async fn connect(&self, probe: &Probe) -> Result<Made, StoreError> {
        let mut made = self.make(probe).await?;
        if !self.asks_role {
            return Ok(made);
        }
        match timeout(ROLE_TIMEOUT, is_replica(&mut made.connection)).await {
            Ok(Ok(false)) => Ok(made),
            Ok(Ok(true)) => Err(StoreError::with_source(
                StoreErrorKind::Unreachable,
                "the connection is to a replica: make one to the master",
            )),
            // A proxy that chooses the server by a command's key refuses HELLO, and may hang up.
            Ok(Err(_)) | Err(_) => self.make(probe).await,
        }
    }

    async fn make(&self, probe: &Probe) -> Result<Made, StoreError> {
        let connection = (self.make)().await.map_err(of_hook)?;
        let connected = Connected {
            connection,
            logged_in: None,
        };
        Made::greeted(connected, probe).await
    }
}

fn of_hook(error: BoxError) -> StoreError {
    let error = match error.downcast::<StoreError>() {
        Ok(error) => return *error,
        Err(error) => error,
    };
    match error.downcast::<RedisError>() {
        Ok(error) => of_connecting(*error),
        Err(error) => {
            let told = OneLine(error).to_string();
            StoreError::with_source(StoreErrorKind::Unreachable, told)
        }
    }
}
