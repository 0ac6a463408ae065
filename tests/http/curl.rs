//! curl as a client: what it shows of a denial, and that it retries after the given time.
#![cfg(all(feature = "axum", feature = "memory"))]

use axum::Router;
use axum::routing::get;
use tokio::process::Command;
use tower_throttle::{HOUR, Limit, Limiter, MemoryStore, Policy, RateLimitLayer, SECOND};

/// Serves "hello" behind a limit for everybody.
async fn limited(limit: Limit) -> String {
    let limiter = Limiter::new(MemoryStore::new(), [Policy::new("api", limit)]).unwrap();
    let app = Router::new().route("/", get(async || "hello\n"));
    support::web::serve(app.layer(RateLimitLayer::new(limiter))).await
}

/// What curl prints.
async fn curl(arguments: &[&str], url: &str) -> String {
    let mut command = Command::new("curl");
    let run = command
        .arg("--silent")
        .args(arguments)
        .arg(url)
        .output()
        .await;
    let output = run.unwrap_or_else(|error| {
        panic!(
            "this test needs curl ({error}): run scripts/test, which installs it, or install the \
             package curl"
        )
    });
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test]
async fn curl_shows_what_is_left_and_when_to_come_back() {
    let url = limited(Limit::fixed_window(1, HOUR)).await;
    let served = curl(&["--include"], &url).await;
    assert!(served.starts_with("HTTP/1.1 200 OK\r\n"), "{served}");
    assert!(served.ends_with("\r\n\r\nhello\n"), "{served}");
    for line in [
        "ratelimit-policy: \"api\";q=1;w=3600\r\n",
        "ratelimit: \"api\";r=0;t=3600\r\n",
    ] {
        assert!(served.contains(line), "{served}");
    }
    let denied = curl(&["--include"], &url).await;
    assert!(
        denied.starts_with("HTTP/1.1 429 Too Many Requests\r\n"),
        "{denied}"
    );
    for line in [
        "content-type: application/problem+json\r\n",
        "cache-control: no-store\r\n",
        "retry-after: ",
    ] {
        assert!(denied.contains(line), "{denied}");
    }
}

#[tokio::test]
async fn curl_retries_after_retry_after_and_is_served() {
    let url = limited(Limit::fixed_window(1, 3 * SECOND)).await;
    assert_eq!(curl(&[], &url).await, "hello\n");
    // By default it would retry after one second, once, and give up. `Retry-After` makes it wait
    // for longer.
    let retried = curl(&["--retry", "1", "--fail"], &url).await;
    assert!(retried.ends_with("hello\n"), "{retried}");
}
