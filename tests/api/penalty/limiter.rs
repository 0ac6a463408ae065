//! Through the limiter, on every store.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::{
    DAY, HOUR, Limit, Limiter, MINUTE, Outcome, Penalty, Policy, SECOND, per_second,
};

use super::{ban, check, strict};
use support::asked::decision;
use support::bench::Bench;
use support::http_store::{TestStore, Trip};
use support::limits::{every, in_time};
use support::on_every_store;

on_every_store! {
    the_denial_that_brings_a_ban_says_so
    denials_at_the_same_time_are_counted_one_by_one
    every_algorithm_can_have_a_penalty
    denials_that_are_too_far_apart_bring_no_ban
    a_ban_ends_to_the_microsecond
    hammering_makes_no_ban_longer
    a_ban_that_ends_before_the_quota_is_back_says_when_that_is
    who_waits_as_long_as_a_ban_says_is_not_banned_anew
    bans_double_up_to_the_longest
    a_ban_that_is_long_over_is_forgotten
    looking_counts_for_nothing_and_shows_a_ban
    charges_and_credits_go_on_during_a_ban_and_show_it
    costs_that_never_fit_cause_a_ban_and_report_no_wait
    a_ban_is_one_subjects_and_one_policys
    a_ban_is_in_force_for_those_who_would_wait
}

async fn the_denial_that_brings_a_ban_says_so(bench: &Bench) {
    let limiter = bench.limiter([strict()]);
    let first = check(&limiter).await;
    assert_eq!(
        (first.outcome(), first.banned_for()),
        (Outcome::Allowed, None)
    );
    for _ in 0..2 {
        let denied = check(&limiter).await;
        assert_eq!(denied.outcome(), Outcome::Denied);
        assert_eq!(denied.banned_for(), None);
        assert_eq!(denied.retry_after(), Some(DAY));
    }
    let banned = check(&limiter).await;
    assert_eq!(banned.outcome(), Outcome::Banned);
    assert!(!banned.is_allowed());
    assert_eq!(banned.banned_for(), Some(HOUR));
    assert_eq!(banned.remaining(), 0);
    assert_eq!(check(&limiter).await, banned);
}

/// A store that keeps the promises of [`Store`](tower_throttle::store::Store) with the public API alone.
#[tokio::test]
async fn a_store_of_the_users_bans_as_those_of_the_crate_do() {
    for (name, limit) in every(2, DAY) {
        let policy = Policy::new(name, limit).penalty(Penalty::after(2, MINUTE, HOUR));
        let ours = Bench::memory().limiter([policy.clone()]);
        let own = Limiter::new(TestStore::new(Trip::None), [policy]).unwrap();
        for _ in 0..5 {
            let decision = own.check(name, "alice").await.unwrap();
            assert_eq!(decision, ours.check(name, "alice").await.unwrap(), "{name}");
        }
    }
}

async fn denials_at_the_same_time_are_counted_one_by_one(bench: &Bench) {
    let penalty = Penalty::after(5, MINUTE, HOUR);
    let limiter = bench.limiter([Policy::new("login", Limit::gcra(1, DAY)).penalty(penalty)]);
    let decisions = join_all((0..50).map(|_| check(&limiter))).await;
    let count = |outcome: Outcome| {
        let alike = decisions.iter().filter(|one| one.outcome() == outcome);
        alike.count()
    };
    assert_eq!(count(Outcome::Allowed), 1);
    assert_eq!(count(Outcome::Denied), 4);
    assert_eq!(count(Outcome::Banned), 45);
    assert_eq!(check(&limiter).await.banned_for(), Some(HOUR));
}

async fn every_algorithm_can_have_a_penalty(bench: &Bench) {
    for (name, limit) in every(2, DAY) {
        let policy = Policy::new(name, limit).penalty(Penalty::after(2, MINUTE, 7 * DAY));
        let limiter = bench.limiter([policy]);
        let mut outcomes = Vec::new();
        for _ in 0..5 {
            let decision = limiter.check(name, "alice").await.unwrap();
            outcomes.push(decision.outcome());
        }
        use Outcome::{Allowed, Banned, Denied};
        assert_eq!(
            outcomes,
            [Allowed, Allowed, Denied, Banned, Banned],
            "{name}"
        );
        // The ban outlasts the quota.
        bench.advance(7 * DAY - Duration::from_micros(1));
        let banned = limiter.check(name, "alice").await.unwrap();
        assert_eq!(
            banned.retry_after(),
            Some(Duration::from_micros(1)),
            "{name}"
        );
        bench.advance_us(1);
        let allowed = limiter.check(name, "alice").await.unwrap();
        assert_eq!(allowed.outcome(), Allowed, "{name}");
    }
}

