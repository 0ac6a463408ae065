//! Which server is the master: Sentinel is asked anew for every connection, so that a master that
//! was demoted is left for its successor.
//!
//! The master is not asked for its role: the first script that writes learns it, from an error that
//! says that nothing ran.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisResult};

use super::address::Sentinels;
use super::connect::{config, tcp_settings};
use super::tls::Certificates;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::{of_connecting, of_sentinel, of_silence};

/// How long one Sentinel may take before the next is asked; a server that hangs is not to take all
/// the time there is for connecting.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(500);

/// Finds the master.
pub(in crate::store::redis) struct Masters {
    sentinels: Vec<ConnectionInfo>,
    name: String,
    login: RedisConnectionInfo,
    /// The certificates for the master, if it is spoken to over TLS.
    tls: Option<Certificates>,
}

impl Masters {
    /// # Errors
    ///
    /// When the certificates cannot be read.
    pub(in crate::store::redis) fn new(
        named: Sentinels,
        certificates: &Certificates,
    ) -> Result<Self, StoreError> {
        let sentinels = named.sentinels.into_iter();
        let sentinels = sentinels.map(|sentinel| certificates.apply(sentinel));
        Ok(Self {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            name: named.master,
            login: named.login,
            tls: named.is_tls.then(|| certificates.clone()),
        })
    }

    /// And so are the Sentinels.
    pub(super) fn are_over_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) async fn connect(&self) -> Result<MultiplexedConnection, StoreError> {
        let master = self.find().await?;
        let client = Client::open(master).map_err(of_connecting)?;
        client
            .get_multiplexed_async_connection_with_config(&config())
            .await
            .map_err(of_connecting)
    }

    /// The master, as the first Sentinel says that gives an answer.
    async fn find(&self) -> Result<ConnectionInfo, StoreError> {
        let mut why = None;
        for sentinel in &self.sentinels {
            match tokio::time::timeout(SENTINEL_TIMEOUT, self.ask(sentinel)).await {
                Ok(Ok(Some((host, port)))) => return self.master_at(host, port),
                Ok(Ok(None)) => why = Some(self.unknown()),
                Ok(Err(error)) => why = why.or(Some(of_sentinel(error))),
                Err(elapsed) => why = why.or(Some(of_silence(elapsed))),
            }
        }
        Err(why.unwrap_or(StoreError::new(StoreErrorKind::Configuration)))
    }

    async fn ask(&self, sentinel: &ConnectionInfo) -> RedisResult<Option<(String, u16)>> {
        let sentinel = sentinel.clone().set_tcp_settings(tcp_settings());
        let mut connection = Client::open(sentinel)?
            .get_multiplexed_async_connection_with_config(&config())
            .await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        question.query_async(&mut connection).await
    }

    fn master_at(&self, host: String, port: u16) -> Result<ConnectionInfo, StoreError> {
        let address = match self.tls {
            None => ConnectionAddr::Tcp(host, port),
            Some(_) => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
        };
        let master = redis::IntoConnectionInfo::into_connection_info(address)
            .map_err(of_connecting)?
            .set_redis_settings(self.login.clone())
            .set_tcp_settings(tcp_settings());
        match &self.tls {
            None => Ok(master),
            Some(certificates) => certificates.apply(master),
        }
    }

    fn unknown(&self) -> StoreError {
        StoreError::with_source(
            StoreErrorKind::Configuration,
            format!(
                "the sentinels know no master named {:?}: see the name at the end of the URL",
                self.name
            ),
        )
    }
}

/// A connection of a user's pool, which hands out what it has: also connections to a master that
/// was demoted since.
#[cfg(feature = "deadpool-sentinel")]
pub(super) async fn from_pool(
    pool: &deadpool_redis::sentinel::Pool,
) -> Result<MultiplexedConnection, StoreError> {
    use crate::store::redis::error::of_lost_connection;

    // All that the pool may have kept, and a new one.
    for _ in 0..=pool.status().max_size {
        let connection = pool.get().await.map_err(super::connect::of_pool)?;
        let mut connection = deadpool_redis::sentinel::Connection::take(connection);
        let role: redis::Value = redis::cmd("ROLE")
            .query_async(&mut connection)
            .await
            .map_err(of_lost_connection)?;
        if is_master(&role) {
            return Ok(connection);
        }
    }
    Err(StoreError::with_source(
        StoreErrorKind::Unreachable,
        "the pool has only connections to replicas",
    ))
}

#[cfg(feature = "deadpool-sentinel")]
fn is_master(role: &redis::Value) -> bool {
    let redis::Value::Array(parts) = role else {
        return false;
    };
    matches!(parts.first(), Some(redis::Value::BulkString(name)) if name == b"master")
}
