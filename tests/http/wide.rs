//! Limits of fifteen digits, to the last digit: in every family of headers and in answers, on both stores.

use serde_json::Value;
use support::bench::Bench;
use support::web::quota_number;
#[cfg(feature = "calendar")]
use tower_throttle::Calendar;
use tower_throttle::{DAY, Key, Limit, Policy, RateLimitLayer, RequestHead};

use super::headers::{ALL, fetch, values};
use super::{hello, serve};

const WIDE: u64 = 999_999_999_999_999;

/// What the fields of draft 11 say of the only policy.
fn field(response: &reqwest::Response, name: &str, parameter: &str) -> u64 {
    quota_number(
        response.headers()[name].to_str().expect("a text"),
        parameter,
    )
}

async fn shows_every_digit(bench: &Bench, limit: Limit) {
    // A log may be so wide only if each request says its cost.
    let policy = Policy::new("wide", limit).cost_by(|_: &RequestHead<'_>| 1);
    let limiter = bench.limiter([policy]);
    let layer = RateLimitLayer::new(limiter.clone()).headers(ALL);
    let url = serve(hello().layer(layer)).await;
    let shown = async |left: u64, status: u16| {
        let response = fetch(&url).await;
        assert_eq!(response.status(), status, "{limit}");
        assert_eq!(field(&response, "ratelimit-policy", ";q="), WIDE);
        assert_eq!(field(&response, "ratelimit", ";r="), left, "{limit}");
        for prefix in ["ratelimit", "x-ratelimit"] {
            if let Some([most, remaining, _]) = values(response.headers(), prefix) {
                assert_eq!([most, remaining], [WIDE, left], "{limit} {prefix}");
            }
        }
        response
    };
    shown(WIDE - 1, 200).await;
    let everybody = Key::everybody();
    let charged = limiter
        .charge("wide", &everybody, WIDE - 3)
        .await
        .expect("a policy");
    assert_eq!((charged.limit(), charged.remaining()), (WIDE, 2));
    shown(1, 200).await;
    shown(0, 200).await;
    let denied = shown(0, 429).await;
    let problem: Value = denied.json().await.expect("a problem document");
    assert_eq!(problem["status"], 429);
    let credited = limiter
        .credit("wide", &everybody, WIDE - 7)
        .await
        .expect("a policy");
    assert_eq!(credited.remaining(), WIDE - 7);
}

#[tokio::test]
async fn limits_of_fifteen_digits_are_shown_and_counted_to_the_last() {
    for limit in [
        Limit::fixed_window(WIDE, 366 * DAY),
        Limit::sliding_window(WIDE, 366 * DAY),
        Limit::sliding_log(WIDE, 366 * DAY),
        Limit::sliding_counter(WIDE, 366 * DAY),
        #[cfg(feature = "calendar")]
        Limit::calendar(WIDE, Calendar::month()),
    ] {
        shows_every_digit(&Bench::memory(), limit).await;
        shows_every_digit(&Bench::redis().await, limit).await;
    }
}
