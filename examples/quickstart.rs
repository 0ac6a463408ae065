//! Two limits in front of an axum service: `cargo run --example quickstart`.
//!
//! It counts in this process. With `REDIS_URL=redis://127.0.0.1:6379` it counts in Redis, together
//! with every other process that does so; `PORT=3001` lets a second one run beside the first.
//!
//! In a project of your own: `cargo add tower-throttle --features axum`.

use std::env;
use std::error::Error;
use std::net::SocketAddr;

use axum::Router;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tower_throttle::{
    Header, Limit, Limiter, MINUTE, MemoryStore, PeerAddr, Policy, RateLimitLayer, RedisStore,
    Route,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let policies = [
        // Every request counts for its client, which may send 60 a minute, and 10 at once.
        Policy::new("client", Limit::gcra(60, MINUTE).burst(10)).by(PeerAddr),
        // A login also counts for its user: three in any minute, whatever the address.
        Policy::new("login", Limit::sliding_log(3, MINUTE))
            .by(Header::new("x-user"))
            .on(Route::post("/login")),
    ];
    let limiter = match env::var("REDIS_URL") {
        Ok(url) => Limiter::new(RedisStore::connect(&url).await?, policies)?,
        Err(_) => Limiter::new(MemoryStore::new(), policies)?,
    };

    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/login", post(async || "welcome\n"))
        .layer(RateLimitLayer::new(limiter))
        // This provides the peer's address, by which the first policy counts.
        .into_make_service_with_connect_info::<SocketAddr>();

    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse())?;
    let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, port)).await?;
    println!("listening on {}, try", listener.local_addr()?);
    println!("  curl -i http://{}/", listener.local_addr()?);
    println!(
        "  for i in 1 2 3 4; do curl -i -X POST -H 'x-user: alice' http://{}/login; done",
        listener.local_addr()?
    );
    axum::serve(listener, app).await?;
    Ok(())
}
