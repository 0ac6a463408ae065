//! Policies in shadow that would hold requests up: nobody waits for them, neither now nor once they
//! are enforced.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    DecisionEvent, DecisionResult, HOUR, Key, Limit, Limiter, MINUTE, Mode, Penalty, Policy,
    RateLimitLayer, SECOND, per_second,
};

use support::virtual_time::{self, timed};

/// One a second, with each way of being held up.
fn patient_policies() -> [Policy; 2] {
    [
        Policy::new("api", Limit::gcra(1, SECOND)).max_wait(MINUTE),
        Policy::new("api", Limit::leaky_bucket(100, per_second(1))),
    ]
}

/// All results of decisions, in their order.
type Observed = Arc<Mutex<Vec<DecisionResult>>>;

/// A limiter with this policy in shadow.
fn in_shadow(policy: Policy) -> (Limiter, Observed) {
    let events = Observed::default();
    let log = Arc::clone(&events);
    let limiter = Limiter::builder(virtual_time::store(), [policy.mode(Mode::Shadow)])
        .on_decision(move |event: &DecisionEvent<'_>| log.lock().unwrap().push(event.result()))
        .build();
    (limiter.unwrap(), events)
}

/// How long this many simultaneous requests are held up at most.
async fn longest_wait(limiter: &Limiter, requests: usize) -> Duration {
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let sent = (0..requests).map(|_| timed(service.clone().oneshot(Request::new(()))));
    let sent = join_all(sent).await.into_iter();
    let waits = sent.map(|(response, wait)| {
        assert_eq!(response.unwrap().status(), 200);
        wait
    });
    waits.max().unwrap_or_default()
}

/// How many of them would have waited.
fn count_shadow_denied(events: &Observed) -> usize {
    let events = events.lock().unwrap();
    let denied = |result: &&DecisionResult| **result == DecisionResult::ShadowDenied;
    events.iter().filter(denied).count()
}

#[tokio::test(start_paused = true)]
async fn shadow_denials_for_a_wait_delay_nobody_once_enforced() {
    for policy in patient_policies() {
        let (limiter, events) = in_shadow(policy.clone());
        assert_eq!(longest_wait(&limiter, 30).await, Duration::ZERO);
        assert_eq!(count_shadow_denied(&events), 29, "{policy:?}");
        limiter.set_mode("api", Mode::Enforce).unwrap();
        assert_eq!(longest_wait(&limiter, 1).await, SECOND, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_patient_policy_in_shadow_delays_nothing_outside_of_http() {
    for policy in patient_policies() {
        let (limiter, events) = in_shadow(policy.clone());
        for _ in 0..10 {
            let checked = limiter.check("api", Key::everybody()).await.unwrap();
            assert!(checked.is_allowed());
            let held = limiter.admit("api", Key::everybody()).await;
            assert!(held.is_ok());
        }
        assert_eq!(count_shadow_denied(&events), 19, "{policy:?}");
        limiter.set_mode("api", Mode::Enforce).unwrap();
        assert_eq!(longest_wait(&limiter, 1).await, SECOND, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_shadow_brings_no_ban() {
    for policy in patient_policies() {
        let penalty = Penalty::after(1, MINUTE, HOUR);
        let (limiter, _) = in_shadow(policy.clone().penalty(penalty));
        longest_wait(&limiter, 30).await;
        limiter.set_mode("api", Mode::Enforce).unwrap();
        assert_eq!(longest_wait(&limiter, 1).await, SECOND, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_impatient_policy_in_shadow_counts_denials_and_bans() {
    let policy = Policy::new("api", Limit::gcra(1, SECOND));
    let penalty = Penalty::after(1, MINUTE, HOUR);
    let (limiter, events) = in_shadow(policy.penalty(penalty));
    longest_wait(&limiter, 3).await;
    assert_eq!(count_shadow_denied(&events), 2);
    let shown = limiter.peek("api", Key::everybody()).await.unwrap();
    assert_eq!(shown.banned_for(), Some(HOUR));
}
