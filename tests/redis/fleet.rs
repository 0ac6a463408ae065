//! Two real servers over one Redis, and what their clients see.

use axum::Router;
use axum::routing::get;
use futures_util::future::join_all;
use support::redis::Server;
use tower_throttle::{DAY, Limit, Limiter, Policy, RateLimitLayer, RequestHead, SECOND};

const LIMIT: u64 = 211;
const CLIENTS: usize = 64;
const REQUESTS: usize = 5;

/// An HTTP server of the fleet. Returns its address.
async fn serve(redis: &Server, limit: Limit) -> String {
    let everybody_by_header = |request: &RequestHead<'_>| {
        let user = request.headers.get("x-user")?;
        Some(user.to_str().ok()?.to_owned())
    };
    let policy = Policy::new("user", limit).by(everybody_by_header);
    let limiter = Limiter::builder(redis.store().await, [policy]);
    let limiter = limiter.timeout(60 * SECOND).build().unwrap();
    let app = Router::new()
        .route("/", get(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter));
    support::web::serve(app).await
}

/// How many requests of one client are served, and how many are denied.
async fn statuses(url: String) -> (usize, usize) {
    let client = reqwest::Client::new();
    let (mut served, mut denied) = (0, 0);
    for _ in 0..REQUESTS {
        let request = client.get(&url).header("x-user", "alice");
        match request.send().await.unwrap().status().as_u16() {
            200 => served += 1,
            429 => denied += 1,
            other => panic!("status {other}"),
        }
    }
    (served, denied)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_serve_exactly_the_limit_together() {
    let redis = Server::start();
    for limit in [
        Limit::gcra(10, 366 * DAY).burst(LIMIT),
        Limit::fixed_window(LIMIT, 366 * DAY),
        Limit::sliding_log(LIMIT, 366 * DAY),
    ] {
        let servers = [serve(&redis, limit).await, serve(&redis, limit).await];
        let clients = (0..CLIENTS).map(|client| {
            let url = servers[client % servers.len()].clone();
            tokio::spawn(statuses(url))
        });
        let (mut served, mut denied) = (0, 0);
        for client in join_all(clients).await {
            let (client_served, client_denied) = client.unwrap();
            served += client_served;
            denied += client_denied;
        }
        assert_eq!(served, LIMIT as usize, "{limit:?}");
        assert_eq!(served + denied, CLIENTS * REQUESTS);
    }
}
