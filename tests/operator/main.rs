//! The router for operators, over real sockets.
#![cfg(all(feature = "operator", feature = "memory", feature = "redis"))]

mod addresses;
mod audit;
mod blocks;
mod browsers;
mod changes;
mod history;
mod page;
mod refused;
mod state;
mod subjects;

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use http::{HeaderMap, StatusCode};
use reqwest::{Client, Response};
use serde_json::{Value, json};
use tower_throttle::{
    HOUR, Limit, Limiter, MemoryStore, Operator, Peer, Policy, RateLimitLayer, RedisStore,
};

use support::redis::free_port;

/// A limiter and what operators see of it.
struct Site {
    limiter: Limiter,
    url: String,
}

impl Site {
    async fn of(policies: impl IntoIterator<Item = Policy>) -> Self {
        let operator = Operator::new();
        let limiter = Limiter::builder(MemoryStore::new(), policies)
            .observe(operator.clone())
            .build()
            .unwrap();
        Self::about(limiter, operator).await
    }

    async fn about(limiter: Limiter, operator: Operator) -> Self {
        let router = operator.router(limiter.clone());
        let url = support::web::serve(Router::new().nest_service("/limits", router)).await;
        Self {
            limiter,
            url: format!("{url}/limits"),
        }
    }

    async fn state(&self) -> Value {
        let answer = Client::new().get(format!("{}/state", self.url)).send();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["cache-control"], "no-store");
        assert_eq!(answer.headers()["content-type"], "application/json");
        answer.json().await.unwrap()
    }

    async fn post(&self, path: &str, body: Value) -> Response {
        let post = Client::new().post(format!("{}/{path}", self.url));
        post.json(&body).send().await.unwrap()
    }

    /// An answer of 200.
    async fn post_ok(&self, path: &str, body: Value) -> Value {
        let answer = self.post(path, body.clone()).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path} {body}");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        answer.json().await.unwrap()
    }

    /// The status and the detail of a problem.
    async fn refused(&self, path: &str, body: Value) -> (u16, String) {
        problem(self.post(path, body).await).await
    }

    /// How much is left of a policy of ten permits.
    async fn left(&self, policy: &str, subject: Value) -> Value {
        let body = json!({ "policy": policy, "subject": subject });
        self.post_ok("peek", body).await["remaining"].clone()
    }
}

async fn problem(answer: Response) -> (u16, String) {
    let status = answer.status().as_u16();
    let headers: &HeaderMap = answer.headers();
    assert_eq!(headers["content-type"], "application/problem+json");
    assert_eq!(headers["cache-control"], "no-store");
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(problem["type"], "about:blank");
    assert_eq!(problem["status"], status);
    (status, problem["detail"].as_str().unwrap().to_owned())
}

fn ten(name: &str) -> Policy {
    Policy::new(name, Limit::sliding_log(10, HOUR))
}

/// A store whose server is not there.
fn unreachable() -> RedisStore {
    let store = RedisStore::builder(&format!("redis://127.0.0.1:{}", free_port()));
    store.connect_lazy().unwrap()
}

/// The answer of a service behind the limiter to a request of user 7 from this address.
async fn status_from(limiter: &Limiter, address: &str) -> u16 {
    let peer = Peer::Address(SocketAddr::new(address.parse().unwrap(), 1));
    let app = Router::new()
        .route("/", get(async || "hello"))
        .layer(RateLimitLayer::new(limiter.clone()))
        .layer(axum::Extension(peer))
        .layer(axum::Extension(7_u64));
    let url = support::web::serve(app).await;
    reqwest::get(&url).await.unwrap().status().as_u16()
}
