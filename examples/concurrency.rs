//! A bound on the requests that run at the same time: `cargo run --example concurrency`.
//!
//! `GET /slow/{lines}` answers with that many lines, ten a second, and holds one of three places
//! until the last line is sent or the client is gone. `LIMIT=5` makes it five places, `PORT=3001`
//! sets another port.
//!
//! With `REDIS_URL=redis://127.0.0.1:6379` all processes that use this Redis share the places. If a
//! process is killed, its places are free after 30 s; `LEASE_MS=2000` makes it two.

use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::routing::get;
use futures_util::stream;
use tokio::net::TcpListener;
use tower_throttle::{
    FailureMode, Limit, Limiter, MemoryStore, Policy, RateLimitLayer, RedisStore, SECOND,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let life = Duration::from_millis(setting("LEASE_MS", 30_000)?);
    let limit = Limit::concurrency(setting("LIMIT", 3)?).lease(life);
    // While Redis does not answer, no request is admitted, so that never more than three run.
    let policy = Policy::new("slow", limit).on_store_failure(FailureMode::Deny);
    let limiter = match env::var("REDIS_URL") {
        Ok(url) => {
            let store = RedisStore::connect(&url).await?;
            Limiter::builder(store, [policy]).timeout(SECOND).build()?
        }
        Err(_) => Limiter::new(MemoryStore::new(), [policy])?,
    };

    let app = Router::new()
        .route("/slow/{lines}", get(slow))
        .layer(RateLimitLayer::new(limiter));
    let port = setting("PORT", 3000)?.try_into()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    let address = listener.local_addr()?;
    println!("listening on {address}, try");
    println!("  for i in 1 2 3 4; do curl -s http://{address}/slow/50 & done; wait");
    axum::serve(listener, app).await?;
    Ok(())
}

async fn slow(Path(lines): Path<u32>) -> Body {
    println!("{} begins one", std::process::id());
    let lines = stream::unfold((Running, 1..=lines), async |(running, mut lines)| {
        let line = lines.next()?;
        tokio::time::sleep(Duration::from_millis(100)).await;
        Some((Ok::<_, Infallible>(format!("{line}\n")), (running, lines)))
    });
    Body::from_stream(lines)
}

/// Prints when a request has ended. The layer gives its place back after that.
struct Running;

impl Drop for Running {
    fn drop(&mut self) {
        println!("{} ends one", std::process::id());
    }
}

/// A number from the environment.
fn setting(name: &str, otherwise: u64) -> Result<u64, Box<dyn Error>> {
    let given = env::var(name).ok().map(|text| text.parse()).transpose();
    given
        .map(|number| number.unwrap_or(otherwise))
        .map_err(|error| format!("{name}: {error}").into())
}
