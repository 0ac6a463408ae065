//! What browsers may do: pages of other sites press no buttons, and the page runs only its own
//! script.

use reqwest::Client;

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

#[tokio::test]
async fn the_page_is_there_with_and_without_a_slash_and_may_run_only_itself() {
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
