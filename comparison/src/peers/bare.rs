//! A bare client: one command for each decision, pipelined over one connection, and nothing else.
//! No limiter over Redis can do with less.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionInfo, Value};

use super::ours::Ours;
use super::{Allowance, name_of};
use crate::load::Decide;
use crate::redis_server::{RedisServer, address};

pub const TEXTBOOK: &str = include_str!("textbook.lua");
/// The least that a script call can be.
pub const EMPTY: &str = "return 1";

pub struct Bare {
    connection: MultiplexedConnection,
    before_key: Vec<Vec<u8>>,
    key: Arc<dyn Fn(u64) -> String + Send + Sync>,
    after_key: Vec<Vec<u8>>,
    reads: fn(&Value) -> bool,
}

impl Bare {
    /// PING.
    pub async fn ping(redis: &RedisServer) -> Ping {
        Ping(connect(redis).await)
    }

    /// A command that gets the key, followed by these arguments.
    pub async fn command(redis: &RedisServer, name: &str, after_key: &[&str]) -> Self {
        Self {
            connection: connect(redis).await,
            before_key: texts(&[name]),
            key: Arc::new(|key| format!("bare:{}", name_of(key))),
            after_key: texts(after_key),
            reads: is_no_error,
        }
    }

    /// A script that gets the key, the interval in microseconds and the burst.
    pub async fn script(redis: &RedisServer, text: &str, allowance: Allowance) -> Self {
        Self::script_at(&redis.url(), text, allowance).await
    }

    /// The same, at another address of the server.
    pub async fn script_at(url: &str, text: &str, allowance: Allowance) -> Self {
        let connection = connect_to(address(url)).await;
        let digest = load(&connection, text).await;
        Self {
            connection,
            before_key: texts(&["EVALSHA", &digest, "1"]),
            key: Arc::new(|key| format!("bare:{}", name_of(key))),
            after_key: texts(&[
                &allowance.interval().as_micros().to_string(),
                &allowance.burst.to_string(),
            ]),
            reads: is_one_or_starts_with_one,
        }
    }

    /// The very command that our store sends, but without the store: the store is asked once, and
    /// the server tells what it got.
    pub async fn as_ours(redis: &RedisServer, allowance: Allowance) -> Self {
        /// Where an entry of the log has the command.
        const ARGUMENTS: usize = 3;
        /// Where the command has the key.
        const KEY: usize = 3;
        let ours = Ours::asking_always(redis, allowance).await;
        let set =
            |value: &str| redis.query::<()>(("CONFIG", "SET", "slowlog-log-slower-than", value));
        // The first call sends the script's text; from then on it is called by its digest.
        ours.decide(0).await;
        set("0");
        ours.decide(0).await;
        set("-1");
        let told: Vec<Vec<Value>> = redis.query(("SLOWLOG", "GET", 16));
        let mut commands = told.into_iter().filter_map(|mut told| {
            let arguments = told.swap_remove(ARGUMENTS);
            redis::from_redis_value::<Vec<Vec<u8>>>(arguments).ok()
        });
        let command = commands.find(|command| command[0] == b"EVALSHA");
        let mut command = command.expect("our store calls scripts");
        assert_eq!(command[2], b"1", "one key for one policy");
        let name = String::from_utf8(command[KEY].clone()).expect("a key of ours");
        let (before, rest) = name.split_once('{').expect("a hash tag");
        let (_, after) = rest.split_once('}').expect("a hash tag");
        let (before, after) = (before.to_owned(), after.to_owned());
        Self {
            connection: connect(redis).await,
            after_key: command.split_off(KEY + 1),
            before_key: command[..KEY].to_vec(),
            key: Arc::new(move |key| format!("{before}{{{key:032x}}}{after}")),
            reads: is_no_error,
        }
    }

    /// The command of the module redis-cell.
    pub async fn module(redis: &RedisServer, allowance: Allowance) -> Self {
        let per = allowance.per.as_secs();
        Self {
            connection: connect(redis).await,
            before_key: texts(&["CL.THROTTLE"]),
            key: Arc::new(|key| format!("module:{}", name_of(key))),
            after_key: texts(&[
                &allowance.burst.to_string(),
                &allowance.permits.to_string(),
                &per.to_string(),
                "1",
            ]),
            // Its first number is 1 if denied.
            reads: |reply| !is_one_or_starts_with_one(reply),
        }
    }
}

impl Decide for Bare {
    async fn decide(&self, key: u64) -> bool {
        let mut command = Cmd::new();
        command.arg(&self.before_key).arg((self.key)(key));
        command.arg(&self.after_key);
        let mut connection = self.connection.clone();
        let reply = connection.send_packed_command(&command).await;
        (self.reads)(&reply.expect("an answer"))
    }
}

pub struct Ping(MultiplexedConnection);

impl Decide for Ping {
    async fn decide(&self, _: u64) -> bool {
        let mut connection = self.0.clone();
        let reply = connection.send_packed_command(&redis::cmd("PING")).await;
        reply.is_ok()
    }
}

pub async fn connect(redis: &RedisServer) -> MultiplexedConnection {
    connect_to(redis.address()).await
}

async fn connect_to(address: ConnectionInfo) -> MultiplexedConnection {
    let client = Client::open(address).expect("a sound address");
    // As in our store; without a timeout each command would save a timer.
    let config = AsyncConnectionConfig::new()
        .set_response_timeout(Some(Duration::from_secs(60)))
        .set_pipeline_buffer_size(1_024);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    connecting.await.expect("a connection")
}

async fn load(connection: &MultiplexedConnection, text: &str) -> String {
    let mut load = redis::cmd("SCRIPT");
    load.arg("LOAD").arg(text);
    let mut connection = connection.clone();
    load.query_async(&mut connection).await.expect("a digest")
}

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

fn is_no_error(reply: &Value) -> bool {
    !matches!(reply, Value::ServerError(_))
}

fn is_one_or_starts_with_one(reply: &Value) -> bool {
    match reply {
        Value::Int(number) => *number == 1,
        Value::Array(numbers) => numbers.first() == Some(&Value::Int(1)),
        other => panic!("not an answer: {other:?}"),
    }
}
