//! limitador: fixed windows, one script to look and one to count.

use std::collections::HashMap;

use limitador::AsyncRateLimiter;
use limitador::limit::{Context, Limit};
use limitador::storage::redis::AsyncRedisStorage;

use super::{Allowance, name_of};
use crate::load::Decide;
use crate::redis_server::RedisServer;

const NAMESPACE: &str = "api";
const WHO: &str = "user";

pub struct Limitador(AsyncRateLimiter);

impl Limitador {
    pub async fn over(redis: &RedisServer, allowance: Allowance) -> Self {
        let (most, window) = allowance.window();
        let storage = AsyncRedisStorage::new(&redis.url()).await;
        let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage.expect("a connection")));
        let by_user = vec![WHO.try_into().expect("a variable")];
        limiter.add_limit(Limit::new(
            NAMESPACE,
            most.into(),
            window.as_secs(),
            Vec::new(),
            by_user,
        ));
        Self(limiter)
    }
}

impl Decide for Limitador {
    async fn decide(&self, key: u64) -> bool {
        let values = HashMap::from([(WHO.to_owned(), name_of(key))]);
        let context = Context::from(values);
        let namespace = NAMESPACE.into();
        let asked = self
            .0
            .check_rate_limited_and_update(&namespace, &context, 1);
        !asked.await.expect("an answer").limited
    }
}
