//! The Redis server of a run, and its own account of its work.

use std::env;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::io::tcp::TcpSettings;
use redis::{ConnectionInfo, IntoConnectionInfo};
use tokio::runtime::Runtime;

use crate::clock::process_cpu;
use crate::load::{Decide, Load, warm_up};
use crate::round::{Contestant, Round};

#[path = "../../tests/support/redis.rs"]
#[allow(dead_code, unreachable_pub)]
mod support;

/// Names the file of redis-cell's module, which the script `redis-cell` builds.
const MODULE: &str = "REDIS_CELL";
/// The most time that a contestant gets to see all keys once.
const WARM_UP: Duration = Duration::from_secs(3);

pub struct RedisServer {
    server: support::Server,
    pub has_module: bool,
}

impl RedisServer {
    pub fn start() -> Self {
        let module = env::var(MODULE).ok();
        let options = module.as_deref().map(|file| ["--loadmodule", file]);
        let server = match &options {
            Some(options) => support::Server::start_with(options),
            None => support::Server::start(),
        };
        Self {
            server,
            has_module: module.is_some(),
        }
    }

    pub fn url(&self) -> String {
        self.server.url()
    }

    pub fn socket(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.server.port()).into()
    }

    pub fn address(&self) -> ConnectionInfo {
        address(&self.url())
    }

    pub async fn store(&self) -> tower_throttle::RedisStore {
        self.server.store().await
    }

    /// A store with keys of its own.
    pub async fn store_with_prefix(&self, prefix: &str) -> tower_throttle::RedisStore {
        let store = self.server.builder().prefix(prefix).connect().await;
        store.expect("the server is there")
    }

    /// A contestant that asks this server under a load.
    pub fn contestant<'a>(
        &'a self,
        name: &'static str,
        runtime: &'a Runtime,
        decider: &Arc<impl Decide>,
        load: Load,
    ) -> Contestant<'a> {
        let decider = Arc::clone(decider);
        let ask = move || runtime.block_on(load.on(&decider)).into();
        Contestant::new(name, move || self.round(&ask))
    }

    /// Adds what a round took to what was asked in it.
    pub fn round(&self, ask: impl FnOnce() -> Round) -> Round {
        let (client, server) = (process_cpu(), self.cpu());
        let started = Instant::now();
        let asked = ask();
        Round {
            elapsed: started.elapsed(),
            client_cpu: process_cpu() - client,
            server_cpu: self.cpu() - server,
            ..asked
        }
    }

    /// Makes a decider ask once about each key.
    pub fn warm_up(&self, runtime: &Runtime, decider: &Arc<impl Decide>, keys: u64) {
        runtime.block_on(warm_up(decider, keys, WARM_UP));
    }

    /// The processor time that the server has used.
    pub fn cpu(&self) -> Duration {
        let told = self.server.info("cpu");
        let seconds = |name: &str| -> f64 {
            let value = told.lines().find_map(|line| line.strip_prefix(name));
            value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
        };
        Duration::from_secs_f64(seconds("used_cpu_user:") + seconds("used_cpu_sys:"))
    }

    /// How many scripts were run since the server started.
    pub fn scripts_run(&self) -> u64 {
        self.server.calls("evalsha") + self.server.calls("eval")
    }

    pub fn query<T: redis::FromRedisValue>(&self, words: impl redis::ToRedisArgs) -> T {
        self.server.query(words)
    }
}

/// How to connect, for clients that can be configured: small packets are sent at once.
pub fn address(url: &str) -> ConnectionInfo {
    let address = url.into_connection_info().expect("a sound URL");
    address.set_tcp_settings(TcpSettings::default().set_nodelay(true))
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The tests' server looks for keys without expiry at its end, and those of others may have
        // none.
        self.query::<()>("FLUSHALL");
    }
}
