//! An application behind limits, and the operators' page about them, on a listener of its own that
//! asks for a password: `OPERATOR_PASSWORD=... cargo run --example operator -- --traffic`.
//!
//! `--traffic` lets a few clients run into the limits, so that the page has something to show.

use std::env;
use std::error::Error;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get, routing::post};
use base64::prelude::{BASE64_STANDARD, Engine};
use tokio::net::TcpListener;
use tower_throttle::{
    Header, Limit, Limiter, MINUTE, MemoryStore, Mode, Operator, Policy, RateLimitLayer, Route,
    TopDenied, per_second,
};

/// Lets operators in. In production: whatever guards your other internal pages.
async fn guard(State(right): State<HeaderValue>, request: Request, next: Next) -> Response {
    if request.headers().get(header::AUTHORIZATION) == Some(&right) {
        return next.run(request).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"limits\"")];
    (StatusCode::UNAUTHORIZED, ask).into_response()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let user = || Header::new("x-user");
    let policies = [
        Policy::new("user", Limit::gcra(600, MINUTE).burst(30)).by(user()),
        Policy::new("login", Limit::sliding_log(20, MINUTE))
            .by(user())
            .on(Route::post("/login")),
        // Not in force yet: first it is seen whom it would hit.
        Policy::new("search", Limit::token_bucket(5, per_second(2)))
            .by(user())
            .on(Route::get("/search"))
            .mode(Mode::Shadow),
    ];
    let top = TopDenied::new(100);
    let operator = Operator::new().top_denied(top.clone());
    let limiter = Limiter::builder(MemoryStore::new())
        .policies(policies)
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
        .route("/search", get(async || "found\n"))
        .route("/login", post(async || "welcome\n"))
        .layer(RateLimitLayer::new(limiter));

    let port = env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let public = TcpListener::bind(("127.0.0.1", port)).await?;
    let private = TcpListener::bind(("127.0.0.1", port.saturating_add(port.min(1)))).await?;
    let url = format!("http://{}", public.local_addr()?);
    println!("listening on {url}");
    println!(
        "for operators: http://operator@{}/limits",
        private.local_addr()?
    );
    if env::args().any(|argument| argument == "--traffic") {
        for (user, pause_ms) in [
            ("alice", 400),
            ("bob", 250),
            ("carol", 150),
            ("mallory", 25),
        ] {
            tokio::spawn(visit(url.clone(), user, Duration::from_millis(pause_ms)));
        }
    }
    let internal = tokio::spawn(axum::serve(private, internal).into_future());
    axum::serve(public, app).await?;
    Ok(internal.await??)
}

/// One of ten visits is a login, as long as the server is there.
async fn visit(url: String, user: &'static str, pause: Duration) {
    let client = reqwest::Client::new();
    for turn in 0.. {
        let visit = match turn % 10 {
            0 => client.post(format!("{url}/login")),
            _ => client.get(format!("{url}/search")),
        };
        if visit.header("x-user", user).send().await.is_err() {
            return;
        }
        // They come in waves.
        let is_calm = turn % 400 > 250;
        tokio::time::sleep(if is_calm { 3 * pause } else { pause }).await;
    }
}
