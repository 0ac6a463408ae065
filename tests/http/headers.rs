//! The families of quota headers, CORS and preflights, over real sockets.

use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::response::Redirect;
use axum::routing::get;
use http::{HeaderMap, Method, Response};
use tower_http::cors::{Any, CorsLayer};
use tower_throttle::{
    Key, Limit, Limiter, MINUTE, OnRejection, PlainText, Policy, ProblemJson, QuotaHeaders,
    RateLimitLayer, Rejection, RequestHead, SECOND,
};

use super::{hello, serve};
use support::http_store::{TRIPS, TestStore, Trip};

/// Every family there is.
pub(super) const ALL: QuotaHeaders = QuotaHeaders::DRAFT_11
    .and(QuotaHeaders::DRAFT_6)
    .and(QuotaHeaders::X_RATELIMIT_DELTA);

fn layer(policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::new(limiter(policies)).headers(ALL)
}

pub(super) fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    Limiter::new(TestStore::new(Trip::Short), policies).expect("sound policies")
}

pub(super) fn everybody(name: &str, permits: u64) -> Policy {
    Policy::new(name, Limit::gcra(permits, MINUTE))
}

fn client() -> reqwest::Client {
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
    client.build().expect("a client")
}

pub(super) async fn fetch(url: &str) -> reqwest::Response {
    client().get(url).send().await.expect("a response")
}

/// The values of the three headers with this prefix; `None` if none is there.
pub(super) fn values(headers: &HeaderMap, prefix: &str) -> Option<[u64; 3]> {
    let lines = ["limit", "remaining", "reset"].map(|name| {
        let lines = headers.get_all(format!("{prefix}-{name}"));
        lines.iter().collect::<Vec<_>>()
    });
    if lines.iter().all(Vec::is_empty) {
        return None;
    }
    Some(lines.map(|lines| {
        assert_eq!(lines.len(), 1, "{headers:?}");
        let text = lines[0].to_str().expect("a text");
        assert!(text.bytes().all(|byte| byte.is_ascii_digit()), "{text:?}");
        text.parse().expect("a number")
    }))
}

pub(super) fn is_silent(headers: &HeaderMap) -> bool {
    let of_quotas = ALL.names().into_iter().filter(|name| name != "retry-after");
    of_quotas
        .into_iter()
        .all(|name| !headers.contains_key(name))
}

#[tokio::test]
async fn older_headers_show_the_policy_closest_to_exhaustion() {
    let policies = [
        everybody("many", 100),
        everybody("few", 3),
        Policy::new("at once", Limit::concurrency(1)),
    ];
    let url = serve(hello().layer(layer(policies))).await;
    for (status, left, reset) in [(200, 2, 20), (200, 1, 40), (200, 0, 60), (429, 0, 60)] {
        let response = fetch(&url).await;
        assert_eq!(response.status(), status);
        let headers = response.headers();
        for prefix in ["ratelimit", "x-ratelimit"] {
            assert_eq!(values(headers, prefix), Some([3, left, reset]));
        }
        let lists = headers["ratelimit"].to_str().expect("a text");
        for name in ["\"many\"", "\"few\"", "\"at once\""] {
            assert!(lists.contains(name), "{lists}");
        }
    }
}

/// A window gives five times as many as may come at once.
#[tokio::test]
async fn headers_of_one_value_show_the_fewest_permits() {
    let burst = Policy::new("burst", Limit::gcra(100, MINUTE).burst(20));
    let window = Policy::new("window", Limit::fixed_window(10, MINUTE));
    let url = serve(hello().layer(layer([burst, window]))).await;
    for left in (0..10).rev() {
        let headers = fetch(&url).await.headers().clone();
        for prefix in ["ratelimit", "x-ratelimit"] {
            let [limit, remaining, _] = values(&headers, prefix).expect("headers");
            assert_eq!((limit, remaining), (10, left));
        }
    }
    assert_eq!(fetch(&url).await.status(), 429);
}

#[tokio::test]
async fn headers_do_not_include_what_their_response_gives_back() {
    let login = Policy::new("login", Limit::sliding_log(1, 15 * MINUTE))
        .count_if(|response| response.status == 401);
    let limiter = Limiter::new(TestStore::new(Trip::None), [login]).expect("a valid policy");
    let url = serve(hello().layer(RateLimitLayer::new(limiter).headers(ALL))).await;
    for _ in 0..3 {
        let response = fetch(&url).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["ratelimit"], "\"login\";r=0;t=900");
        assert_eq!(values(response.headers(), "ratelimit"), Some([1, 0, 900]));
    }
}

