//! Finds the master. Every connection attempt asks Sentinel, so that the store leaves a demoted master.
//! While there is a connection, Sentinels are also asked in the background (`succession`), so that the
//! store leaves a replaced master before it is demoted.
//!
//! A Sentinel that is cut off from the others, or was started from an old file, keeps naming the former
//! master. So a connection attempt asks the others, too, before it fails.
//!
//! The client library could ask Sentinels, too. But it calls `SENTINEL MASTERS`; it makes a connection
//! of its own to ask each server for its role, by commands that need further permissions; and it does
//! not notice a new master while the former one answers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo};

use self::asked::{Sentinel, ServerName};
use super::address::Sentinels;
use super::client::CONNECT_TIMEOUT;
use super::handshake::{Handshake, is_replica};
use super::probe::{Made, Probe};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::error::of_connecting;

mod asked;
mod succession;

pub(super) use self::succession::Master;

/// How long a Sentinel may take before the next one is asked. One that hangs must not take all the
/// time for connecting, unless it is the last one.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(500);

/// Finds the master.
pub(in crate::store::redis) struct Masters {
    sentinels: Vec<Sentinel>,
    /// The Sentinel that the next attempt asks first.
    first: AtomicUsize,
    name: String,
    login: RedisConnectionInfo,
    is_tls: bool,
    /// That with the master. Sentinels have users of their own.
    handshake: Handshake,
}

impl Masters {
    /// # Errors
    ///
    /// If a TLS setting cannot be used.
    pub(in crate::store::redis) fn new(
        named: Sentinels,
        handshake: Handshake,
        sentinels_handshake: Handshake,
    ) -> Result<Self, StoreError> {
        let sentinels = named.sentinels.into_iter();
        let sentinels = sentinels.map(|sentinel| Sentinel::new(sentinel, &sentinels_handshake));
        Ok(Self {
            sentinels: sentinels.collect::<Result<_, _>>()?,
            first: AtomicUsize::new(0),
            name: named.master,
            login: named.login,
            is_tls: named.is_tls,
            handshake,
        })
    }

    /// The same, without connections: those belong to a runtime.
    pub(super) fn anew(&self) -> Self {
        Self {
            sentinels: self.sentinels.iter().map(Sentinel::anew).collect(),
            first: AtomicUsize::new(0),
            name: self.name.clone(),
            login: self.login.clone(),
            is_tls: self.is_tls,
            handshake: self.handshake.clone(),
        }
    }

    /// Whether the Sentinels, and so the master, use TLS.
    pub(super) fn are_over_tls(&self) -> bool {
        self.is_tls
    }

    /// Connects to the first server that a Sentinel names, that can be reached and that is not a
    /// replica. Connects to none twice, however many Sentinels name it.
    pub(super) async fn connect(&self, probe: &Probe) -> Result<(Made, ServerName), StoreError> {
        // Concurrent attempts begin with another Sentinel, as the server that this one names may
        // hang.
        let first = self.first.fetch_add(1, Ordering::Relaxed);
        let mut tried = Vec::new();
        let (mut of_sentinels, mut of_servers) = (None, None);
        for nth in 0..self.sentinels.len() {
            let place = first.wrapping_add(nth) % self.sentinels.len();
            let is_last = nth + 1 == self.sentinels.len() && of_servers.is_none();
            let patience = match is_last {
                true => CONNECT_TIMEOUT,
                false => SENTINEL_TIMEOUT,
            };
            let named = match self.ask(&self.sentinels[place], patience).await {
                Ok(named) => named,
                Err(error) => {
                    of_sentinels = more_helpful(of_sentinels, error);
                    continue;
                }
            };
            if tried.contains(&named) {
                continue;
            }
            match self.connect_to(&named, probe).await {
                Ok(made) => {
                    self.first.store(place, Ordering::Relaxed);
                    return Ok((made, named));
                }
                Err(error) => of_servers = more_helpful(of_servers, error.of_server(&named)),
            }
            tried.push(named);
        }
        let why = of_servers.or(of_sentinels);
        Err(why.unwrap_or(StoreError::new(StoreErrorKind::Configuration)))
    }

    /// The server that this Sentinel names.
    async fn ask(&self, sentinel: &Sentinel, patience: Duration) -> Result<ServerName, StoreError> {
        let named = sentinel.master(&self.name, patience).await?;
        named.ok_or_else(|| sentinel.naming(self.unknown()))
    }

    async fn connect_to(&self, server: &ServerName, probe: &Probe) -> Result<Made, StoreError> {
        let ServerName { host, port } = server.clone();
        let server_at = self.server_at(host, port)?;
        let connected = self.handshake.connect(&server_at).await;
        let mut connected = connected.map_err(of_connecting)?;
        match is_replica(&mut connected.connection).await {
            Ok(false) => Made::greeted(connected, probe).await,
            Ok(true) => Err(StoreError::with_source(
                StoreErrorKind::Unreachable,
                "a sentinel names a replica: check with SENTINEL CKQUORUM whether the sentinels see \
                each other",
            )),
            Err(error) => Err(of_connecting(error)),
        }
    }

    fn server_at(&self, host: String, port: u16) -> Result<ConnectionInfo, StoreError> {
        let address = match self.is_tls {
            false => ConnectionAddr::Tcp(host, port),
            true => ConnectionAddr::TcpTls {
                host,
                port,
                insecure: false,
                tls_params: None,
            },
        };
        let master = redis::IntoConnectionInfo::into_connection_info(address)
            .map_err(of_connecting)?
            .set_redis_settings(self.login.clone());
        self.handshake.prepare(master)
    }

    fn unknown(&self) -> StoreError {
        StoreError::with_source(
            StoreErrorKind::Configuration,
            format!(
                "the sentinels know no master named {:?}: correct the name at the end of the URL",
                self.name
            ),
        )
    }
}

/// Their name: Sentinel names another server after each failover.
impl fmt::Display for Masters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "master {:?}", self.name)
    }
}

/// The more helpful of two errors: that a server cannot be reached is reported only if there is no
/// other error.
fn more_helpful(before: Option<StoreError>, now: StoreError) -> Option<StoreError> {
    let is_time_out = |error: &StoreError| error.kind() == StoreErrorKind::Unreachable;
    match before {
        Some(before) if !is_time_out(&before) || is_time_out(&now) => Some(before),
        _ => Some(now),
    }
}
