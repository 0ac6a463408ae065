//! What can be done with a key outside of a request: look, charge, credit, reset.

use std::convert::Infallible;
use std::time::Duration;

use http::{Request, Response};
use support::asked::decision;
use support::bench::Bench;
use support::limits::{every, in_time};
use support::on_every_store;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    CheckError, Clock, DAY, Decision, FailureMode, HOUR, Header, Key, Limit, Limiter, MINUTE,
    MemoryStore, Outcome, Penalty, Policy, RateLimitLayer, RequestHead, SECOND, StoreError,
    StoreErrorKind,
};

on_every_store! {
    looking_takes_nothing_and_is_always_allowed
    a_charge_may_pass_the_limit_and_has_to_come_back
    charges_without_end_are_reported_and_can_be_credited
    a_credit_gives_back_no_more_than_was_used
    a_credit_of_a_fraction_leaves_none
    a_credit_makes_no_window_longer
    a_credit_revives_no_window_that_has_ended
    nothing_at_all_can_be_charged_or_credited
    a_reset_forgets_what_was_used
    a_reset_lifts_a_ban_and_forgets_the_denials_before_it
    a_reset_ends_leases_that_others_hold
    operations_leave_other_keys_and_policies_alone
    a_secret_makes_keys_of_its_own
    an_unknown_policy_is_an_error
    a_receipt_tells_the_instant_of_what_can_be_given_back
}