/// A permit is there after a minute. Who comes ten seconds earlier is held up until then.
#[tokio::test]
async fn a_denial_by_a_policy_that_holds_up_requests_tells_one_time() {
    let policy = everybody("queue", 1).max_wait(10 * SECOND);
    let url = serve(hello().layer(layer([policy]))).await;
    assert_eq!(fetch(&url).await.status(), 200);
    let denied = fetch(&url).await;
    assert_eq!(denied.status(), 429);
    let seconds = denied.headers()["retry-after"].to_str().unwrap();
    assert!((1..=50).contains(&seconds.parse().unwrap()), "{seconds}");
    assert_eq!(
        denied.headers()["ratelimit"],
        format!("\"queue\";r=0;t={seconds}")
    );
}

#[tokio::test]
async fn a_limit_of_requests_at_the_same_time_has_no_older_headers() {
    let policy = Policy::new("at once", Limit::concurrency(5));
    let url = serve(hello().layer(layer([policy]))).await;
    let response = fetch(&url).await;
    assert!(response.headers().contains_key("ratelimit"));
    assert_eq!(values(response.headers(), "ratelimit"), None);
    assert_eq!(values(response.headers(), "x-ratelimit"), None);
}

/// A policy with permits left does not explain why there are none.
#[tokio::test]
async fn a_denial_by_a_concurrency_limit_has_no_headers_of_one_value() {
    let at_once = || Policy::new("at once", Limit::concurrency(1));
    let both = limiter([everybody("beside", 7), at_once()]);
    let alone = limiter([at_once()]);
    let mut held = Vec::new();
    for limiter in [&both, &alone] {
        held.push(
            limiter
                .admit("at once", Key::everybody())
                .await
                .expect("a place"),
        );
    }
    let inner = RateLimitLayer::new(alone).headers(QuotaHeaders::DRAFT_11);
    let nested = hello().layer(inner).layer(layer([everybody("outer", 7)]));
    let both = hello().layer(RateLimitLayer::new(both).headers(ALL));
    for app in [both, nested] {
        let denied = fetch(&serve(app).await).await;
        assert_eq!(denied.status(), 429);
        let headers = denied.headers();
        assert!(headers.contains_key("ratelimit"));
        assert_eq!(values(headers, "ratelimit"), None);
        assert_eq!(values(headers, "x-ratelimit"), None);
    }
}

#[tokio::test]
async fn a_reset_since_the_epoch_is_this_servers_time() {
    let unix_time = || SystemTime::now().duration_since(UNIX_EPOCH).expect("today");
    let headers = QuotaHeaders::X_RATELIMIT_EPOCH;
    let url = serve(hello().layer(layer([everybody("api", 2)]).headers(headers))).await;
    let before = unix_time().as_secs();
    let response = fetch(&url).await;
    let after = unix_time().as_secs() + 1;
    let [limit, remaining, reset] = values(response.headers(), "x-ratelimit").expect("headers");
    assert_eq!((limit, remaining), (2, 1));
    assert!((before + 30..=after + 30).contains(&reset), "{reset}");
}

#[tokio::test]
async fn families_can_be_kept_to_denials_each_by_itself() {
    let older = QuotaHeaders::X_RATELIMIT_DELTA.on_denials();
    let headers = QuotaHeaders::DRAFT_11.and(older);
    let url = serve(hello().layer(layer([everybody("api", 1)]).headers(headers))).await;
    for (status, expected) in [(200, None), (429, Some([1, 0, 60]))] {
        let response = fetch(&url).await;
        assert_eq!(response.status(), status);
        assert!(response.headers().contains_key("ratelimit"));
        assert_eq!(values(response.headers(), "x-ratelimit"), expected);
    }
}

#[tokio::test]
async fn headers_of_one_value_show_the_tighter_of_nested_layers_once() {
    for (inner, outer) in [(3, 100), (100, 3)] {
        let app = hello().layer(layer([everybody("inner", inner)]));
        let url = serve(app.layer(layer([everybody("outer", outer)]))).await;
        let response = fetch(&url).await;
        for prefix in ["ratelimit", "x-ratelimit"] {
            assert_eq!(values(response.headers(), prefix), Some([3, 2, 20]));
        }
        assert_eq!(response.headers().get_all("ratelimit").iter().count(), 2);
    }
}

#[tokio::test]
async fn headers_of_one_value_show_the_denial_of_an_inner_layer() {
    // The second request uses up the outer policy, which allows it.
    let inner = layer([everybody("inner", 4).cost(3)]);
    let outer = layer([everybody("outer", 10).cost(5)]);
    let url = serve(hello().layer(inner).layer(outer)).await;
    fetch(&url).await;
    let denied = fetch(&url).await;
    assert_eq!(denied.status(), 429);
    assert_eq!(values(denied.headers(), "x-ratelimit"), Some([4, 1, 45]));
    assert_eq!(denied.headers()["retry-after"], "30");
}

