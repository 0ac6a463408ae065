//! Where nobody is denied, or the store gives no answer.

use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    AccessList, FailureMode, Limit, Limiter, MINUTE, MemoryStore, Mode, Outcome, Policy, Rules,
    StoreError, StoreErrorKind,
};

use super::{granted, left};
use support::limits::in_time;

/// A store that is down.
struct Down;

impl Store for Down {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable)))
    }
}

#[tokio::test]
async fn a_policy_in_shadow_grants_all_and_counts_what_fits() {
    for (name, limit) in in_time(10, MINUTE) {
        let limiter = Limiter::new(
            MemoryStore::new(),
            [Policy::new(name, limit).mode(Mode::Shadow)],
        );
        let limiter = limiter.unwrap();
        assert_eq!(granted(&limiter, name, 7).await, 7, "{name}");
        assert_eq!(left(&limiter, name).await, 3, "{name}");
        let mut permit = limiter.admit_up_to(name, "alice", 7).await.unwrap();
        assert_eq!(permit.granted(name), Some(7), "{name}");
        let outcome = permit.verdict().get(name).unwrap().outcome();
        assert_eq!(
            outcome,
            Outcome::Allowed,
            "{name}: in part it would be granted"
        );
        assert_eq!(left(&limiter, name).await, 0, "{name}");
        let none = limiter.admit_up_to(name, "alice", 7).await.unwrap();
        assert_eq!(none.granted(name), Some(7), "{name}");
        let outcome = none.verdict().get(name).unwrap().outcome();
        assert_eq!(outcome, Outcome::ShadowDenied, "{name}");
        permit.settle(name, 1).unwrap();
        assert_eq!(left(&limiter, name).await, 2, "{name}: three were counted");
    }
}

#[tokio::test]
async fn all_is_granted_and_nothing_counted_where_nothing_is() {
    let policy = || Policy::new("tokens", Limit::fixed_window(10, MINUTE));
    let limiter = Limiter::new(MemoryStore::new(), [policy()]).unwrap();
    limiter.set_mode("tokens", Mode::Off).unwrap();
    assert_eq!(granted(&limiter, "tokens", 70).await, 70);
    limiter.set_mode("tokens", Mode::Enforce).unwrap();
    limiter.turn_off();
    assert_eq!(granted(&limiter, "tokens", 70).await, 70);
    limiter.turn_on();
    assert_eq!(granted(&limiter, "tokens", 70).await, 10);

    let rules = Rules::new([policy()]).allow(AccessList::new().keys(["alice"]));
    let limiter = Limiter::new(MemoryStore::new(), rules).unwrap();
    assert_eq!(granted(&limiter, "tokens", 70).await, 70);
    assert_eq!(left(&limiter, "tokens").await, 10);
}

#[tokio::test]
async fn a_failure_mode_grants_all_or_none_or_what_its_share_has() {
    for (mode, each) in [
        (FailureMode::Allow, [70, 70]),
        (FailureMode::Deny, [0, 0]),
        (FailureMode::Local { share: 0.25 }, [25, 0]),
    ] {
        for (name, limit) in in_time(100, 100 * MINUTE) {
            let policy = Policy::new(name, limit).on_store_failure(mode);
            let limiter = Limiter::new(Down, [policy]).unwrap();
            for expected in each {
                let had = granted(&limiter, name, 70).await;
                assert_eq!(had, expected, "{name}: {mode:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_limit_of_nothing_grants_nothing() {
    let policy = Policy::new("tokens", Limit::nothing());
    let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
    let denied = limiter.admit_up_to("tokens", "alice", 3).await.unwrap_err();
    assert_eq!(denied.decision().unwrap().outcome(), Outcome::NeverFits);
}