async fn denials_that_are_too_far_apart_bring_no_ban(bench: &Bench) {
    let limiter = bench.limiter([strict()]);
    let _ = check(&limiter).await;
    for _ in 0..10 {
        assert_eq!(check(&limiter).await.outcome(), Outcome::Denied);
        bench.advance(MINUTE / 2);
    }
    // The one before the last is still within the minute, by a microsecond.
    assert_eq!(check(&limiter).await.outcome(), Outcome::Denied);
    bench.advance(MINUTE / 2 - Duration::from_micros(1));
    assert_eq!(check(&limiter).await.outcome(), Outcome::Banned);
}

async fn a_ban_ends_to_the_microsecond(bench: &Bench) {
    let policy =
        Policy::new("login", Limit::gcra(1, SECOND)).penalty(Penalty::after(3, MINUTE, HOUR));
    let limiter = bench.limiter([policy]);
    assert_eq!(ban(&limiter).await.retry_after(), Some(HOUR));
    bench.advance(HOUR - Duration::from_micros(1));
    let banned = check(&limiter).await;
    assert_eq!(banned.outcome(), Outcome::Banned);
    assert_eq!(banned.banned_for(), Some(Duration::from_micros(1)));
    assert_eq!(banned.retry_after(), Some(Duration::from_micros(1)));
    bench.advance_us(1);
    // The denials before the ban are forgotten with it.
    let _ = ban(&limiter).await;
}

async fn hammering_makes_no_ban_longer(bench: &Bench) {
    let penalty = Penalty::after(3, MINUTE, HOUR).doubling_up_to(DAY);
    let policy = Policy::new("login", Limit::gcra(1, SECOND)).penalty(penalty);
    let limiter = bench.limiter([policy]);
    let _ = ban(&limiter).await;
    for minute in 1..60 {
        bench.advance(MINUTE);
        for _ in 0..5 {
            let banned = check(&limiter).await;
            assert_eq!(banned.banned_for(), Some(HOUR - minute * MINUTE));
        }
    }
    bench.advance(MINUTE);
    assert!(check(&limiter).await.is_allowed());
}

async fn a_ban_that_ends_before_the_quota_is_back_says_when_that_is(bench: &Bench) {
    let limiter = bench.limiter([strict()]);
    let banned = ban(&limiter).await;
    assert_eq!(banned.banned_for(), Some(HOUR));
    assert_eq!(banned.retry_after(), Some(DAY));
    assert_eq!(banned.reset_after(), DAY);
    bench.advance(HOUR);
    let denied = check(&limiter).await;
    assert_eq!(denied.outcome(), Outcome::Denied);
    assert_eq!(denied.retry_after(), Some(DAY - HOUR));
}

async fn who_waits_as_long_as_a_ban_says_is_not_banned_anew(bench: &Bench) {
    let penalty = Penalty::after(1, MINUTE, 10 * SECOND).doubling_up_to(HOUR / 2);
    for (name, limit) in in_time(3, HOUR) {
        let limiter = bench.limiter([Policy::new(name, limit).penalty(penalty)]);
        let check = async |cost| limiter.check_cost(name, "alice", cost).await.unwrap();
        assert!(check(3).await.is_allowed());
        for cost in [2, 2, 1, 1] {
            assert_eq!(check(cost).await.outcome(), Outcome::Banned, "{name}");
        }
        let told = check(1).await.retry_after().unwrap();
        bench.advance(told);
        assert!(check(1).await.is_allowed(), "{name}: told {told:?}");
    }
}

async fn bans_double_up_to_the_longest(bench: &Bench) {
    let penalty = Penalty::after(3, MINUTE, HOUR).doubling_up_to(5 * HOUR);
    let policy = Policy::new("login", Limit::gcra(1, SECOND)).penalty(penalty);
    let limiter = bench.limiter([policy]);
    for hours in [1, 2, 4, 5, 5] {
        let banned = ban(&limiter).await;
        assert_eq!(banned.banned_for(), Some(hours * HOUR));
        bench.advance(hours * HOUR);
    }
}

async fn a_ban_that_is_long_over_is_forgotten(bench: &Bench) {
    let penalty = Penalty::after(3, MINUTE, HOUR).doubling_up_to(5 * HOUR);
    let policy = Policy::new("login", Limit::gcra(1, SECOND)).penalty(penalty);
    let limiter = bench.limiter([policy]);
    let early = Duration::from_micros(1);
    for (pause, hours) in [
        (5 * HOUR, 1),
        (5 * HOUR - early, 1),
        (5 * HOUR, 2),
        (Duration::ZERO, 1),
    ] {
        let banned = ban(&limiter).await;
        assert_eq!(banned.banned_for(), Some(hours * HOUR), "{pause:?}");
        bench.advance(hours * HOUR + pause);
    }
}

