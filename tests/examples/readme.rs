//! What the README and the guide's first page say of their first example.
#![cfg(all(feature = "axum", feature = "memory"))]

use std::net::SocketAddr;

use axum::body::Body;
use axum::extract::connect_info::MockConnectInfo;
use axum::{Router, routing::get};
use http::{Request, Response};
use tower::ServiceExt;
use tower_throttle::{
    Limit, Limiter, MINUTE, ManualClock, MemoryStore, PeerAddr, Policy, RateLimitLayer,
};

const README: &str = include_str!("../../README.md");
const START: &str = include_str!("../../docs/start.md");

/// The limit of both, by a name of its own on each page.
fn app(name: &str, page: &str) -> Router {
    let policy =
        format!("Policy::new(\"{name}\", Limit::gcra(100, MINUTE).burst(20)).by(PeerAddr)");
    assert!(page.contains(&policy), "{policy}");
    let policy = Policy::new(name, Limit::gcra(100, MINUTE).burst(20)).by(PeerAddr);
    let store = MemoryStore::builder().clock(ManualClock::new()).build();
    Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::new(Limiter::new(store, [policy]).unwrap()))
        .layer(MockConnectInfo(SocketAddr::from(([203, 0, 113, 9], 4000))))
}

async fn get_root(app: &Router) -> Response<Body> {
    let request = Request::get("/").body(Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap()
}

/// The response has the status and each header of a page's block.
fn assert_is(response: &Response<Body>, block: &str) {
    let mut lines = block.lines();
    let status = lines.next().unwrap();
    assert_eq!(status, format!("HTTP/1.1 {}", response.status()));
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        assert_eq!(response.headers().get(name).unwrap(), value, "{name}");
    }
}

fn responses_on(page: &str) -> Vec<&str> {
    let blocks = page.split("```http\n").skip(1);
    blocks
        .map(|block| block.split("\n```").next().unwrap())
        .collect()
}

#[tokio::test]
async fn the_readme_shows_the_headers_of_its_first_response() {
    let shown = responses_on(README);
    assert_eq!(shown.len(), 1);
    assert_is(&get_root(&app("api", README)).await, shown[0]);
}

#[tokio::test]
async fn the_first_page_shows_the_first_response_and_the_first_denial() {
    let shown = responses_on(START);
    assert_eq!(shown.len(), 2);
    let app = app("client", START);
    assert_is(&get_root(&app).await, shown[0]);
    for _ in 1..20 {
        assert_eq!(get_root(&app).await.status(), 200);
    }
    assert_is(&get_root(&app).await, shown[1]);
}
