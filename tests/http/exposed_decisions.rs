//! What a handler sees of the decisions about its request, over a real server; and stores that
//! always give the same answer, for tests of handlers.
#![cfg(all(feature = "axum", feature = "memory"))]

use std::time::Duration;

use axum::Router;
use axum::routing::{any, get};
use http::{Extensions, Method};
use reqwest::{Client, Response};
use support::web::serve;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    AccessList, AlwaysAllow, AlwaysDeny, CheckError, Decision, Denied, FailureMode, Header, Key,
    Limit, Limiter, MINUTE, ManualClock, MemoryStore, Mode, NoRequest, Penalty, Policy,
    RateLimitLayer, Rejection, RejectionKind, Route, Rules, StoreError, StoreErrorKind, Verdict,
    per_minute,
};

/// A store on a stopped clock.
fn store() -> MemoryStore {
    MemoryStore::builder().clock(ManualClock::new()).build()
}

fn layer(store: impl Store, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::new(store, policies).unwrap())
}

/// `name=remaining` of each policy, in the order of the verdict.
fn shown(verdict: &Verdict) -> String {
    let each = verdict.iter();
    let each = each.map(|(name, decision)| format!("{name}={}", decision.remaining()));
    each.collect::<Vec<_>>().join(" ")
}

fn app() -> Router {
    Router::new()
        .route("/verdict", get(async |verdict: Verdict| shown(&verdict)))
        .route(
            "/decision",
            any(async |decision: Option<Decision>| match decision {
                Some(decision) => decision.remaining().to_string(),
                None => "nobody was asked".to_owned(),
            }),
        )
        .route(
            "/extension",
            get(async |extensions: Extensions| {
                let verdict: Option<&Verdict> = extensions.get();
                verdict.map_or("none".to_owned(), shown)
            }),
        )
}

async fn ask(url: &str, path: &str) -> Response {
    let request = Client::new().get(format!("{url}{path}"));
    request.header("x-user", "alice").send().await.unwrap()
}

async fn text(url: &str, path: &str) -> String {
    let response = ask(url, path).await;
    assert_eq!(response.status(), 200, "{path}");
    response.text().await.unwrap()
}

fn user(permits: u64) -> Policy {
    Policy::new("user", Limit::fixed_window(permits, MINUTE)).by(Header::new("x-user"))
}

fn all(permits: u64) -> Policy {
    Policy::new("all", Limit::fixed_window(permits, MINUTE))
}

#[tokio::test]
async fn a_handler_sees_what_is_left_of_each_policy_that_was_asked() {
    let elsewhere = Policy::new("elsewhere", Limit::gcra(1, MINUTE)).on(Route::post("/verdict"));
    let limits = layer(store(), [user(10), elsewhere, all(100)]).expose_decisions();
    let url = serve(app().layer(limits)).await;
    assert_eq!(text(&url, "/verdict").await, "user=9 all=99");
    assert_eq!(text(&url, "/extension").await, "user=8 all=98");
}

#[tokio::test]
async fn a_decision_is_that_of_the_policy_closest_to_exhaustion() {
    // 19 of 100 are a smaller share than 9 of 10.
    let burst = Policy::new("burst", Limit::gcra(100, MINUTE).burst(20));
    let limits = layer(store(), [burst, user(10)]).expose_decisions();
    let url = serve(app().layer(limits)).await;
    for (tightest, verdict) in [("9", "burst=18 user=8"), ("7", "burst=16 user=6")] {
        assert_eq!(text(&url, "/decision").await, tightest);
        assert_eq!(text(&url, "/verdict").await, verdict);
    }
}

/// A store that never answers.
struct Gone;

impl Store for Gone {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable)))
    }
}

#[tokio::test]
async fn unevaluated_policies_are_not_closest_to_exhaustion() {
    let local = user(10).on_store_failure(FailureMode::Local { share: 1.0 });
    let limits = layer(Gone, [all(100), local]).expose_decisions();
    let url = serve(app().layer(limits)).await;
    assert_eq!(text(&url, "/decision").await, "9");
    let limits = layer(Gone, [all(100)]).expose_decisions();
    let url = serve(app().layer(limits)).await;
    assert_eq!(
        text(&url, "/decision").await,
        "0",
        "where there is no other"
    );
}

