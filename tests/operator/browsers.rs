//! What browsers may do: pages of other sites press no buttons, and the page runs only its own
//! script.

use reqwest::Client;
use tower_throttle::{Limiter, MemoryStore, Operator};

use crate::{Site, problem, ten};

#[tokio::test]
async fn pages_of_other_sites_cannot_press_the_buttons() {
    let site = Site::of([ten("api")]).await;
    let url = format!("{}/switch", site.url);
    let off = r#"{"on":false}"#;
    let post = || Client::new().post(&url).body(off);
    // Everything that a form can send, and nothing at all.
    for media_type in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("multipart/form-data; boundary=application/json"),
    ] {
        let mut request = post();
        if let Some(media_type) = media_type {
            request = request.header("content-type", media_type);
        }
        let (status, detail) = problem(request.send().await.unwrap()).await;
        assert_eq!(status, 415);
        assert!(detail.contains("expected application/json"), "{detail}");
    }
    for (from, expected) in [
        ("cross-site", 403),
        ("same-site", 403),
        ("same-origin", 200),
        ("none", 200),
    ] {
        let request = post().header("content-type", "Application/JSON; charset=utf-8");
        let answer = request.header("sec-fetch-site", from).send().await.unwrap();
        assert_eq!(answer.status(), expected, "{from}");
        assert_eq!(site.limiter.is_on(), expected == 403, "{from}");
        site.limiter.turn_on();
    }
    assert_eq!(reqwest::get(&url).await.unwrap().status(), 405);
}

/// A post to the site, to this host, from a page of this origin.
async fn press(site: &Site, host: Option<&str>, origin: Option<&str>) -> u16 {
    let post = Client::new().post(format!("{}/switch", site.url));
    let mut post = post
        .header("content-type", "application/json")
        .body(r#"{"on":false}"#);
    for (name, value) in [("host", host), ("origin", origin)] {
        if let Some(value) = value {
            post = post.header(name, value);
        }
    }
    let status = post.send().await.unwrap().status().as_u16();
    // What is refused has changed nothing.
    assert_eq!(site.limiter.is_on(), status != 200, "{host:?} {origin:?}");
    site.limiter.turn_on();
    status
}

#[tokio::test]
async fn a_page_of_another_origin_presses_no_button() {
    let site = Site::of([ten("api")]).await;
    let own = site.url.trim_start_matches("http://");
    let own = own.split('/').next().unwrap();
    let own_origin = format!("http://{own}");
    for (host, origin, expected) in [
        (None, None, 200),
        (None, Some(&*own_origin), 200),
        (None, Some("http://evil.example"), 403),
        (None, Some("http://127.0.0.1:1"), 403),
        (None, Some("http://127.0.0.1"), 403),
        // A file, a sandboxed frame.
        (None, Some("null"), 403),
        (None, Some(""), 403),
        (None, Some("evil"), 403),
        (
            Some("limits.internal"),
            Some("https://Limits.internal"),
            200,
        ),
        (
            Some("limits.internal:443"),
            Some("https://limits.internal"),
            200,
        ),
        (
            Some("limits.internal:443"),
            Some("http://limits.internal"),
            403,
        ),
        (
            Some("limits.internal"),
            Some("https://limits.internal.evil.example"),
            403,
        ),
        (
            Some("limits.internal"),
            Some("https://limits.internal@evil.example"),
            403,
        ),
    ] {
        assert_eq!(
            press(&site, host, origin).await,
            expected,
            "{host:?} {origin:?}"
        );
    }
}

#[tokio::test]
async fn only_allowed_hosts_are_answered_and_may_press_buttons() {
    let operator = Operator::new()
        .allowed_hosts(["limits.internal", "backend:9000"])
        .unwrap();
    let limiter = Limiter::new(MemoryStore::new(), [ten("api")]).unwrap();
    let site = Site::about(limiter, operator).await;
    for (host, origin, expected) in [
        // A page whose name was made to lead here.
        (Some("evil.example"), Some("http://evil.example"), 403),
        (None, None, 403),
        (Some("backend"), None, 403),
        (Some("backend:9000"), None, 200),
        // Behind a proxy, which asks for another host than the browser.
        (Some("backend:9000"), Some("https://limits.internal"), 200),
        (
            Some("LIMITS.internal:8080"),
            Some("http://limits.internal:8080"),
            200,
        ),
        (Some("backend:9000"), Some("https://evil.example"), 403),
    ] {
        assert_eq!(
            press(&site, host, origin).await,
            expected,
            "{host:?} {origin:?}"
        );
    }
    for (host, expected) in [("evil.example", 403), ("limits.internal", 200)] {
        for path in ["", "/state"] {
            let get = Client::new().get(format!("{}{path}", site.url));
            let answer = get.header("host", host).send().await.unwrap();
            assert_eq!(answer.status(), expected, "{host} {path}");
        }
    }
}

#[test]
fn hosts_that_answer_nobody_are_refused_with_what_is_right() {
    for hosts in [
        &["https://limits.internal"][..],
        &[""],
        &["a b"],
        &["user@host"],
        &[":80"],
        &[],
    ] {
        let refusal = Operator::new().allowed_hosts(hosts).unwrap_err();
        assert!(refusal.to_string().contains("allowed_hosts"), "{refusal}");
    }
}

#[tokio::test]
async fn the_page_works_with_and_without_slash() {
    let site = Site::of([ten("api")]).await;
    for url in [site.url.clone(), format!("{}/", site.url)] {
        let page = reqwest::get(url).await.unwrap();
        assert_eq!(page.status(), 200);
        assert_eq!(page.headers()["content-type"], "text/html; charset=utf-8");
        assert_eq!(page.headers()["cache-control"], "no-store");
        assert_eq!(page.headers()["x-content-type-options"], "nosniff");
        let policy = page.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
