//! tower-rate-limit-redis: GCRA in a script, over one multiplexed connection.

use http::{Request, Response, StatusCode};
use redis_0_32::io::tcp::TcpSettings;
use redis_0_32::{AsyncConnectionConfig, Client, IntoConnectionInfo};
use tower_rate_limit_redis::{KeyResolver, RateLimitLayer};

use super::Allowance;
use super::layered::WHO;
use crate::redis_server::RedisServer;

/// A header names the caller.
#[derive(Debug)]
pub struct ByHeader<B>(std::marker::PhantomData<fn() -> B>);

impl<B> Clone for ByHeader<B> {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl<B: Default> KeyResolver for ByHeader<B> {
    type Key = String;
    type ErrorBody = B;

    fn key<T>(&self, request: &Request<T>) -> Result<String, Response<B>> {
        let who = request.headers().get(WHO);
        let who = who.and_then(|value| value.to_str().ok());
        who.map(|who| format!("trlr:{who}")).ok_or_else(|| {
            let mut refusal = Response::new(B::default());
            *refusal.status_mut() = StatusCode::BAD_REQUEST;
            refusal
        })
    }
}

/// A layer around services with such bodies.
pub async fn layer<B: Default>(
    redis: &RedisServer,
    allowance: Allowance,
) -> RateLimitLayer<ByHeader<B>> {
    let server = redis.url().into_connection_info().expect("a sound URL");
    let client = Client::open(server).expect("a sound address");
    let tcp = TcpSettings::default().set_nodelay(true);
    let config = AsyncConnectionConfig::new().set_tcp_settings(tcp);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let connection = connection.await;
    RateLimitLayer::builder()
        .conn(connection.expect("a connection"))
        .key_resolver(ByHeader(std::marker::PhantomData))
        .capacity(u16::try_from(allowance.burst).expect("a burst that it knows"))
        .emission_interval(allowance.interval())
        .build()
}
