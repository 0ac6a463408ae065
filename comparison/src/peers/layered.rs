//! Layers, without sockets: a request goes in, and the status shows whether it was let through.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::store::Store;
use tower_throttle::{Limiter, MINUTE, Policy, QuotaHeaders, RateLimit, RateLimitLayer, Wrapped};

use super::name_of;
use crate::load::Decide;

/// The header that names the caller.
pub const WHO: &str = "x-user";

/// The service behind the layers.
#[derive(Clone)]
pub struct Nothing;

pub type Body = String;

impl Service<Request<Body>> for Nothing {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

pub struct Layered<S>(S);

impl<S> Layered<S> {
    pub fn by(layer: impl Layer<Nothing, Service = S>) -> Self {
        Self(layer.layer(Nothing))
    }
}

/// Our layer, without headers on what it lets through.
pub fn ours(
    store: impl Store,
    policies: impl IntoIterator<Item = Policy>,
) -> Layered<RateLimit<Nothing, Wrapped>> {
    let limiter = Limiter::builder(store, policies).timeout(MINUTE);
    let limiter = limiter.build().expect("sound policies");
    let layer = RateLimitLayer::new(limiter).headers(QuotaHeaders::NONE);
    Layered::by(layer.wrap_body())
}

impl<S, B> Decide for Layered<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible>,
    S: Clone + Send + Sync + 'static,
    S::Future: Send,
    B: Send,
{
    async fn decide(&self, key: u64) -> bool {
        let request = Request::get("/").header(WHO, name_of(key));
        let request = request.body(Body::new()).expect("a request");
        let Ok(response) = self.0.clone().oneshot(request).await;
        match response.status() {
            StatusCode::OK => true,
            StatusCode::TOO_MANY_REQUESTS => false,
            other => panic!("neither let through nor denied: {other}"),
        }
    }
}
