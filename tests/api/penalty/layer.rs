//! Through the layer, over real sockets, on every store.

use std::time::Duration;

use axum::Router;
use axum::routing::any;
use http::Response;
use serde_json::{Value, json};
use tower_throttle::{
    DAY, HOUR, Key, Limit, MINUTE, Penalty, Policy, RateLimitLayer, Rejection, RequestHead, SECOND,
};

use super::{ban, check, strict};
use support::bench::Bench;
use support::limits::in_time;
use support::on_every_store;
use support::web::{Service, serve};

on_every_store! {
    a_banned_client_gets_429_until_the_ban_ends
    a_banned_call_over_grpc_is_resource_exhausted
    the_layers_outside_see_that_it_was_a_ban
    bans_by_limits_without_window_are_reported_in_seconds
    a_ban_tells_each_tier_how_long_its_limit_denies
    a_denial_by_another_policy_is_not_counted
    nothing_is_charged_to_other_policies_during_a_ban
    a_request_that_costs_nothing_passes_during_a_ban
    no_permits_are_promised_for_a_bans_end_its_limit_outlasts
}

fn alice(_: &RequestHead<'_>) -> Option<Key> {
    Some(Key::from("alice"))
}

async fn a_banned_client_gets_429_until_the_ban_ends(bench: &Bench) {
    for (name, limit) in in_time(2, MINUTE) {
        let penalty = Penalty::after(3, MINUTE, Duration::from_millis(90_500));
        let policy = Policy::new("login", limit).by(alice).penalty(penalty);
        let limiter = bench.limiter([policy]);
        let service = Service::open();
        let url = format!("{}/200/0", service.behind(limiter.clone()).await);
        for expected in [200, 200, 429, 429] {
            let response = reqwest::get(&url).await.unwrap();
            assert_eq!(response.status(), expected, "{name}");
        }
        let looked = limiter.peek("login", "alice").await.unwrap();
        assert_eq!(
            looked.banned_for(),
            None,
            "{name}: two denials are none too many"
        );
        for _ in 0..2 {
            let banned = reqwest::get(&url).await.unwrap();
            assert_eq!(banned.status(), 429, "{name}");
            assert_eq!(banned.headers()["retry-after"], "91", "{name}");
            assert_eq!(
                banned.headers()["ratelimit"],
                "\"login\";r=0;t=91",
                "{name}"
            );
            let problem: Value = banned.json().await.unwrap();
            let expected = json!({
                "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
                "title": "Quota exceeded",
                "status": 429,
                "detail": "policy \"login\": the quota was exceeded too often, retry after 91 s",
                "violated-policies": ["login"],
                "retry-after-secs": 91,
            });
            assert_eq!(problem, expected, "{name}");
        }
        assert_eq!(service.calls(), 2, "{name}");
        bench.advance(Duration::from_millis(90_500));
        bench.advance(2 * MINUTE);
        assert_eq!(reqwest::get(&url).await.unwrap().status(), 200, "{name}");
        let _ = limiter.reset("login", "alice").await.unwrap();
    }
}

async fn a_banned_call_over_grpc_is_resource_exhausted(bench: &Bench) {
    let limiter = bench.limiter([strict().by(alice)]);
    let _ = ban(&limiter).await;
    let url = Service::open().behind(limiter).await;
    let client = reqwest::Client::builder().http2_prior_knowledge();
    let call = client.build().unwrap().post(format!("{url}/200/0"));
    let call = call.header("content-type", "application/grpc").send();
    let banned = call.await.unwrap();
    assert_eq!(banned.status(), 200);
    assert_eq!(banned.headers()["grpc-status"], "8");
    assert_eq!(
        banned.headers()["grpc-message"],
        "policy \"login\": the quota was exceeded too often, retry after 86400 s"
    );
}