#[tokio::test]
async fn nested_layers_tell_all_decisions_the_outer_first() {
    let outer = layer(store(), [all(100)]).expose_decisions();
    let inner = layer(store(), [user(10)]).expose_decisions();
    let url = serve(app().layer(inner).layer(outer)).await;
    assert_eq!(text(&url, "/verdict").await, "all=99 user=9");
    assert_eq!(text(&url, "/decision").await, "8");
}

#[tokio::test]
async fn a_layer_that_exposes_nothing_hides_no_decision_of_others() {
    let outer = layer(store(), [all(100)]).expose_decisions();
    let silent = layer(store(), [Policy::new("silent", Limit::gcra(1_000, MINUTE))]);
    let inner = layer(store(), [user(10)]).expose_decisions();
    let url = serve(app().layer(inner).layer(silent).layer(outer)).await;
    assert_eq!(text(&url, "/verdict").await, "all=99 user=9");
}

#[tokio::test]
async fn a_shadow_policy_is_not_a_handlers_business() {
    let trial = Policy::new("trial", Limit::gcra(1, MINUTE)).mode(Mode::Shadow);
    let limits = layer(store(), [trial, user(10)]).expose_decisions();
    let url = serve(app().layer(limits)).await;
    for left in ["user=9", "user=8"] {
        assert_eq!(text(&url, "/verdict").await, left);
    }
}

#[tokio::test]
async fn a_request_without_policies_gets_a_verdict_without_decisions() {
    let elsewhere = user(1).on(Route::get("/elsewhere"));
    let url = serve(app().layer(layer(store(), [elsewhere]).expose_decisions())).await;
    assert_eq!(text(&url, "/verdict").await, "");
    assert_eq!(text(&url, "/decision").await, "nobody was asked");
}

#[tokio::test]
async fn a_handler_that_shows_what_is_left_survives_every_switch() {
    let limiter = Limiter::new(store(), [user(10)]).unwrap();
    let limits = RateLimitLayer::new(limiter.clone()).expose_decisions();
    let url = serve(app().layer(limits.skip_preflights())).await;
    let shows = async |left: &str, when: &str| {
        assert_eq!(text(&url, "/decision").await, left, "{when}");
    };
    let nobody = "nobody was asked";
    shows("9", "at first").await;
    limiter.turn_off();
    shows(nobody, "limiting is off").await;
    limiter.turn_on();
    for mode in [Mode::Shadow, Mode::Off] {
        limiter.set_mode("user", mode).unwrap();
        shows(nobody, mode.as_str()).await;
    }
    limiter.set_mode("user", Mode::Enforce).unwrap();
    limiter.set_allowed(AccessList::new().keys([Key::header("x-user", b"alice")]));
    shows(nobody, "alice is let through").await;
    limiter.set_allowed(AccessList::new());
    let preflight = Client::new().request(Method::OPTIONS, format!("{url}/decision"));
    let preflight = preflight.header("origin", "https://example.com");
    let preflight = preflight.header("access-control-request-method", "GET");
    let answer = preflight.send().await.unwrap().text().await.unwrap();
    assert_eq!(answer, nobody, "a preflight");
    let rules = Rules::new([user(10)]);
    let exempt = rules.exempt(Route::any("/decision"));
    limiter.replace(exempt).unwrap();
    shows(nobody, "the route is exempt").await;
    let elsewhere = user(10).on(Route::get("/elsewhere"));
    limiter.replace([elsewhere]).unwrap();
    shows(nobody, "the policy is about another route").await;
}

