//! Remembered denials, and stores that fail.

use futures_util::FutureExt as _;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    FailureMode, HOUR, Limit, Limiter, MINUTE, Mode, Outcome, Policy, SECOND, StoreError,
    StoreErrorKind,
};

use super::{check, drain, with_rates};
use support::bench::Bench;

#[tokio::test]
async fn a_denial_under_any_rate_is_remembered() {
    let bench = Bench::redis().await;
    for (name, limit) in with_rates((2, SECOND), &[(3, HOUR)]) {
        for mode in [Mode::Enforce, Mode::Shadow] {
            bench.align(HOUR);
            bench.advance(24 * HOUR);
            let limiter = bench.limiter([Policy::new(name, limit).mode(mode)]);
            for is_by_hour in [false, true] {
                let mut outcomes = Vec::new();
                while outcomes
                    .last()
                    .is_none_or(|outcome| *outcome == Outcome::Allowed)
                {
                    outcomes.push(check(&limiter, name).await.outcome());
                }
                assert_eq!(outcomes.len(), if is_by_hour { 2 } else { 3 }, "{name}");
                let denied = check(&limiter, name).await;
                assert!(denied.is_remembered(), "{name}: {denied:?}");
                assert_eq!(denied.is_allowed(), mode == Mode::Shadow, "{name}");
                let wait = denied.retry_after().unwrap();
                assert_eq!(wait > MINUTE, is_by_hour, "{name}: {denied:?}");
                bench.advance(2 * SECOND);
            }
        }
    }
}

/// A store that is down.
struct Gone;

impl Store for Gone {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable)))
    }
}

#[tokio::test]
async fn without_the_store_each_rate_is_judged_by_its_share() {
    let half = FailureMode::Local { share: 0.5 };
    for (limit, had) in [
        (Limit::gcra(4, HOUR).and(100, 24 * HOUR), 2),
        (Limit::gcra(4, HOUR).burst(20).and(6, 24 * HOUR), 3),
    ] {
        let policy = Policy::new("api", limit).on_store_failure(half);
        let limiter = Limiter::new(Gone, [policy]).unwrap();
        assert_eq!(drain(&limiter, "api").await, had, "{limit}");
        let denied = check(&limiter, "api").await;
        assert!(denied.is_local(), "{denied:?}");
        assert_eq!(denied.outcome(), Outcome::Denied);
    }
    for (mode, is_allowed) in [(FailureMode::Allow, true), (FailureMode::Deny, false)] {
        let limit = Limit::gcra(4, SECOND).and(100, HOUR);
        let policy = Policy::new("api", limit).on_store_failure(mode);
        let limiter = Limiter::new(Gone, [policy]).unwrap();
        let decision = limiter
            .check("api", "alice")
            .now_or_never()
            .unwrap()
            .unwrap();
        assert_eq!(decision.is_allowed(), is_allowed);
        assert_eq!(decision.store_failure(), Some(StoreErrorKind::Unreachable));
    }
}
