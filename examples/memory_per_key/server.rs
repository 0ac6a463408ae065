//! The memory of a key in Redis: what the server reports for the key, and what it has allocated since
//! it had no keys.

use std::env;
use std::error::Error;
use std::time::Duration;

use redis::{Cmd, Connection, FromRedisValue, RedisResult, cmd};
use tower_throttle::store::Action;
use tower_throttle::{Clock as _, ManualClock, Micros, RedisStore, SystemClock};

use crate::fill::{act, fill};
use crate::limits::{LIMITS, Measured, Use, WINDOW};

/// As long as the prefix that stores have by default.
const PREFIX: &str = "measured";

pub(crate) struct Server {
    url: String,
    connection: Connection,
    /// The bytes allocated without any keys.
    empty: u64,
}

/// The bytes per key.
pub(crate) struct Bytes {
    /// `MEMORY USAGE`: its name, its value and its entry in the dictionary of keys.
    pub(crate) usage: u64,
    /// With its expiry and its share of the dictionaries' tables.
    pub(crate) all: u64,
}

impl Server {
    pub(crate) fn connect() -> Result<Self, Box<dyn Error>> {
        let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".to_owned());
        let connect = || redis::Client::open(&url[..])?.get_connection();
        let connection = connect().map_err(|error| {
            // Not the URL, which may hold a password.
            format!(
                "needs a Redis or Valkey server at REDIS_URL, or at redis://127.0.0.1:6379 where \
                 that is not set: {error}"
            )
        })?;
        let mut server = Self {
            url,
            connection,
            empty: 0,
        };
        match server.keys()? {
            0 => Ok(server),
            keys => Err(format!("needs a server without keys, this one has {keys}").into()),
        }
    }

    /// Makes the server allocate beforehand what it needs once for each command.
    pub(crate) async fn warm_up(&mut self) -> Result<(), Box<dyn Error>> {
        for limit in LIMITS {
            for used in limit.uses() {
                self.bytes_per_key(&limit, used, 1).await?;
            }
        }
        self.empty = self.used()?;
        Ok(())
    }

    pub(crate) async fn bytes_per_key(
        &mut self,
        limit: &Measured,
        used: Use,
        keys: u64,
    ) -> Result<Bytes, Box<dyn Error>> {
        let clock = clock();
        let store = self.store(&clock).await?;
        fill(&store, &clock, limit, used, keys).await?;
        self.close(store).await?;
        if self.keys()? != keys {
            return Err("the keys are gone, or others write to this server".into());
        }
        let all = self.used()?.saturating_sub(self.empty).div_ceil(keys);
        let key: String = self.query(&cmd("RANDOMKEY"))?;
        let usage = self.query(cmd("MEMORY").arg("USAGE").arg(key).arg("SAMPLES").arg(0))?;

        let store = self.store(&clock).await?;
        act(&store, limit, Action::Reset, keys).await?;
        self.close(store).await?;
        Ok(Bytes { usage, all })
    }

    /// The server's name and version.
    pub(crate) fn version(&mut self) -> Result<String, Box<dyn Error>> {
        let info: String = self.query(&cmd("INFO"))?;
        let version = match field(info.lines(), "valkey_version:") {
            Ok(version) => format!("Valkey {version}"),
            Err(_) => format!("Redis {}", field(info.lines(), "redis_version:")?),
        };
        let allocator = field(info.lines(), "mem_allocator:")?;
        Ok(format!("{version}, {allocator}"))
    }

    async fn store(&self, clock: &ManualClock) -> Result<RedisStore, Box<dyn Error>> {
        let store = RedisStore::builder(&self.url).prefix(PREFIX);
        Ok(store.clock_for_tests(clock.clone()).connect().await?)
    }

    /// Closes the store's connection, as the memory of a client is not that of keys.
    async fn close(&mut self, store: RedisStore) -> Result<(), Box<dyn Error>> {
        drop(store);
        for _ in 0..1_000 {
            let info: String = self.query(&cmd("INFO"))?;
            if field(info.lines(), "connected_clients:")? == "1" {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Err("needs a server that nobody else uses, this one has other clients".into())
    }

    fn keys(&mut self) -> RedisResult<u64> {
        self.query(&cmd("DBSIZE"))
    }

    /// The bytes allocated by the server, without this connection, whose buffers come and go.
    fn used(&mut self) -> Result<u64, Box<dyn Error>> {
        // The log of slow commands grows whenever this machine is busy.
        self.query::<()>(cmd("SLOWLOG").arg("RESET"))?;
        // Some servers count what scripts have left behind and their interpreter has not yet freed.
        self.query::<()>(cmd("SCRIPT").arg("FLUSH").arg("SYNC"))?;
        let client: String = self.query(cmd("CLIENT").arg("INFO"))?;
        let own: u64 = field(client.split(' '), "tot-mem=")?.parse()?;
        let info: String = self.query(&cmd("INFO"))?;
        let used: u64 = field(info.lines(), "used_memory:")?.parse()?;
        Ok(used.saturating_sub(own))
    }

    fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        command.query(&mut self.connection)
    }
}

/// The value of a field that the server reports.
fn field<'a>(mut fields: impl Iterator<Item = &'a str>, name: &str) -> Result<&'a str, String> {
    let value = fields.find_map(|field| field.strip_prefix(name));
    value.ok_or_else(|| format!("the server does not say {name}"))
}

/// A clock ahead of the server's, by so little that keys expire today even if this program is
/// stopped. It is in the middle of an hour and of a slice, so that the permits of an hour are spread
/// over as many windows and slices as possible.
fn clock() -> ManualClock {
    let now = SystemClock.now().get();
    let window = Micros::from(WINDOW).get();
    let hours = now / window + 2;
    ManualClock::at(Micros::new(hours * window + window * 55 / 100))
}