/// A limiter with a policy for each of these limits, named after them.
pub(crate) fn limiter_of(
    bench: &Bench,
    limits: impl IntoIterator<Item = (&'static str, Limit)>,
) -> Limiter {
    let policies = limits
        .into_iter()
        .map(|(name, limit)| Policy::new(name, limit));
    bench.limiter(policies)
}

fn assert_untouched(decision: &Decision, permits: u64, name: &str) {
    assert_eq!(decision.outcome(), Outcome::Allowed, "{name}");
    assert_eq!(decision.remaining(), permits, "{name}");
    assert!(decision.reset_after().is_zero(), "{name}");
}

/// Asserts that exactly this many can be taken at once.
async fn assert_had(limiter: &Limiter, name: &str, permits: u64) {
    for had in 0..permits {
        let decision = limiter.check(name, "alice").await.unwrap();
        assert!(decision.is_allowed(), "{name}: after {had}");
    }
    let denied = limiter.check(name, "alice").await.unwrap();
    assert!(!denied.is_allowed(), "{name}: after {permits}");
}

async fn looking_takes_nothing_and_is_always_allowed(bench: &Bench) {
    let limiter = limiter_of(bench, every(10, MINUTE));
    for (name, _) in every(10, MINUTE) {
        let stored = bench.stored();
        let untouched = limiter.peek(name, "alice").await.unwrap();
        assert_untouched(&untouched, 10, name);
        assert_eq!(bench.stored(), stored, "{name}: a look leaves no trace");

        let _ = limiter.check_cost(name, "alice", 4).await.unwrap();
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_eq!(looked.remaining(), 6, "{name}");
        assert_eq!(limiter.peek(name, "alice").await.unwrap(), looked, "{name}");

        let _ = limiter.check_cost(name, "alice", 6).await.unwrap();
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_eq!(looked.outcome(), Outcome::Allowed, "{name}");
        assert_eq!(looked.remaining(), 0, "{name}");
        assert_eq!(looked.retry_after(), None);
        assert!(looked.delay().is_zero(), "{name}: a look waits for nothing");
        assert!(!looked.reset_after().is_zero(), "{name}");
    }
}

async fn a_charge_may_pass_the_limit_and_has_to_come_back(bench: &Bench) {
    for (name, limit) in every(10, MINUTE) {
        bench.align(MINUTE);
        let limiter = limiter_of(bench, [(name, limit)]);
        let charged = limiter.charge(name, "alice", 7).await.unwrap();
        assert_eq!(charged.outcome(), Outcome::Allowed, "{name}");
        assert_eq!(charged.remaining(), 3, "{name}");
        let charged = limiter.charge(name, "alice", 8).await.unwrap();
        assert_eq!(charged.outcome(), Outcome::Allowed, "{name}");
        assert_eq!(charged.remaining(), 0, "{name}");

        let denied = limiter.check(name, "alice").await.unwrap();
        assert_eq!(denied.outcome(), Outcome::Denied, "{name}");
        let wait = denied.retry_after().unwrap();
        assert!(wait >= 30 * SECOND, "{name}: five too many, {wait:?}");
        bench.advance(wait - Duration::from_micros(1));
        assert!(!limiter.check(name, "alice").await.unwrap().is_allowed());
        bench.advance_us(1);
        assert!(limiter.check(name, "alice").await.unwrap().is_allowed());
        bench.advance(10 * MINUTE);
    }
}

async fn charges_without_end_are_reported_and_can_be_credited(bench: &Bench) {
    for (name, limit) in every(10, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        for _ in 0..3 {
            let charged = limiter.charge(name, "alice", u64::MAX).await.unwrap();
            assert_eq!(charged.store_failure(), None, "{name}");
            assert_eq!(charged.remaining(), 0, "{name}");
        }
        assert!(!limiter.check(name, "alice").await.unwrap().is_allowed());
        // Charges that need not be separated are not counted separately.
        let credited = limiter.credit(name, "alice", u64::MAX).await.unwrap();
        assert_untouched(&credited, 10, name);
        assert_had(&limiter, name, 10).await;
    }
}

async fn a_credit_gives_back_no_more_than_was_used(bench: &Bench) {
    for (name, limit) in every(10, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        let stored = bench.stored();
        let credited = limiter.credit(name, "alice", 5).await.unwrap();
        assert_untouched(&credited, 10, name);
        assert_eq!(bench.stored(), stored, "{name}: nothing to give back");

        let _ = limiter.check_cost(name, "alice", 6).await.unwrap();
        let credited = limiter.credit(name, "alice", 2).await.unwrap();
        assert_eq!(credited.outcome(), Outcome::Allowed, "{name}");
        assert_eq!(credited.remaining(), 6, "{name}");
        let credited = limiter.credit(name, "alice", 5).await.unwrap();
        assert_untouched(&credited, 10, name);
        assert_had(&limiter, name, 10).await;
    }
}

async fn a_receipt_tells_the_instant_of_what_can_be_given_back(bench: &Bench) {
    let limiter = limiter_of(bench, every(10, MINUTE));
    for (name, _) in every(10, MINUTE) {
        let taken_at = |decision: &Decision| decision.receipt().taken_at();
        let spent = limiter.check(name, "alice").await.unwrap();
        assert_eq!(taken_at(&spent), None, "{name}");
        let held = decision(&limiter.admit(name, "alice").await);
        assert_eq!(taken_at(&held), Some(bench.clock.now()), "{name}");
    }
}

async fn a_credit_of_a_fraction_leaves_none(bench: &Bench) {
    for (name, limit) in in_time(7, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        let _ = limiter.check_cost(name, "alice", 5).await.unwrap();
        for _ in 0..5 {
            let _ = limiter.credit(name, "alice", 1).await.unwrap();
        }
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_untouched(&looked, 7, name);
        assert_had(&limiter, name, 7).await;
    }
}

async fn a_credit_makes_no_window_longer(bench: &Bench) {
    for (name, limit) in in_time(10, MINUTE) {
        bench.align(MINUTE);
        let limiter = limiter_of(bench, [(name, limit)]);
        let _ = limiter.check_cost(name, "alice", 8).await.unwrap();
        bench.advance(5 * SECOND);
        let before = limiter.peek(name, "alice").await.unwrap();
        let credited = limiter.credit(name, "alice", 3).await.unwrap();
        assert!(credited.remaining() > before.remaining(), "{name}");
        assert!(credited.reset_after() <= before.reset_after(), "{name}");
        bench.advance(credited.reset_after());
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_untouched(&looked, 10, name);
        bench.advance(2 * MINUTE);
    }
}

async fn a_credit_revives_no_window_that_has_ended(bench: &Bench) {
    for (name, limit) in every(10, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        let _ = limiter.check_cost(name, "alice", 8).await.unwrap();
        bench.advance(3 * MINUTE);
        let credited = limiter.credit(name, "alice", 8).await.unwrap();
        assert_untouched(&credited, 10, name);
        assert_had(&limiter, name, 10).await;
        bench.advance(3 * MINUTE);
    }
}

async fn nothing_at_all_can_be_charged_or_credited(bench: &Bench) {
    for (name, limit) in every(10, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        let stored = bench.stored();
        let charged = limiter.charge(name, "alice", 0).await.unwrap();
        assert_untouched(&charged, 10, name);
        let credited = limiter.credit(name, "alice", 0).await.unwrap();
        assert_untouched(&credited, 10, name);
        assert_eq!(bench.stored(), stored, "{name}");
    }
}

async fn a_reset_forgets_what_was_used(bench: &Bench) {
    for (name, limit) in every(10, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        let reset = limiter.reset(name, "alice").await.unwrap();
        assert_untouched(&reset, 10, name);
        let _ = limiter.charge(name, "alice", 25).await.unwrap();
        let reset = limiter.reset(name, "alice").await.unwrap();
        assert_untouched(&reset, 10, name);
        if let Some(server) = bench.server_if_any() {
            assert!(server.keys().is_empty(), "{name}");
        }
        assert_had(&limiter, name, 10).await;
        let _ = limiter.reset(name, "alice").await.unwrap();
    }
}

async fn a_reset_lifts_a_ban_and_forgets_the_denials_before_it(bench: &Bench) {
    for (name, limit) in every(1, DAY) {
        let penalty = Penalty::after(3, HOUR, HOUR).doubling_up_to(DAY);
        let limiter = bench.limiter([Policy::new(name, limit).penalty(penalty)]);
        for round in 0..2 {
            assert!(limiter.check(name, "alice").await.unwrap().is_allowed());
            for _ in 0..3 {
                let _ = limiter.check(name, "alice").await.unwrap();
            }
            let banned = limiter.check(name, "alice").await.unwrap();
            // Not doubled: the previous ban was forgotten too.
            assert_eq!(banned.banned_for(), Some(HOUR), "{name} {round}");
            let reset = limiter.reset(name, "alice").await.unwrap();
            assert_eq!(reset.banned_for(), None, "{name}");
            assert_untouched(&reset, 1, name);
        }
        let _ = limiter.check(name, "alice").await.unwrap();
        for _ in 0..2 {
            let denied = limiter.check(name, "alice").await.unwrap();
            assert_eq!(denied.outcome(), Outcome::Denied, "{name}");
        }
        let _ = limiter.reset(name, "alice").await.unwrap();
        let _ = limiter.check(name, "alice").await.unwrap();
        let denied = limiter.check(name, "alice").await.unwrap();
        assert_eq!(denied.outcome(), Outcome::Denied, "{name}: the first");
        if let Some(server) = bench.server_if_any() {
            assert_eq!(server.keys().len(), 2);
            let _ = limiter.reset(name, "alice").await.unwrap();
            assert!(server.keys().is_empty(), "{name}");
        }
    }
}

async fn a_reset_ends_leases_that_others_hold(bench: &Bench) {
    let limiter = limiter_of(bench, [("exports", Limit::concurrency(1))]);
    let held = limiter.admit("exports", "alice").await;
    assert!(held.is_ok());
    let _ = limiter.reset("exports", "alice").await.unwrap();
    let next = limiter.admit("exports", "alice").await;
    assert!(next.is_ok());
    // What the first one gives back now belongs to nobody else.
    drop(held);
    assert!(
        !limiter
            .check("exports", "alice")
            .await
            .unwrap()
            .is_allowed()
    );
}

async fn operations_leave_other_keys_and_policies_alone(bench: &Bench) {
    let limit = Limit::gcra(10, MINUTE);
    let limiter = limiter_of(bench, [("a", limit), ("b", limit)]);
    for (policy, key) in [("a", "alice"), ("a", "bob"), ("b", "alice")] {
        let _ = limiter.charge(policy, key, 4).await.unwrap();
    }
    let _ = limiter.charge("a", "alice", 1).await.unwrap();
    let _ = limiter.credit("a", "alice", 2).await.unwrap();
    for (policy, key, left) in [("a", "alice", 7), ("a", "bob", 6), ("b", "alice", 6)] {
        let looked = limiter.peek(policy, key).await.unwrap();
        assert_eq!(looked.remaining(), left, "{policy} {key}");
    }
    let _ = limiter.reset("a", "alice").await.unwrap();
    for (policy, key, left) in [("a", "alice", 10), ("a", "bob", 6), ("b", "alice", 6)] {
        let looked = limiter.peek(policy, key).await.unwrap();
        assert_eq!(looked.remaining(), left, "{policy} {key}");
    }
}

async fn a_secret_makes_keys_of_its_own(bench: &Bench) {
    let policy = Policy::new("api", Limit::gcra(10, MINUTE));
    let keyed = |secret: &str| {
        let builder = bench.builder([policy.clone()]).key_secret(secret);
        builder.build().unwrap()
    };
    let (one, same, other) = (keyed("hunter2"), keyed("hunter2"), keyed("swordfish"));
    let plain = bench.limiter([policy.clone()]);
    let _ = one.charge("api", "alice", 4).await.unwrap();
    for (limiter, left) in [(&one, 6), (&same, 6), (&other, 10), (&plain, 10)] {
        let looked = limiter.peek("api", "alice").await.unwrap();
        assert_eq!(looked.remaining(), left);
    }
    let _ = other.reset("api", "alice").await.unwrap();
    let _ = plain.credit("api", "alice", 4).await.unwrap();
    assert_eq!(one.peek("api", "alice").await.unwrap().remaining(), 6);
    let _ = same.reset("api", "alice").await.unwrap();
    assert_eq!(one.peek("api", "alice").await.unwrap().remaining(), 10);
}

async fn an_unknown_policy_is_an_error(bench: &Bench) {
    let limiter = limiter_of(bench, [("api", Limit::gcra(1, MINUTE))]);
    for answer in [
        limiter.check("apo", "alice").await,
        limiter.check_cost("apo", "alice", 1).await,
        limiter.peek("apo", "alice").await,
        limiter.charge("apo", "alice", 1).await,
        limiter.credit("apo", "alice", 1).await,
        limiter.reset("apo", "alice").await,
    ] {
        let error = answer.unwrap_err();
        assert_eq!(error.to_string(), "no policy is named \"apo\"");
        assert!(matches!(error, CheckError::UnknownPolicy { name } if name == "apo"));
    }
    let known_and_unknown = [("api", "alice", 1), ("apo", "alice", 1)];
    for asked in [
        limiter.admit("apo", "alice").await,
        limiter.admit_all(known_and_unknown).await,
        limiter.acquire("apo", "alice", 1).await,
    ] {
        let denied = asked.unwrap_err();
        assert_eq!(denied.to_string(), "no policy is named \"apo\"");
        assert_eq!(denied.policy(), "apo");
        let name = "apo".to_owned();
        assert_eq!(denied.error(), Some(&CheckError::UnknownPolicy { name }));
    }
    assert_eq!(limiter.peek("api", "alice").await.unwrap().remaining(), 1);
}

/// A store that is down.
struct Down;

impl Store for Down {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable)))
    }
}