async fn looking_counts_for_nothing_and_shows_a_ban(bench: &Bench) {
    let limiter = bench.limiter([strict()]);
    assert!(check(&limiter).await.is_allowed());
    for _ in 0..5 {
        let looked = limiter.peek("login", "alice").await.unwrap();
        assert_eq!(looked.outcome(), Outcome::Allowed);
        assert_eq!((looked.remaining(), looked.banned_for()), (0, None));
    }
    for _ in 0..3 {
        let _ = check(&limiter).await;
    }
    bench.advance(MINUTE);
    for _ in 0..5 {
        let looked = limiter.peek("login", "alice").await.unwrap();
        assert_eq!(looked.outcome(), Outcome::Allowed, "a look always is");
        assert_eq!(looked.banned_for(), Some(HOUR - MINUTE));
        assert_eq!((looked.remaining(), looked.retry_after()), (0, None));
        assert!(looked.delay().is_zero());
    }
    let stranger = limiter.peek("login", "bob").await.unwrap();
    assert_eq!((stranger.remaining(), stranger.banned_for()), (1, None));
}

async fn charges_and_credits_go_on_during_a_ban_and_show_it(bench: &Bench) {
    let policy =
        Policy::new("login", Limit::gcra(2, SECOND)).penalty(Penalty::after(1, MINUTE, HOUR));
    let limiter = bench.limiter([policy]);
    let _ = limiter.charge("login", "alice", 2).await.unwrap();
    assert_eq!(check(&limiter).await.banned_for(), Some(HOUR));
    let charged = limiter.charge("login", "alice", 5).await.unwrap();
    assert_eq!(charged.outcome(), Outcome::Allowed);
    assert_eq!((charged.remaining(), charged.banned_for()), (0, Some(HOUR)));
    let credited = limiter.credit("login", "alice", 7).await.unwrap();
    assert_eq!(credited.outcome(), Outcome::Allowed);
    assert_eq!(
        (credited.remaining(), credited.banned_for()),
        (0, Some(HOUR))
    );
    // Only a reset lifts it.
    assert_eq!(check(&limiter).await.outcome(), Outcome::Banned);
    let _ = limiter.reset("login", "alice").await.unwrap();
    assert_eq!(check(&limiter).await.outcome(), Outcome::Allowed);
}

async fn costs_that_never_fit_cause_a_ban_and_report_no_wait(bench: &Bench) {
    let policy =
        Policy::new("login", Limit::gcra(2, SECOND)).penalty(Penalty::after(3, MINUTE, HOUR));
    let limiter = bench.limiter([policy]);
    let ban = [None, None, Some(HOUR), Some(HOUR)];
    for banned_for in ban {
        let never = limiter.check_cost("login", "alice", 3).await.unwrap();
        assert_eq!(never.outcome(), Outcome::NeverFits);
        assert_eq!(never.retry_after(), None, "waiting does not help");
        assert_eq!(never.banned_for(), banned_for);
    }
    assert_eq!(check(&limiter).await.retry_after(), Some(HOUR));
}

async fn a_ban_is_one_subjects_and_one_policys(bench: &Bench) {
    let limit = Limit::gcra(2, MINUTE);
    let other = Policy::new("other", limit).penalty(Penalty::after(3, MINUTE, HOUR));
    let limiter = bench.limiter([strict(), other]);
    let _ = ban(&limiter).await;
    for (policy, key) in [("login", "bob"), ("other", "alice")] {
        let decision = limiter.check(policy, key).await.unwrap();
        assert_eq!(decision.outcome(), Outcome::Allowed, "{policy} {key}");
    }
}

async fn a_ban_is_in_force_for_those_who_would_wait(bench: &Bench) {
    let limit = Limit::token_bucket(1, per_second(1));
    let policy = Policy::new("login", limit).penalty(Penalty::after(1, MINUTE, HOUR));
    let limiter = bench.limiter([policy]);
    assert!(check(&limiter).await.is_allowed());
    let soon = Duration::from_millis(1);
    let borrowed = limiter.try_acquire("login", "alice", 5, soon).await;
    assert!(borrowed.is_ok(), "the next one waits for these");
    let denied = decision(&limiter.try_acquire("login", "alice", 1, soon).await);
    assert_eq!(denied.outcome(), Outcome::Banned);
    let banned = decision(&limiter.acquire("login", "alice", 1).await);
    assert_eq!(banned.outcome(), Outcome::Banned);
    assert_eq!(banned.banned_for(), Some(HOUR));
    assert!(banned.delay().is_zero());
}
