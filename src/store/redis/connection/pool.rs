//! Hooks that take connections from deadpool-redis.

use std::time::Duration;

use deadpool_redis::{Connection, Pool, PoolError, Status, TimeoutType};
use tokio::time::timeout;

use super::client::CONNECT_TIMEOUT;
use super::hook::Hook;
use crate::error::{StoreError, StoreErrorKind};
use crate::one_line::OneLine;
use crate::store::redis::error::{of_connecting, of_time_out};

/// A pool may have no timeout of its own. This one ends before that of the connection attempt, which
/// would not know why.
const POOL_TIMEOUT: Duration = CONNECT_TIMEOUT.saturating_sub(Duration::from_millis(100));

impl Hook {
    /// Its server is not asked for its role: the pool leads to one server by its address, or to a
    /// proxy that may refuse the question.
    pub(in crate::store::redis) fn from_pool(pool: Pool) -> Self {
        let mut hook = Self::new(move || {
            let pool = pool.clone();
            async move {
                let connection = from_pool(pool.get(), || pool.status()).await?;
                Ok::<_, StoreError>(Connection::take(connection))
            }
        });
        hook.asks_role = false;
        hook
    }

    /// A pool that asks Sentinel may hand out connections to a master that was demoted since.
    #[cfg(feature = "deadpool-sentinel")]
    pub(in crate::store::redis) fn from_sentinel_pool(
        pool: deadpool_redis::sentinel::Pool,
    ) -> Self {
        let mut hook = Self::new(move || of_master(pool.clone()));
        hook.asks_role = false;
        hook
    }
}

/// Tries all connections that the pool has kept, and one new one: a flood of them would lead to the
/// same server.
#[cfg(feature = "deadpool-sentinel")]
async fn of_master(
    pool: deadpool_redis::sentinel::Pool,
) -> Result<redis::aio::MultiplexedConnection, StoreError> {
    use super::handshake::is_replica;
    use crate::store::redis::error::of_lost_connection;

    for _ in 0..=pool.status().available {
        let connection = from_pool(pool.get(), || pool.status()).await?;
        let mut connection = deadpool_redis::sentinel::Connection::take(connection);
        let is_replica = is_replica(&mut connection).await;
        if !is_replica.map_err(of_lost_connection)? {
            return Ok(connection);
        }
    }
    Err(StoreError::with_source(
        StoreErrorKind::Unreachable,
        "the pool has only connections to replicas",
    ))
}

async fn from_pool<C>(
    getting: impl Future<Output = Result<C, PoolError>>,
    status: impl Fn() -> Status,
) -> Result<C, StoreError> {
    match timeout(POOL_TIMEOUT, getting).await {
        Ok(got) => got.map_err(of_pool),
        Err(elapsed) => {
            let status = status();
            // That says nothing about the server.
            let is_used_up = status.available == 0 && status.size == status.max_size;
            Err(match is_used_up {
                true => StoreError::with_source(
                    StoreErrorKind::Unreachable,
                    "all connections of the pool are in use",
                ),
                false => of_time_out(elapsed),
            })
        }
    }
}

fn of_pool(error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => of_connecting(error),
        error @ PoolError::Timeout(TimeoutType::Create) => of_time_out(error),
        error => StoreError::with_source(StoreErrorKind::Unreachable, OneLine(error)),
    }
}
