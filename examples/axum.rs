//! Per-route limits for users that a middleware has authenticated: `cargo run --example axum`.

use std::error::Error;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tower::ServiceBuilder;
use tower_throttle::{
    Extension, HOUR, Limit, Limiter, MINUTE, MemoryStore, Policy, RateLimitLayer, Route,
};

#[derive(Clone)]
struct User {
    id: u64,
}

/// A stand-in for real authentication: the token is the user's number.
async fn authenticate(mut request: Request, next: Next) -> Result<Response, StatusCode> {
    let token = request.headers().get("authorization");
    let id = token.and_then(|token| token.to_str().ok()?.strip_prefix("Bearer ")?.parse().ok());
    let id = id.ok_or(StatusCode::UNAUTHORIZED)?;
    request.extensions_mut().insert(User { id });
    Ok(next.run(request).await)
}

fn by_user() -> Extension<User> {
    Extension::with(|user: &User| user.id)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(
        MemoryStore::new(),
        [
            Policy::new("user", Limit::gcra(600, MINUTE).burst(50)).by(by_user()),
            Policy::new("orders", Limit::sliding_log(5, MINUTE))
                .by(by_user())
                .on(Route::post("/orders")),
            // An export is as much work as twenty other requests.
            Policy::new("exports", Limit::fixed_window(100, HOUR))
                .by(by_user())
                .on(Route::get("/exports/{name}"))
                .cost(20),
        ],
    )?;

    let app = Router::new()
        .route(
            "/orders",
            get(async || "your orders\n").post(async || "ordered\n"),
        )
        .route("/exports/{name}", get(async || "a large file\n"))
        .route("/profile", post(async || "saved\n"))
        // The first layer is the outermost: it authenticates the user before the limit needs the user's id.
        .layer(
            ServiceBuilder::new()
                .layer(from_fn(authenticate))
                .layer(RateLimitLayer::new(limiter)),
        );

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on {}, try", listener.local_addr()?);
    println!("  curl -i -X POST -H 'authorization: Bearer 7' http://127.0.0.1:3000/orders");
    println!("  curl -i -H 'authorization: Bearer 7' http://127.0.0.1:3000/exports/all");
    axum::serve(listener, app).await?;
    Ok(())
}