#[tokio::test]
async fn no_family_is_written_on_redirects_or_without_an_answer() {
    let app = Router::new().route("/", get(|| async { Redirect::to("/there") }));
    let nested = app
        .layer(layer([everybody("api", 5)]))
        .layer(layer([everybody("outer", 5)]));
    let redirect = fetch(&serve(nested).await).await;
    assert_eq!(redirect.status(), 303);
    assert!(is_silent(redirect.headers()));

    for trip in [Trip::Fails, Trip::FailsLate] {
        let limiter = TestStore::new(trip).limiter(Limit::gcra(5, MINUTE));
        let layer = RateLimitLayer::new(limiter).headers(ALL);
        let passed = fetch(&serve(hello().layer(layer)).await).await;
        assert_eq!(passed.status(), 200);
        assert!(is_silent(passed.headers()));
    }
}

#[tokio::test]
async fn a_denial_has_every_family_whoever_builds_its_body() {
    fn own(_: &RequestHead<'_>, _: &Rejection) -> Response<String> {
        Response::new("slow down".to_owned())
    }
    async fn denied(builder: impl OnRejection) -> reqwest::Response {
        let layer = layer([everybody("api", 1)]).on_rejection(builder);
        let url = serve(hello().layer(layer)).await;
        fetch(&url).await;
        fetch(&url).await
    }
    for denied in [
        denied(ProblemJson).await,
        denied(PlainText).await,
        denied(own).await,
    ] {
        assert_eq!(denied.status(), 429);
        for name in ALL.names() {
            assert!(denied.headers().contains_key(&name), "{name}");
        }
        assert_eq!(values(denied.headers(), "ratelimit"), Some([1, 0, 60]));
    }
}

fn cors(headers: QuotaHeaders) -> CorsLayer {
    let cors = CorsLayer::new().allow_origin(Any).allow_methods(Any);
    cors.expose_headers(headers.names())
}

/// What a browser asks before it lets code from another origin send a `DELETE`.
async fn preflight(url: &str) -> reqwest::Response {
    let request = client()
        .request(Method::OPTIONS, url)
        .header("origin", "https://app.example")
        .header("access-control-request-method", "DELETE");
    request.send().await.expect("a response")
}

#[tokio::test]
async fn a_cors_layer_outside_shows_denials_to_browsers() {
    let app = hello().layer(layer([everybody("api", 1)])).layer(cors(ALL));
    let url = serve(app).await;
    for _ in 0..3 {
        assert_eq!(preflight(&url).await.status(), 200);
    }
    for status in [200, 429] {
        let request = client().get(&url).header("origin", "https://app.example");
        let response = request.send().await.expect("a response");
        assert_eq!(response.status(), status);
        let headers = response.headers();
        assert_eq!(headers["access-control-allow-origin"], "*");
        let exposed = headers["access-control-expose-headers"].to_str();
        let exposed: Vec<_> = exposed.expect("a text").split(',').collect();
        for name in headers
            .keys()
            .filter(|name| name.as_str().contains("ratelimit"))
        {
            assert!(exposed.contains(&name.as_str()), "{name}");
        }
        assert!(exposed.contains(&"retry-after"));
    }
}

#[tokio::test]
async fn preflights_are_limited_unless_they_are_skipped() {
    for trip in TRIPS {
        let limited = |permits| {
            let limiter = TestStore::new(trip).limiter(Limit::gcra(permits, MINUTE));
            RateLimitLayer::new(limiter)
        };
        let app = |layer| hello().layer(cors(QuotaHeaders::DRAFT_11)).layer(layer);

        let url = serve(app(limited(1))).await;
        assert_eq!(preflight(&url).await.status(), 200);
        assert_eq!(preflight(&url).await.status(), 429);

        let url = serve(app(limited(1).skip_preflights())).await;
        for _ in 0..3 {
            let passed = preflight(&url).await;
            assert_eq!(passed.status(), 200);
            assert_eq!(passed.headers()["access-control-allow-methods"], "*");
            assert!(is_silent(passed.headers()));
        }
        assert_eq!(fetch(&url).await.status(), 200);
        assert_eq!(fetch(&url).await.status(), 429);
        assert_eq!(preflight(&url).await.status(), 200);
    }
}

#[tokio::test]
async fn only_preflights_are_skipped() {
    let url = serve(hello().layer(layer([everybody("api", 4)]).skip_preflights())).await;
    let options = |names: &[&'static str]| {
        let request = client().request(Method::OPTIONS, &url);
        let request = names
            .iter()
            .fold(request, |request, name| request.header(*name, "x"));
        async { request.send().await.expect("a response") }
    };
    for names in [&[][..], &["origin"], &["access-control-request-method"]] {
        assert!(options(names).await.headers().contains_key("ratelimit"));
    }
    let get = client()
        .get(&url)
        .header("origin", "x")
        .header("access-control-request-method", "x");
    let decided = get.send().await.expect("a response");
    assert_eq!(values(decided.headers(), "ratelimit"), Some([4, 0, 60]));
    assert_eq!(options(&[]).await.status(), 429);
}
