//! Closures whose parameters have no types, wherever one can be given.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http::{Request, Response};
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::{
    AccessList, Limit, Limiter, MINUTE, MemoryStore, Policy, RateLimitLayer, Rules, extractor,
    responder,
};

fn client() -> IpAddr {
    [203, 0, 113, 9].into()
}

#[tokio::test]
async fn no_closure_needs_a_type() {
    let told = Arc::new(AtomicU32::new(0));
    let tell = Arc::clone(&told);
    let policy = Policy::new("api", Limit::gcra(1, MINUTE))
        .by(extractor(|request| Some(request.uri.path().to_owned())))
        .on(extractor(|request| request.uri.path() != "/free"))
        .cost_by(extractor(|request| 1 + request.headers.len() as u64))
        .limit_by(|request, key| match (request.uri.path(), key) {
            ("/two", _) => Some(Limit::gcra(2, MINUTE)),
            _ => None,
        })
        .settle(|response| response.headers.len() as u64)
        .count_if(|response| response.status == 200);
    let plain = Policy::new("plain", Limit::gcra(100, MINUTE)).limit_by(|_, _| None);
    let unknown = AccessList::new()
        .addresses(extractor(|_| Some(client())), ["198.51.100.0/24"])
        .unwrap();
    let limiter = Limiter::builder(
        MemoryStore::new(),
        Rules::new([policy, plain])
            .exempt(extractor(|request| request.uri.path() == "/health"))
            .deny(unknown),
    )
    .on_decision(move |event| {
        tell.fetch_add(u32::from(event.policy == "api"), Ordering::Relaxed);
    })
    .build()
    .unwrap();
    let layer = RateLimitLayer::new(limiter).on_rejection(responder(|request, rejection| {
        Response::new(format!("{} {}", request.uri, rejection.policies().len()))
    }));
    let inner = service_fn(async |_: Request<()>| {
        Ok::<_, Infallible>(Response::new(axum::body::Body::from("in")))
    });
    let service = layer.layer(inner);
    let mut statuses = Vec::new();
    for path in [
        "/", "/", "/two", "/two", "/two", "/free", "/free", "/health",
    ] {
        let request = Request::get(path).body(()).unwrap();
        let response = service.clone().oneshot(request).await.unwrap();
        statuses.push(response.status().as_u16());
    }
    assert_eq!(statuses, [200, 429, 200, 200, 429, 200, 200, 200]);
    assert_eq!(told.load(Ordering::Relaxed), 5);
}
