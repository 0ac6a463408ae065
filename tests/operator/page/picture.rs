//! Pictures of the page, one of which is in the documentation.

use std::env;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;
use support::browser::Browser;
use support::redis::Server as Redis;
use tower_throttle::{
    Clock, Header, Key, Limit, Limiter, MINUTE, MemoryStore, Micros, Mode, Operator, PeerAddr,
    Policy, Prefetch, Route, SECOND, SystemClock, TopDenied, extractor, per_second,
};

use crate::Site;

/// How long the past is, in minutes.
const PAST: u64 = 65;

/// The system's clock, some minutes ago.
#[derive(Clone)]
struct Ago(Arc<AtomicU64>);

impl Clock for Ago {
    fn now(&self) -> Micros {
        let ago = MINUTE * u32::try_from(self.0.load(Ordering::SeqCst)).unwrap();
        SystemClock.now().saturating_sub(ago.into())
    }
}

fn user(name: &str) -> Key {
    Key::header("x-user", name.as_bytes())
}

fn policies() -> [Policy; 3] {
    let by_user = || Header::new("x-user");
    [
        Policy::new("user", Limit::gcra(600, MINUTE).burst(30))
            .by(by_user())
            .on(Route::get("/search"))
            .group("client"),
        Policy::new("pages", Limit::gcra(500, SECOND))
            .on(Route::get("/"))
            .prefetch(Prefetch::new()),
        Policy::new("search", Limit::token_bucket(5, per_second(2)))
            .by(by_user())
            .on(Route::get("/search"))
            .group("client")
            .mode(Mode::Shadow),
    ]
}

/// Decides a number of requests in each minute of the past, up to now.
async fn pass_the_hour(operator: &Operator, ago: &Ago, scale: u64) {
    let limits = [
        ("pages", Limit::gcra(u64::from(u32::MAX), SECOND)),
        ("user", Limit::nothing()),
    ];
    let policies = limits.map(|(name, limit)| Policy::new(name, limit));
    let past = Limiter::builder(MemoryStore::new(), policies);
    let past = past.observe(operator.clone()).build().unwrap();
    for minute in 0..PAST {
        // Calm, until somebody comes for twenty minutes.
        let denied = if (20..40).contains(&minute) {
            30 + minute % 7 * 3
        } else {
            4 + minute % 3
        };
        for (policy, count) in [("pages", 70 + minute % 9 * 3), ("user", denied)] {
            for _ in 0..count * scale {
                let _ = past.check(policy, Key::everybody()).await.unwrap();
            }
        }
        ago.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Asks the policies again and again.
fn come_again(limiter: &Limiter, policies: &'static [&'static str], key: Key, pause_ms: u64) {
    let limiter = limiter.clone();
    tokio::spawn(async move {
        for visit in 0_u64.. {
            for policy in policies {
                let _ = limiter.check(policy, &key).await;
            }
            // Now and then it is calm.
            let pauses = if visit * pause_ms / 1_000 % 20 >= 12 {
                2
            } else {
                1
            };
            tokio::time::sleep(Duration::from_millis(pauses * pause_ms)).await;
        }
    });
}

/// Also keeps the pictures, after five minutes, if it is told in which folder. `docs` has the first:
///
/// ```sh
/// OPERATOR_PICTURES=/tmp cargo test --all-features --test operator picture
/// mv /tmp/operator.png docs/
/// ```
#[tokio::test]
async fn the_picture_shows_all_parts_of_the_page() {
    let folder = env::var_os("OPERATOR_PICTURES").map(PathBuf::from);
    let redis = Redis::start();
    let ago = Ago(Arc::new(AtomicU64::new(PAST)));
    let top = TopDenied::new(100);
    let operator = Operator::new().clock(ago.clone()).top_denied(top.clone());
    let operator = operator.client_address(PeerAddr).unwrap();
    let operator = operator.actor(extractor(|_| Some("alice".to_owned())));
    let limiter = Limiter::builder(redis.store().await, policies())
        .observe(operator.clone())
        .observe(top)
        .timeout(SECOND)
        .build()
        .unwrap();
    pass_the_hour(&operator, &ago, if folder.is_some() { 100 } else { 1 }).await;
    for (name, pause_ms) in [
        ("alice", 400),
        ("bob", 250),
        ("carol", 150),
        ("mallory", 12),
    ] {
        come_again(&limiter, &["user", "search"], user(name), pause_ms);
    }
    come_again(&limiter, &["pages"], Key::everybody(), 4);

    let site = Site::about(limiter, operator).await;
    let browser = Browser::start().await;
    browser.open(&site.url).await;
    if folder.is_some() {
        tokio::time::sleep(Duration::from_secs(300)).await;
    }
    let dora = json!({ "header": { "name": "x-user", "value": "dora" } });
    for (path, body) in [
        ("mode", json!({ "policy": "search", "mode": "off" })),
        ("mode", json!({ "policy": "search", "mode": "shadow" })),
        (
            "block",
            json!({
                "policy": "user", "subject": dora, "for_secs": 3_600,
                "reason": "scrapes the catalogue, incident 4711",
            }),
        ),
        (
            "block",
            json!({
                "address": "203.0.113.0/24", "for_secs": 86_400, "reason": "guesses passwords",
            }),
        ),
    ] {
        site.post_ok(path, body).await;
    }
    browser.until("document.querySelector('#changes li')").await;
    browser
        .until("document.querySelector('#top-list button')")
        .await;
    browser.click("#top-list button").await;
    browser.until("document.querySelector('#answer b')").await;
    for (name, width, is_dark) in [
        ("operator", 1_200, false),
        ("operator-dark", 1_200, true),
        ("operator-phone", 390, false),
        ("operator-phone-dark", 390, true),
    ] {
        browser.look(width, 844, is_dark).await;
        let height = browser.run("scrollTo(0, 0); return document.documentElement.scrollHeight");
        let height = u32::try_from(height.await.as_u64().unwrap()).unwrap();
        browser.look(width, height, is_dark).await;
        // Drawn anew at this size.
        browser
            .run("return new Promise((done) => setTimeout(done, 1500))")
            .await;
        let picture = browser.screenshot().await;
        // Its signature, and the width of its first chunk.
        assert_eq!(picture[..8], *b"\x89PNG\r\n\x1a\n");
        assert_eq!(picture[16..20], u32::to_be_bytes(width));
        if let Some(folder) = &folder {
            std::fs::write(folder.join(format!("{name}.png")), picture).unwrap();
        }
    }
    assert_eq!(browser.complaints().await, [""; 0]);
}