async fn the_layers_outside_see_that_it_was_a_ban(bench: &Bench) {
    let tell = |response: Response<axum::body::Body>| async {
        let mut response = response;
        if let Some(rejection) = response.extensions().get::<Rejection>() {
            let reason = format!("{:?} {:?}", rejection.kind(), rejection.retry_after());
            let reason = reason.parse().unwrap();
            response.headers_mut().insert("x-reason", reason);
        }
        response
    };
    let limiter = bench.limiter([strict().by(alice)]);
    let app = Router::new()
        .route("/", any(|| async { "hello" }))
        .layer(RateLimitLayer::new(limiter.clone()))
        .layer(axum::middleware::map_response(tell));
    let url = serve(app).await;
    let _ = check(&limiter).await;
    for reason in ["QuotaExceeded", "QuotaExceeded", "Banned", "Banned"] {
        let denied = reqwest::get(&url).await.unwrap();
        assert_eq!(
            denied.headers()["x-reason"],
            format!("{reason} Some(86400s)")
        );
    }
}

async fn bans_by_limits_without_window_are_reported_in_seconds(bench: &Bench) {
    // The lease of the request inside lasts for longer, but nobody waits for that.
    let policy = Policy::new("login", Limit::concurrency(1).lease(DAY))
        .by(alice)
        .penalty(Penalty::after(2, MINUTE, HOUR));
    let limiter = bench.limiter([policy]);
    let service = Service::closed();
    let url = format!("{}/200/0", service.behind(limiter).await);
    let inside = tokio::spawn(reqwest::get(url.clone()));
    service.inside(1).await;
    for retry_after in ["1", "3600", "3600"] {
        let denied = reqwest::get(&url).await.unwrap();
        assert_eq!(denied.status(), 429);
        assert_eq!(denied.headers()["retry-after"], retry_after);
        assert_eq!(denied.headers()["ratelimit"], "\"login\";r=0");
    }
    service.let_out(1);
    assert_eq!(inside.await.unwrap().unwrap().status(), 200);
    let banned = reqwest::get(&url).await.unwrap();
    assert_eq!(banned.status(), 429, "also when there is a permit");
}

async fn a_ban_tells_each_tier_how_long_its_limit_denies(bench: &Bench) {
    let premium = |request: &RequestHead<'_>, _: &Key| {
        let is_premium = request.headers.contains_key("x-premium");
        is_premium.then_some(Limit::gcra(4, HOUR))
    };
    let policy = Policy::new("login", Limit::gcra(2, HOUR))
        .by(alice)
        .limit_by(premium)
        .penalty(Penalty::after(1, MINUTE, 10 * SECOND));
    let service = Service::open();
    let url = format!("{}/200/0", service.behind(bench.limiter([policy])).await);
    let ask = async |is_premium| {
        let mut request = reqwest::Client::new().get(&url);
        if is_premium {
            request = request.header("x-premium", "yes");
        }
        let response = request.send().await.unwrap();
        let wait = response.headers().get("retry-after");
        wait.map(|wait| wait.to_str().unwrap().to_owned())
    };
    for expected in [None, None, Some("1800"), Some("1800")] {
        assert_eq!(ask(false).await.as_deref(), expected);
    }
    for _ in 0..2 {
        assert_eq!(ask(true).await.as_deref(), Some("900"));
    }
}

async fn a_denial_by_another_policy_is_not_counted(bench: &Bench) {
    let limiter = bench.limiter([
        Policy::new("wide", Limit::fixed_window(100, DAY))
            .by(alice)
            .penalty(Penalty::after(1, DAY, DAY)),
        Policy::new("narrow", Limit::fixed_window(1, DAY))
            .by(alice)
            .penalty(Penalty::after(4, DAY, 2 * DAY)),
    ]);
    let url = format!("{}/200/0", Service::open().behind(limiter.clone()).await);
    for expected in [200, 429, 429, 429] {
        let response = reqwest::get(&url).await.unwrap();
        assert_eq!(response.status(), expected);
    }
    let wide = limiter.peek("wide", "alice").await.unwrap();
    assert_eq!((wide.remaining(), wide.banned_for()), (99, None));
    let denied = reqwest::get(&url).await.unwrap();
    assert_eq!(denied.headers()["retry-after"], "172800");
    let problem: Value = denied.json().await.unwrap();
    assert_eq!(problem["violated-policies"], json!(["narrow"]));
}

