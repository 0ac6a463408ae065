//! What many services do: a connection is checked out of a pool for each request, and a textbook
//! script called on it.

use deadpool_redis::{Manager, Pool, Runtime};
use redis::Script;

use super::bare::TEXTBOOK;
use super::{Allowance, name_of};
use crate::load::Decide;
use crate::redis_server::RedisServer;

const CONNECTIONS: usize = 10;

pub struct Deadpool {
    pool: Pool,
    script: Script,
    allowance: Allowance,
}

impl Deadpool {
    pub fn over(redis: &RedisServer, allowance: Allowance) -> Self {
        let manager = Manager::new(redis.address()).expect("a sound address");
        let pool = Pool::builder(manager)
            .max_size(CONNECTIONS)
            .runtime(Runtime::Tokio1);
        Self {
            pool: pool.build().expect("a pool"),
            script: Script::new(TEXTBOOK),
            allowance,
        }
    }
}

impl Decide for Deadpool {
    async fn decide(&self, key: u64) -> bool {
        let mut connection = self.pool.get().await.expect("a connection");
        let mut call = self.script.key(format!("pool:{}", name_of(key)));
        call.arg(self.allowance.interval().as_micros() as u64);
        call.arg(self.allowance.burst);
        let answer: [i64; 5] = call.invoke_async(&mut connection).await.expect("an answer");
        answer[0] == 1
    }
}
