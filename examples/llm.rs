//! An API that streams what a language model says, limited by usage:
//!
//! ```sh
//! cargo run --features calendar --example llm
//! curl -i -H 'x-api-key: alice' 127.0.0.1:3000/complete/30
//! ```
//!
//! Each API key may send 20 requests and use 200 tokens a minute, and its organisation may spend 10 000
//! cents in a month of its own time zone. What a request costs is known when its stream has ended.

use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::get;
use futures_util::stream;
use tokio::net::TcpListener;
use tower_throttle::{
    Calendar, ConfigError, Extension, Header, Limit, Limiter, MINUTE, MemoryStore, Meter, Policy,
    RateLimitLayer,
};

const CENTS_A_TOKEN: u64 = 2;

#[derive(Clone)]
struct Organisation(&'static str);

/// What authenticates requests belongs here.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let organisation = match request.headers().get("x-api-key").map(|key| key.as_bytes()) {
        Some(b"alice" | b"bob") => Organisation("acme"),
        Some(b"carol") => Organisation("initech"),
        _ => return Err(StatusCode::UNAUTHORIZED),
    };
    request.extensions_mut().insert(organisation);
    Ok(next.run(request).await)
}

fn policies() -> Result<[Policy; 3], ConfigError> {
    let month = Calendar::month().zone("Europe/Berlin")?;
    let by_key = || Header::new("x-api-key");
    Ok([
        Policy::new("requests", Limit::gcra(20, MINUTE)).by(by_key()),
        Policy::new("tokens", Limit::sliding_window(200, MINUTE))
            .by(by_key())
            .cost(20)
            .settle_at_end(|end| end.used()),
        Policy::new("cents", Limit::calendar(10_000, month))
            .by(Extension::with(|organisation: &Organisation| {
                organisation.0
            }))
            .cost(20 * CENTS_A_TOKEN)
            .settle_at_end(|end| end.used_of("cents")),
    ])
}

/// A model that says what it is told to, word by word, until the budget is used up.
async fn complete(meter: Meter, Path(words): Path<u32>) -> Body {
    let (tokens, cents) = (meter.charging(), meter.named("cents"));
    Body::from_stream(stream::unfold(0, move |said| {
        let (tokens, cents) = (tokens.clone(), cents.clone());
        async move {
            if said > words {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            cents.add(CENTS_A_TOKEN);
            let (word, next) = match tokens.add(1).await {
                Ok(()) if said < words => ("word ", said + 1),
                Ok(()) => ("and out\n", u32::MAX),
                Err(_) => ("[budget used up]\n", u32::MAX),
            };
            Some((Ok::<_, Infallible>(word), next))
        }
    }))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(MemoryStore::new(), policies()?)?;
    let app = Router::new()
        .route("/complete/{words}", get(complete))
        .layer(RateLimitLayer::new(limiter))
        .layer(from_fn(authenticate));
    let port = env::var("PORT").unwrap_or("3000".to_owned());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let address = listener.local_addr()?;
    println!("listening on {address}, try\ncurl -i -H 'x-api-key: alice' {address}/complete/30");
    Ok(axum::serve(listener, app).await?)
}