#[tokio::test]
async fn handlers_without_exposed_decisions_get_an_error() {
    let url = serve(app().layer(layer(store(), [user(10)]))).await;
    for path in ["/verdict", "/decision"] {
        let response = ask(&url, path).await;
        assert_eq!(response.status(), 500, "{path}");
        let text = response.text().await.unwrap();
        assert!(text.contains("expose_decisions"), "{path}: {text}");
    }
    assert_eq!(text(&url, "/extension").await, "none");
}

#[tokio::test]
async fn a_client_cannot_bring_a_verdict_of_its_own() {
    let url = serve(app().layer(layer(store(), [user(10)]).expose_decisions())).await;
    let request = Client::new().get(format!("{url}/verdict"));
    let request = request
        .header("x-user", "alice")
        .header("verdict", "user=1000");
    assert_eq!(
        request.send().await.unwrap().text().await.unwrap(),
        "user=9"
    );
}

#[tokio::test]
async fn a_service_behind_a_store_that_always_allows_is_never_limited() {
    let policies = [user(1), all(1)];
    let url = serve(app().layer(layer(AlwaysAllow, policies).expose_decisions())).await;
    for _ in 0..20 {
        let response = ask(&url, "/verdict").await;
        let quota = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(quota.contains("r=1"), "{quota}");
        assert_eq!(response.text().await.unwrap(), "user=1 all=1");
    }
}

#[tokio::test]
async fn a_client_of_an_always_denying_store_sees_a_usual_denial() {
    let store = AlwaysDeny::new(Duration::from_secs(7));
    let url = serve(app().layer(layer(store, [user(1_000)]))).await;
    for _ in 0..3 {
        let response = ask(&url, "/decision").await;
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()["retry-after"], "7");
        let text = response.text().await.unwrap();
        assert!(text.contains("violated-policies"), "{text}");
    }
}

#[tokio::test]
async fn stores_that_always_say_the_same_do_so_whatever_the_limit() {
    let penalty = Penalty::after(1, MINUTE, MINUTE);
    let policies = || {
        [
            Policy::new("gcra", Limit::gcra(1, MINUTE)),
            Policy::new("log", Limit::sliding_log(1, MINUTE)),
            Policy::new("queue", Limit::leaky_bucket(1, per_minute(1))),
            Policy::new("slots", Limit::concurrency(1)),
            Policy::new("penalty", Limit::gcra(1, MINUTE)).penalty(penalty),
        ]
    };
    let wait = Duration::from_secs(7);
    let allowing = Limiter::new(AlwaysAllow, policies()).unwrap();
    let denying = Limiter::new(AlwaysDeny::new(wait), policies()).unwrap();
    for policy in ["gcra", "log", "queue", "slots", "penalty"] {
        for _ in 0..3 {
            let allowed = allowing.check(policy, "alice").await.unwrap();
            assert!(
                allowed.is_allowed() && allowed.delay().is_zero(),
                "{policy}"
            );
            let denied = denying.check(policy, "alice").await.unwrap();
            assert_eq!(denied.retry_after(), Some(wait), "{policy}");
            assert_eq!(denied.banned_for(), None, "{policy}");
            assert!(
                denying.peek(policy, "alice").await.unwrap().is_allowed(),
                "{policy}"
            );
        }
    }
}

/// A policy that a handler asks itself, since the key is in the body.
fn by_hand(store: impl Store, limit: Limit) -> Limiter {
    let policy = Policy::new("login", limit)
        .on(NoRequest)
        .on_store_failure(FailureMode::Deny);
    Limiter::new(store, [policy]).unwrap()
}

#[tokio::test]
async fn handlers_that_check_reject_as_the_layer_does() {
    let limits = layer(store(), [Policy::new("login", Limit::gcra(1, MINUTE))]);
    let by_layer = Router::new().route("/", any(async || "in")).layer(limits);
    let limiter = by_hand(store(), Limit::gcra(1, MINUTE));
    let by_handler = Router::new().route(
        "/",
        any(async move || {
            let _permit = limiter.admit("login", Key::everybody()).await?;
            Ok::<_, Denied>("in")
        }),
    );
    let (by_layer, by_handler) = (serve(by_layer).await, serve(by_handler).await);
    let client = Client::new();
    let answers = async |url: &str| {
        let first = client.get(url).send().await.unwrap();
        assert_eq!(first.text().await.unwrap(), "in");
        let denied = client.get(url).send().await.unwrap();
        let of = |name: &str| denied.headers().get(name).cloned();
        let headers = ["retry-after", "cache-control", "content-type"].map(of);
        (denied.status(), headers, denied.text().await.unwrap())
    };
    assert_eq!(answers(&by_handler).await, answers(&by_layer).await);
}