async fn nothing_is_charged_to_other_policies_during_a_ban(bench: &Bench) {
    let limiter = bench.limiter([
        Policy::new("everybody", Limit::gcra(100, DAY)),
        strict().by(alice),
    ]);
    let url = format!("{}/200/0", Service::open().behind(limiter.clone()).await);
    assert!(reqwest::get(&url).await.unwrap().status().is_success());
    let left = async || {
        let looked = limiter.peek("everybody", Key::everybody()).await.unwrap();
        (looked.remaining(), looked.reset_after())
    };
    let before = left().await;
    assert_eq!(before.0, 99);
    for _ in 0..10 {
        assert_eq!(reqwest::get(&url).await.unwrap().status(), 429);
    }
    assert_eq!(left().await, before);
    // Nor is the policy's own quota, if it is back before the ban ends.
    let looked = limiter.peek("login", "alice").await.unwrap();
    assert_eq!(looked.banned_for(), Some(HOUR));
    assert_eq!(looked.reset_after(), DAY);
}

async fn a_request_that_costs_nothing_passes_during_a_ban(bench: &Bench) {
    let stated = |request: &RequestHead<'_>| match request.uri.path().ends_with("/0") {
        true => 0,
        false => 1,
    };
    let limiter = bench.limiter([strict().by(alice).cost_by(stated)]);
    let _ = ban(&limiter).await;
    let url = Service::open().behind(limiter).await;
    for (cost, expected) in [(0, 200), (1, 429), (0, 200)] {
        let response = reqwest::get(format!("{url}/200/{cost}")).await.unwrap();
        assert_eq!(response.status(), expected);
    }
}

async fn no_permits_are_promised_for_a_bans_end_its_limit_outlasts(bench: &Bench) {
    let stated = |request: &RequestHead<'_>| {
        let last = request.uri.path().rsplit('/').next();
        last.and_then(|cost| cost.parse().ok()).unwrap_or(1)
    };
    for (name, limit, more_in) in [
        ("gcra", Limit::gcra(2, HOUR), 1800),
        ("log", Limit::sliding_log(2, HOUR), 3600),
        ("window", Limit::fixed_window(2, HOUR), 3600),
    ] {
        let policy = Policy::new(name, limit)
            .by(alice)
            .cost_by(stated)
            .penalty(Penalty::after(1, MINUTE, 10 * SECOND));
        let url = Service::open().behind(bench.limiter([policy])).await;
        let ask = async |cost: u64, expected: u16| {
            let response = reqwest::get(format!("{url}/200/{cost}")).await.unwrap();
            assert_eq!(response.status(), expected, "{name}, a cost of {cost}");
            response.headers()["ratelimit"].to_str().unwrap().to_owned()
        };
        ask(1, 200).await;
        ask(1, 200).await;
        // The first of these never fits and causes the ban, the second only looks.
        for (cost, expected) in [(3, 429), (0, 200)] {
            let told = ask(cost, expected).await;
            let (_, secs) = told.split_once(";r=0;t=").unwrap();
            // Some of them have passed.
            let secs: u64 = secs.parse().unwrap();
            assert!((more_in / 2..=more_in).contains(&secs), "{cost}: {told}");
        }
    }
}

#[tokio::test]
async fn each_request_is_one_script_call_with_a_penalty_too() {
    let bench = Bench::redis().await;
    let server = bench.server();
    let limiter = bench.limiter([
        strict().by(alice),
        Policy::new("wide", Limit::gcra(100, DAY)).penalty(Penalty::after(9, MINUTE, HOUR)),
    ]);
    let url = format!("{}/200/0", Service::open().behind(limiter.clone()).await);
    let at_start = server.calls("evalsha");
    for _ in 0..8 {
        reqwest::get(&url).await.unwrap();
    }
    assert_eq!(server.calls("evalsha") - at_start, 8);
    let _ = limiter.peek("login", "alice").await.unwrap();
    assert_eq!(server.calls("evalsha") - at_start, 9);
}
