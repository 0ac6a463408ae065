//! tower-redis-cell: the command of the native module redis-cell, over one multiplexed connection.

use http::{Request, Response, StatusCode};
use redis::aio::MultiplexedConnection;
use tower_redis_cell::redis_cell::Policy;
use tower_redis_cell::{
    Error, ProvideRule, ProvideRuleError, ProvideRuleResult, RateLimitConfig, RateLimitLayer, Rule,
};

use super::layered::{Body, WHO};
use super::{Allowance, bare};
use crate::redis_server::RedisServer;

type Layer =
    RateLimitLayer<ByHeader, Request<Body>, Response<Body>, Response<Body>, MultiplexedConnection>;

/// A header names the caller.
#[derive(Clone)]
pub struct ByHeader(Policy);

impl<B> ProvideRule<Request<B>> for ByHeader {
    fn provide<'a>(&self, request: &'a Request<B>) -> ProvideRuleResult<'a> {
        let who = request.headers().get(WHO);
        let who = who.and_then(|value| value.to_str().ok());
        let who = who.ok_or_else(|| ProvideRuleError::default().detail("no header"))?;
        Ok(Some(Rule::new(format!("cell:{who}"), self.0)))
    }
}

pub async fn layer(redis: &RedisServer, allowance: Allowance) -> Layer {
    let policy = Policy::new(
        allowance.burst as usize,
        allowance.permits as usize,
        allowance.per,
        1,
    );
    let config = RateLimitConfig::new(ByHeader(policy), |error, _: &Request<Body>| {
        let mut refusal = Response::new(Body::new());
        *refusal.status_mut() = match error {
            Error::RateLimit(_) => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        refusal
    });
    RateLimitLayer::new(config, bare::connect(redis).await)
}
