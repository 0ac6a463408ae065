//! What a limiter holds requests to, and how it changes at run time: modes, the kill switch,
//! exemptions, lists of clients, other policies.
#![cfg(feature = "memory")]

mod access;
mod enforce_for;
mod exempt;
mod modes;
mod nothing;
mod replacing;

use axum::Router;
use axum::extract::connect_info::MockConnectInfo;
use axum::http::StatusCode;
use axum::routing::any;
use std::net::SocketAddr;
use tower_throttle::{Header, Limit, Limiter, MINUTE, Policy, RateLimitLayer};

/// One request a minute for each user.
fn one_a_minute(name: &str) -> Policy {
    Policy::new(name, Limit::gcra(1, MINUTE)).by(Header::new("x-user"))
}

/// A server behind a limiter, asked by a client of this test.
struct App {
    url: String,
    client: reqwest::Client,
}

impl App {
    async fn behind(limiter: &Limiter) -> Self {
        Self::of(limiter, Router::new()).await
    }

    /// As a server that finds this address at the other end of each socket.
    async fn with_peer(limiter: &Limiter, peer: &str) -> Self {
        let peer: SocketAddr = peer.parse().unwrap();
        let peer = MockConnectInfo(peer);
        let app = Router::new().fallback(any(async || "hello"));
        let app = app.layer(RateLimitLayer::new(limiter.clone())).layer(peer);
        Self::at(support::web::serve(app).await)
    }

    async fn of(limiter: &Limiter, app: Router) -> Self {
        let app = app.fallback(any(async || "hello"));
        let app = app.layer(RateLimitLayer::new(limiter.clone()));
        Self::at(support::web::serve(app).await)
    }

    fn at(url: String) -> Self {
        Self {
            url,
            client: reqwest::Client::new(),
        }
    }

    async fn get(&self, path: &str, headers: &[(&'static str, &str)]) -> reqwest::Response {
        let mut request = self.client.get(format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    /// The status of this user's answer.
    async fn status(&self, user: &str) -> StatusCode {
        self.get("/", &[("x-user", user)]).await.status()
    }
}