#[tokio::test]
async fn a_store_that_is_down_is_no_error_and_the_decision_tells() {
    for (mode, is_allowed) in [(FailureMode::Allow, true), (FailureMode::Deny, false)] {
        let policy = Policy::new("api", Limit::gcra(10, MINUTE))
            .penalty(Penalty::after(3, MINUTE, HOUR))
            .on_store_failure(mode);
        let limiter = Limiter::new(Down, [policy]).unwrap();
        for decision in [
            limiter.peek("api", "alice").await.unwrap(),
            limiter.charge("api", "alice", 1).await.unwrap(),
            limiter.credit("api", "alice", 1).await.unwrap(),
            limiter.reset("api", "alice").await.unwrap(),
        ] {
            let failure = decision.store_failure();
            assert_eq!(failure, Some(StoreErrorKind::Unreachable));
            assert_eq!(decision.is_allowed(), is_allowed);
            assert_eq!(decision.banned_for(), None);
        }
    }
}

/// A header's value is another key than the text alone.
#[tokio::test]
async fn the_key_is_that_which_the_policys_extractor_makes() {
    let header = Header::new("X-User");
    let policies = [
        Policy::new("user", Limit::gcra(2, MINUTE)).by(header.clone()),
        Policy::new("both", Limit::gcra(2, MINUTE)).by((header, Header::new("x-app"))),
        Policy::new("text", Limit::gcra(2, MINUTE)).by(|request: &RequestHead<'_>| {
            let user = request.headers.get("x-user")?;
            user.to_str().ok().map(str::to_owned)
        }),
        Policy::new("nobody", Limit::gcra(2, MINUTE)).by(Header::new("x-absent")),
        Policy::new("everybody", Limit::gcra(2, MINUTE)),
    ];
    let limiter = Limiter::new(MemoryStore::new(), policies).unwrap();
    let inner =
        service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(String::new())));
    let request = Request::builder()
        .header("x-user", "alice")
        .header("x-app", "shop")
        .body(());
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    service.oneshot(request.unwrap()).await.unwrap();

    let (user, app) = (
        Key::header("x-user", b"alice"),
        Key::header("x-app", b"shop"),
    );
    for (policy, key, left) in [
        ("user", user.clone(), 1),
        ("user", Key::from("alice"), 2),
        ("both", Key::all([user, app]), 1),
        ("text", Key::from("alice"), 1),
        ("nobody", Key::missing(), 1),
        ("everybody", Key::everybody(), 1),
    ] {
        let looked = limiter.peek(policy, key).await.unwrap();
        assert_eq!(looked.remaining(), left, "{policy}");
    }
}
