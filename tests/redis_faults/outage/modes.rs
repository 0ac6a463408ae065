//! What each policy decides while the server is down, alone and beside others.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    Decision, FailureMode, Limit, Limiter, MINUTE, MemoryStore, Outcome, Policy, RateLimitLayer,
    RedisStore, ResponseBody, Rules, SECOND, StoreErrorKind, per_minute,
};

use super::{back, open};
use support::redis::Server;

const HALF: FailureMode = FailureMode::Local { share: 0.5 };

/// Limits of which one process may give five permits.
fn limits() -> [(&'static str, Limit); 9] {
    [
        ("gcra", Limit::gcra(10, MINUTE)),
        ("token_bucket", Limit::token_bucket(10, per_minute(10))),
        ("leaky_bucket", Limit::leaky_bucket(10, per_minute(10))),
        (
            "meter",
            Limit::leaky_bucket(10, per_minute(10)).without_delay(),
        ),
        ("fixed_window", Limit::fixed_window(10, MINUTE)),
        ("sliding_log", Limit::sliding_log(10, MINUTE)),
        ("sliding_window", Limit::sliding_window(10, MINUTE)),
        ("sliding_counter", Limit::sliding_counter(10, MINUTE)),
        ("concurrency", Limit::concurrency(10)),
    ]
}

#[tokio::test]
async fn over_a_killed_server_limits_give_their_share_then_the_whole() {
    let mut server = Server::start();
    let policies = limits().map(|(name, limit)| Policy::new(name, limit).on_store_failure(HALF));
    let builder = Limiter::builder(server.store().await, policies);
    // On a busy machine an answer may be late; a server that is killed fails at once.
    let limiter = builder.timeout(20 * SECOND).build().unwrap();
    back(&limiter, "gcra").await;
    server.kill();
    for (name, _) in limits() {
        for asked in 0..8 {
            let decision = limiter.check(name, "alice").await.unwrap();
            assert_eq!(decision.is_allowed(), asked < 5, "{name}, {asked}");
            assert!(decision.is_local(), "{name}");
            assert_eq!(decision.limit(), 5, "{name}");
        }
    }
    server.restart();
    back(&limiter, "gcra").await;
    for (name, _) in limits() {
        let mut allowed = 0;
        while limiter.check(name, "alice").await.unwrap().is_allowed() {
            allowed += 1;
        }
        assert_eq!(allowed, 10, "{name}: the whole, of which nothing was used");
        let decision = limiter.peek(name, "alice").await.unwrap();
        assert!(!decision.is_local() && decision.store_failure().is_none());
        assert_eq!(decision.limit(), 10);
    }
}

type Body = Full<Bytes>;

/// A limiter whose server was killed, with a policy of each of these modes: ten a minute each.
async fn without_a_server(modes: &[(&str, FailureMode)]) -> Limiter {
    let mut server = Server::start();
    let policies = modes.iter().map(|(name, mode)| {
        Policy::new(*name, Limit::fixed_window(10, MINUTE)).on_store_failure(*mode)
    });
    let limiter = Limiter::new(server.store().await, policies).unwrap();
    server.kill();
    open(&limiter, modes[0].0).await;
    limiter
}

async fn request(limiter: &Limiter) -> Response<ResponseBody<Body>> {
    let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Body::default())) });
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let response = service.oneshot(Request::new(Body::default())).await;
    response.unwrap()
}

async fn statuses(limiter: &Limiter) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..7 {
        statuses.push(request(limiter).await.status().as_u16());
    }
    statuses
}

#[tokio::test]
async fn a_local_share_limits_beside_policies_that_let_pass() {
    let limiter = without_a_server(&[("open", FailureMode::Allow), ("local", HALF)]).await;
    let first = request(&limiter).await;
    let shown = first.headers()["ratelimit"].to_str().unwrap();
    assert!(shown.contains("\"local\";r=4"), "{shown}");
    assert!(!shown.contains("open"), "{shown}");
    let policy = first.headers()["ratelimit-policy"].to_str().unwrap();
    assert!(policy.contains("\"local\";q=5;w=60"), "{policy}");
    assert_eq!(
        statuses(&limiter).await,
        [200, 200, 200, 200, 429, 429, 429]
    );
    let denied = request(&limiter).await;
    assert!(denied.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn a_policy_that_refuses_takes_nothing_of_the_shares_beside_it() {
    let modes = [("local", HALF), ("closed", FailureMode::Deny)];
    let limiter = without_a_server(&modes).await;
    assert_eq!(statuses(&limiter).await, [503; 7]);
    let left = limiter
        .check("local", tower_throttle::Key::everybody())
        .await;
    assert_eq!(left.unwrap().remaining(), 4);
}

#[tokio::test]
async fn the_narrowest_share_limits_and_its_denial_takes_nothing() {
    let narrow = FailureMode::Local { share: 0.2 };
    let limiter = without_a_server(&[("wide", HALF), ("narrow", narrow)]).await;
    assert_eq!(
        statuses(&limiter).await,
        [200, 200, 429, 429, 429, 429, 429]
    );
    let left = limiter.peek("wide", tower_throttle::Key::everybody()).await;
    assert_eq!(left.unwrap().remaining(), 3);
}

async fn decided(limiter: &Limiter, cost: u64) -> Decision {
    limiter.check_cost("local", "alice", cost).await.unwrap()
}

#[tokio::test]
async fn a_cost_above_the_share_is_refused_for_as_long_as_the_outage() {
    let limiter = without_a_server(&[("local", HALF)]).await;
    let refused = decided(&limiter, 6).await;
    let expected = Outcome::FailedClosed(StoreErrorKind::BreakerOpen);
    assert_eq!(refused.outcome(), expected);
    assert!(refused.retry_after().is_some() && !refused.is_local());
    assert_eq!(decided(&limiter, 11).await.outcome(), Outcome::NeverFits);
    assert_eq!(decided(&limiter, 5).await.outcome(), Outcome::Allowed);
}

#[test]
fn a_share_that_is_none_is_refused_when_the_limiter_is_built() {
    let store = || MemoryStore::builder().capacity(1).build();
    let limit = Limit::gcra(10, MINUTE);
    for share in [0.0, -0.5, 1.01, f64::NAN, f64::INFINITY] {
        let mode = FailureMode::Local { share };
        let expected = format!(
            "policy \"api\": on_store_failure.share: got {share}, expected a share of the limit, \
             above 0 and at most 1"
        );
        let own = Policy::new("api", limit).on_store_failure(mode);
        let for_all = Rules::new([Policy::new("api", limit)]).on_store_failure(mode);
        for refused in [Limiter::new(store(), [own]), Limiter::new(store(), for_all)] {
            assert_eq!(refused.unwrap_err().to_string(), expected);
        }
    }
    for share in [f64::MIN_POSITIVE, 1.0] {
        let policy = Policy::new("api", limit).on_store_failure(FailureMode::Local { share });
        assert!(Limiter::new(store(), [policy]).is_ok());
    }
}

/// A start without a server: it was never asked anything.
#[tokio::test]
async fn a_process_that_starts_during_the_outage_limits_at_once() {
    let mut server = Server::start();
    server.kill();
    let store = RedisStore::builder(&server.url()).connect_lazy().unwrap();
    let policy = Policy::new("local", Limit::gcra(10, MINUTE)).on_store_failure(HALF);
    let limiter = Limiter::new(store, [policy]).unwrap();
    let mut allowed = 0;
    for _ in 0..10 {
        allowed += u64::from(decided(&limiter, 1).await.is_allowed());
    }
    assert_eq!(allowed, 5);
}