#[tokio::test]
async fn each_denial_that_is_asked_for_by_hand_has_its_kind() {
    let key = Key::user("mallory");
    let limiter = by_hand(store(), Limit::gcra(1, MINUTE));
    assert!(limiter.admit("login", &key).await.is_ok());
    let of = async |cost| {
        let asked = limiter.admit_all([("login", &key, cost)]).await;
        let rejection = Rejection::from(asked.expect_err("a denial"));
        assert_eq!(rejection.policies(), ["login"]);
        (rejection.kind(), rejection.retry_after_secs())
    };
    assert_eq!(of(1).await, (RejectionKind::QuotaExceeded, Some(60)));
    assert_eq!(of(2).await, (RejectionKind::NeverFits, None));
    limiter.set_denied(AccessList::new().keys([key.clone()]));
    assert_eq!(of(1).await, (RejectionKind::Refused, None));

    let places = by_hand(store(), Limit::concurrency(1));
    let _held = places.admit("login", &key).await.unwrap();
    let denied = places.admit("login", &key).await.unwrap_err();
    assert_eq!(Rejection::from(denied).retry_after_secs(), Some(1));
}

#[tokio::test]
async fn handlers_that_check_a_missing_policy_answer_500() {
    let limiter = by_hand(store(), Limit::gcra(1, MINUTE));
    limiter.replace([]).unwrap();
    let app = Router::new().route(
        "/",
        any(async move || {
            let _permit = limiter.admit("login", Key::everybody()).await?;
            Ok::<_, Denied>("in")
        }),
    );
    let answer = Client::new().get(serve(app).await).send().await.unwrap();
    assert_eq!(answer.status(), 500);
    assert_eq!(answer.headers().get("retry-after"), None);
    let body = answer.text().await.unwrap();
    assert!(body.contains(r#"no policy is named \"login\""#), "{body}");
}

#[test]
fn a_question_that_cannot_be_asked_is_a_rejection_by_no_policy() {
    let error = CheckError::UnknownPolicy {
        name: "login".to_owned(),
    };
    let denied = Denied::from(error.clone());
    assert_eq!(denied.error(), Some(&error));
    for unknown in [Rejection::from(error), Rejection::from(denied)] {
        assert_eq!(unknown.kind(), RejectionKind::Misconfigured);
        assert!(unknown.policies().is_empty());
        assert_eq!(unknown.to_string(), "no policy is named \"login\"");
    }
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn a_method_that_asks_itself_fails_with_the_details_of_a_denial() {
    use tonic::{Code, Status};
    use tonic_types::StatusExt;

    let limiter = by_hand(store(), Limit::gcra(1, MINUTE));
    let method = async || {
        let _permit = limiter.admit("login", Key::user(7)).await?;
        Ok::<_, Status>("in")
    };
    assert_eq!(method().await.unwrap(), "in");
    let status = method().await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    let wait = status.get_details_retry_info().unwrap().retry_delay;
    assert_eq!(wait, Some(MINUTE));
    let quota = status.get_details_quota_failure().unwrap();
    assert_eq!(quota.violations[0].quota_id, "login");
    let names: Vec<_> = status.metadata().keys().collect();
    assert_eq!(names.len(), 1, "{names:?}");
    assert_eq!(
        status.metadata().get("grpc-retry-pushback-ms").unwrap(),
        "-1"
    );
    limiter.replace([]).unwrap();
    let status = method().await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(status.message(), "no policy is named \"login\"");
}
