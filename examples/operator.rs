//! An application behind limits, and a page for operators on another listener that asks for a password:
//!
//! ```sh
//! OPERATOR_PASSWORD=... cargo run --all-features --example operator -- --traffic
//! ```
//!
//! The application listens on port 3000 or `PORT`, the page on the next port. It counts in this process,
//! or in Redis with `REDIS_URL=redis://127.0.0.1:6379`. `--traffic` starts a few clients that run into
//! the limits, so that the page has something to show.

use std::env;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use base64::prelude::{BASE64_STANDARD, Engine};
use reqwest::RequestBuilder;
use tokio::net::TcpListener;
use tower_throttle::store::Store;
use tower_throttle::{
    Header, Limit, Limiter, MINUTE, MemoryStore, Mode, Operator, PeerAddr, Policy, Prefetch,
    RateLimitLayer, RedisStore, Route, SECOND, TopDenied, extractor, per_second,
};

/// Who was let in, for the list of changes.
#[derive(Clone)]
struct LetIn(&'static str);

/// Lets operators in. In production, use what guards your other internal pages.
async fn guard(State(right): State<HeaderValue>, mut request: Request, next: Next) -> Response {
    if request.headers().get(header::AUTHORIZATION) == Some(&right) {
        request.extensions_mut().insert(LetIn("operator"));
        return next.run(request).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"limits\"")];
    (StatusCode::UNAUTHORIZED, ask).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let user = || Header::new("x-user");
    let policies = [
        Policy::new("user", Limit::gcra(600, MINUTE).burst(30))
            .by(user())
            .on(Route::get("/search"))
            .group("client"),
        // The busiest route: with prefetch, most of its decisions need no round trip to Redis.
        Policy::new("pages", Limit::gcra(500, SECOND))
            .on(Route::get("/"))
            .prefetch(Prefetch::new()),
        // Not enforced yet: the page shows which subjects it would deny.
        Policy::new("search", Limit::token_bucket(5, per_second(2)))
            .by(user())
            .on(Route::get("/search"))
            .group("client")
            .mode(Mode::Shadow),
    ];
    let store: Arc<dyn Store> = match env::var("REDIS_URL") {
        Ok(url) => Arc::new(RedisStore::connect(&url).await?),
        Err(_) => Arc::new(MemoryStore::new()),
    };
    let top = TopDenied::new(100);
    let operator = Operator::new()
        .top_denied(top.clone())
        // Behind a proxy: `ClientAddr`. By it, operators block addresses.
        .client_address(PeerAddr)?
        // Pages of other sites cannot reach it under a name of theirs.
        .allowed_hosts(["localhost", "127.0.0.1"])?
        .actor(extractor(|request| {
            let LetIn(name) = request.extensions.get()?;
            Some((*name).to_owned())
        }));
    let limiter = Limiter::builder(store, policies)
        .observe(operator.clone())
        .observe(top)
        .build()?;

    let password = env::var("OPERATOR_PASSWORD").map_err(|_| "OPERATOR_PASSWORD is not set")?;
    let right = BASE64_STANDARD.encode(format!("operator:{password}"));
    let right = HeaderValue::try_from(format!("Basic {right}"))?;
    let internal = Router::new()
        .nest_service("/limits", operator.router(limiter.clone()))
        .layer(from_fn_with_state(right, guard));
    let app = Router::new()
        .route("/", get(async || "hello\n"))
        .route("/search", get(async || "found\n"))
        .layer(RateLimitLayer::new(limiter))
        .into_make_service_with_connect_info::<SocketAddr>();

    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let public = listen(port).await?;
    let private = listen(port.saturating_add(port.min(1))).await?;
    let url = format!("http://{}", public.local_addr()?);
    println!("listening on {url}");
    println!(
        "for operators: http://operator@{}/limits",
        private.local_addr()?
    );
    if env::args().any(|argument| argument == "--traffic") {
        for (path, user, pause_ms) in [
            ("/search", "alice", 400),
            ("/search", "bob", 250),
            ("/search", "carol", 150),
            ("/search", "mallory", 12),
            ("/", "", 4),
        ] {
            let visit = reqwest::Client::new().get(format!("{url}{path}"));
            let visit = visit.header("x-user", user);
            tokio::spawn(again_and_again(visit, Duration::from_millis(pause_ms)));
        }
    }
    let internal = tokio::spawn(axum::serve(private, internal).into_future());
    axum::serve(public, app).await?;
    Ok(internal.await??)
}

async fn listen(port: u16) -> Result<TcpListener, String> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    listener.map_err(|error| format!("port {port}: {error}; PORT sets another one"))
}

/// Sends the request repeatedly until the server is gone.
async fn again_and_again(visit: RequestBuilder, pause: Duration) {
    let began = Instant::now();
    while let Some(visit) = visit.try_clone()
        && visit.send().await.is_ok()
    {
        // Twelve busy seconds, then eight calm ones.
        let is_calm = began.elapsed().as_secs() % 20 >= 12;
        tokio::time::sleep(if is_calm { 2 * pause } else { pause }).await;
    }
}
