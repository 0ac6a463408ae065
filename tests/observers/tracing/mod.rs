//! What is logged, at which level, and that it never says about whom.
#![cfg(all(feature = "deadpool", feature = "memory", feature = "tracing"))]

mod changes;
mod configured_wrongly;
mod decisions;
mod mistakes;
mod never_said;
mod outages;
mod shown;
mod spans;

use std::net::IpAddr;

use http::{Request, Response};
use http_body_util::Empty;
use hyper::body::Bytes;
use tower::{Layer, ServiceExt as _, service_fn};
use tower_throttle::{Header, Limit, Limiter, MINUTE, Peer, Policy, RateLimitLayer};
use tracing::Level;

use support::log::{Entry, Log};

fn one_a_minute(name: &str) -> Policy {
    Policy::new(name, Limit::gcra(1, MINUTE)).by(Header::new("x-user"))
}

async fn check(limiter: &Limiter, policy: &str, times: usize) {
    for _ in 0..times {
        let _ = limiter.check(policy, "alice").await.unwrap();
    }
}

/// The only event, with this level and this text.
#[track_caller]
fn only(log: &Log, level: Level, text: &str) -> Entry {
    let events = log.events();
    let [event] = &events[..] else {
        panic!("not one: {events:#?}");
    };
    assert_eq!((event.level, &*event.name), (level, text));
    assert!(event.target.starts_with("tower_throttle"), "{event:?}");
    event.clone()
}

type Body = Empty<Bytes>;

fn from(peer: Option<&str>, headers: &[(&'static str, &str)]) -> Request<Body> {
    let mut request = Request::new(Body::new());
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    if let Some(peer) = peer {
        let address = (peer.parse::<IpAddr>().unwrap(), 1_234);
        request
            .extensions_mut()
            .insert(Peer::from(std::net::SocketAddr::from(address)));
    }
    request
}

async fn answer(limiter: &Limiter, request: Request<Body>) -> Response<()> {
    let ok = service_fn(|_: Request<Body>| async { Ok::<_, ()>(Response::new(Body::new())) });
    let service = RateLimitLayer::new(limiter.clone()).wrap_body().layer(ok);
    service.oneshot(request).await.unwrap().map(drop)
}

async fn send(limiter: &Limiter, request: Request<Body>) -> u16 {
    answer(limiter, request).await.status().as_u16()
}
