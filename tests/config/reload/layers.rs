//! What layers show, and whom they let through, changes while they serve requests.

use http::Response;
use reqwest::Client;
use tower_throttle::QuotaHeaders;

use super::file::{Limits, serve, with};

async fn ask(url: &str) -> reqwest::Response {
    Client::new().get(url).send().await.unwrap()
}

#[tokio::test]
async fn a_running_server_shows_headers_and_bodies_of_the_new_file() {
    let file = Limits::new(&with("", "1/day", ""));
    let mut limits = file.open().await;
    let url = serve(limits.config.layer()).await;
    let first = ask(&url).await;
    assert!(first.headers().contains_key("ratelimit"));
    let denied = ask(&url).await;
    assert_eq!(denied.headers()["content-type"], "application/problem+json");

    let head = "headers = \"x-ratelimit-delta\"\nrejection = \"plain-text\"";
    file.replace(&with(head, "1/day", ""));
    limits.reloaded().await;
    let denied = ask(&url).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["x-ratelimit-remaining"], "0");
    assert!(!denied.headers().contains_key("ratelimit"));
    assert_eq!(
        denied.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
}

#[tokio::test]
async fn exemptions_and_lists_change_under_a_server_at_work() {
    let file = Limits::new(&with("", "1/day", ""));
    let mut limits = file.open().await;
    let url = serve(limits.config.layer()).await;
    assert_eq!(ask(&url).await.status(), 200);
    for (head, status) in [
        ("exempt = \"/\"", 200),
        ("", 429),
        ("deny = [\"127.0.0.1\"]", 403),
        ("allow = [\"127.0.0.0/8\"]", 200),
        ("# nobody", 429),
    ] {
        file.replace(&with(head, "1/day", ""));
        limits.reloaded().await;
        assert_eq!(ask(&url).await.status(), status, "{head}");
    }
}

#[tokio::test]
async fn settings_of_a_layer_itself_stay() {
    let file = Limits::new(&with("", "1/day", ""));
    let mut limits = file.open().await;
    let layer = limits.config.layer();
    let own = layer.clone().headers(QuotaHeaders::DRAFT_6).on_rejection(
        |_: &tower_throttle::RequestHead<'_>, rejection: &tower_throttle::Rejection| {
            let mut response = Response::new("mine");
            *response.status_mut() = rejection.status();
            response
        },
    );
    let urls = [serve(layer).await, serve(own).await];
    let head = "headers = \"x-ratelimit-delta\"\nrejection = \"plain-text\"";
    file.replace(&with(head, "1/day", ""));
    limits.reloaded().await;
    let files = ask(&urls[0]).await;
    assert!(files.headers().contains_key("x-ratelimit-limit"));
    let own = ask(&urls[1]).await;
    assert!(!own.headers().contains_key("x-ratelimit-limit"));
    assert_eq!(own.headers()["ratelimit-limit"], "1");
    assert_eq!(own.text().await.unwrap(), "mine");
}
