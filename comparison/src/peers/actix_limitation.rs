//! actix-limitation: a fixed window in a transaction, over a new connection for each decision.

use actix_limitation::{Error, Limiter};

use super::{Allowance, name_of};
use crate::load::Decide;
use crate::redis_server::RedisServer;

pub struct ActixLimitation(Limiter);

impl ActixLimitation {
    pub fn over(redis: &RedisServer, allowance: Allowance) -> Self {
        let (limit, window) = allowance.window();
        let limiter = Limiter::builder(redis.url())
            .limit(limit as usize)
            .period(window)
            .build();
        Self(limiter.expect("a limiter"))
    }
}

impl Decide for ActixLimitation {
    async fn decide(&self, key: u64) -> bool {
        match self.0.count(format!("actix:{}", name_of(key))).await {
            Ok(_) => true,
            Err(Error::LimitExceeded(_)) => false,
            Err(error) => panic!("no answer: {error}"),
        }
    }
}
