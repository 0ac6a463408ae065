//! What a script in a browser sees of a limited server of another origin.
#![cfg(all(unix, feature = "axum", feature = "memory"))]

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use serde_json::{Value, json};
use support::browser::Browser;
use tower_http::cors::{Any, CorsLayer};
use tower_throttle::{HOUR, Limit, Limiter, MemoryStore, Policy, QuotaHeaders, RateLimitLayer};

/// One request an hour for all clients; and the remaining permits.
fn one() -> Limiter {
    let policy = Policy::new("api", Limit::fixed_window(1, HOUR));
    Limiter::new(MemoryStore::new(), [policy]).unwrap()
}

fn cors() -> CorsLayer {
    CorsLayer::new()
        .allow_origin(Any)
        .allow_headers(Any)
        .expose_headers(QuotaHeaders::default().names())
}

fn app() -> Router {
    Router::new().route("/", get(async || "hello"))
}

/// A browser on a page of another origin.
async fn elsewhere() -> Browser {
    let page = Router::new().route(
        "/",
        get(async || Html("<!doctype html><title>page</title>")),
    );
    let browser = Browser::start().await;
    browser.open(&support::web::serve(page).await).await;
    browser
}

/// What a script learns from a request that needs a preflight.
async fn fetched(browser: &Browser, url: &str) -> Value {
    let script = format!(
        "return fetch('{url}/', {{ headers: {{ 'x-api-key': 'k' }} }}).then(async (answer) => ({{
            status: answer.status,
            text: answer.ok ? await answer.text() : (await answer.json()).title,
            wait: answer.headers.get('retry-after'),
            policy: answer.headers.get('ratelimit-policy'),
            quota: answer.headers.get('ratelimit'),
        }}), (error) => error.name)"
    );
    browser.run(&script).await
}

#[tokio::test]
async fn outer_cors_shows_denials_and_frees_preflights() {
    let url = support::web::serve(app().layer(RateLimitLayer::new(one())).layer(cors())).await;
    let browser = elsewhere().await;
    // If its preflight had been counted, this would be one too many.
    let served = fetched(&browser, &url).await;
    assert_eq!(served["status"], 200, "{served}");
    assert_eq!(served["text"], "hello");
    assert_eq!(served["policy"], r#""api";q=1;w=3600"#);
    assert_eq!(served["quota"], r#""api";r=0;t=3600"#);
    assert_eq!(served["wait"], Value::Null);

    let denied = fetched(&browser, &url).await;
    assert_eq!(denied["status"], 429);
    assert_eq!(denied["text"], "Quota exceeded");
    assert_eq!(denied["policy"], served["policy"]);
    let wait: u32 = denied["wait"].as_str().unwrap().parse().unwrap();
    assert!((1..=3600).contains(&wait), "{wait}");
    let quota = denied["quota"].as_str().unwrap();
    assert!(quota.starts_with(r#""api";r=0;t="#), "{quota}");
}

#[tokio::test]
async fn without_exposed_headers_a_script_sees_the_status_alone() {
    let cors = CorsLayer::new().allow_origin(Any).allow_headers(Any);
    let url = support::web::serve(app().layer(RateLimitLayer::new(one())).layer(cors)).await;
    let browser = elsewhere().await;
    assert_eq!(fetched(&browser, &url).await["status"], 200);
    let denied = fetched(&browser, &url).await;
    assert_eq!(denied["status"], 429);
    assert_eq!(
        [&denied["wait"], &denied["policy"], &denied["quota"]],
        [&Value::Null; 3]
    );
}

#[tokio::test]
async fn with_cors_inside_the_preflight_takes_the_requests_place() {
    let limiter = one();
    let app = app()
        .layer(cors())
        .layer(RateLimitLayer::new(limiter.clone()));
    let url = support::web::serve(app).await;
    let browser = elsewhere().await;
    // The preflight is let through, but nothing is left for the request itself. Its denial does not
    // allow the script to read it.
    assert_eq!(fetched(&browser, &url).await, json!("TypeError"));
    let left = limiter.peek("api", tower_throttle::Key::everybody()).await;
    assert_eq!(left.unwrap().remaining(), 0);
}

#[tokio::test]
async fn with_cors_inside_preflights_can_be_skipped_denials_unseen() {
    let layer = RateLimitLayer::new(one()).skip_preflights();
    let url = support::web::serve(app().layer(cors()).layer(layer)).await;
    let browser = elsewhere().await;
    let served = fetched(&browser, &url).await;
    assert_eq!(served["status"], 200);
    assert_eq!(served["policy"], r#""api";q=1;w=3600"#);
    assert_eq!(fetched(&browser, &url).await, json!("TypeError"));
}
