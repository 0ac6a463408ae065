//! As many permits as there are: `admit_up_to`.

use proptest::prelude::*;
use tower_throttle::{
    CheckError, DAY, Denied, HOUR, Limit, Limiter, MINUTE, Outcome, Penalty, Policy, Rate, SECOND,
};

use crate::operations::limiter_of;
use support::bench::Bench;
use support::drawn::drawn;
use support::limits::{every, in_time};
use support::on_every_store;

mod not_enforced;
mod servers;

on_every_store! {
    what_is_granted_is_the_smaller_of_what_is_left_and_asked
    a_queue_grants_what_fits_while_nothing_is_before_it
    the_rate_with_the_fewest_left_says_how_many
    the_largest_numbers_are_granted_exactly
    who_is_denied_is_told_when_there_is_one
    what_was_granted_is_settled_and_given_back
    a_denial_of_more_leaves_the_rest_to_be_granted
    no_places_are_granted_in_part
    denials_of_all_are_counted_by_a_penalty
    a_most_of_nothing_looks
    an_ordinary_permit_has_granted_its_cost
    a_policy_that_does_not_exist_is_an_error
}

const MOST: u64 = 999_999_999_999_999;

/// What is granted; nothing if it is denied.
async fn granted(limiter: &Limiter, policy: &str, most: u64) -> u64 {
    match limiter.admit_up_to(policy, "alice", most).await {
        Ok(permit) => permit.granted(policy).unwrap(),
        Err(_) => 0,
    }
}

async fn left(limiter: &Limiter, policy: &str) -> u64 {
    assert!(limiter.flush().await);
    let looked = limiter.peek(policy, "alice").await.unwrap();
    looked.remaining()
}

async fn what_is_granted_is_the_smaller_of_what_is_left_and_asked(bench: &Bench) {
    let step = (
        1_u64..12,
        prop_oneof![2 => Just(0_u64), 1 => 0_u64..40_000_000],
    );
    let history = (1_u64..25, prop::collection::vec(step, 12));
    for (number, (permits, steps)) in drawn(history).take(12).enumerate() {
        let limits = in_time(permits, MINUTE);
        let names = limits.map(|(name, _)| format!("{name} {number}"));
        let policies = names.iter().zip(limits);
        let policies = policies.map(|(name, (_, limit))| Policy::new(name, limit));
        let limiter = bench.limiter(policies.collect::<Vec<_>>());
        for (most, pause_us) in &steps {
            bench.advance_us(*pause_us);
            for name in &names {
                let before = left(&limiter, name).await;
                let had = granted(&limiter, name, *most).await;
                assert_eq!(had, before.min(*most), "{name}: {most} of {permits}");
                assert_eq!(left(&limiter, name).await, before - had, "{name}");
            }
        }
    }
}

async fn a_queue_grants_what_fits_while_nothing_is_before_it(bench: &Bench) {
    let queue = Limit::leaky_bucket(10, Rate::new(10, MINUTE));
    let limiter = bench.limiter([Policy::new("queue", queue).max_wait(MINUTE)]);
    let permit = limiter.admit_up_to("queue", "alice", 4).await.unwrap();
    assert_eq!(permit.granted("queue"), Some(4));
    let denied = limiter.admit_up_to("queue", "alice", 4).await.unwrap_err();
    let wait = denied.retry_after().unwrap();
    assert_eq!(wait, 24 * SECOND, "until the four have left");
    assert_eq!(left(&limiter, "queue").await, 6);
    bench.advance(wait);
    assert_eq!(granted(&limiter, "queue", 100).await, 10);
}

async fn the_rate_with_the_fewest_left_says_how_many(bench: &Bench) {
    let limits = [
        Limit::gcra(10, MINUTE).and(14, DAY),
        Limit::fixed_window(10, MINUTE).and(14, DAY),
        Limit::sliding_log(10, MINUTE).and(14, DAY),
        Limit::sliding_window(10, MINUTE).and(14, DAY),
        Limit::sliding_counter(10, MINUTE).and(14, DAY),
    ];
    for (number, limit) in limits.into_iter().enumerate() {
        let name = format!("limit {number}");
        bench.align(DAY);
        let limiter = bench.limiter([Policy::new(&name, limit)]);
        assert_eq!(granted(&limiter, &name, 20).await, 10, "the minute's");
        assert_eq!(granted(&limiter, &name, 20).await, 0);
        bench.advance(3 * MINUTE);
        assert_eq!(granted(&limiter, &name, 20).await, 4, "the day's");
        // Both rates have taken as many.
        bench.advance(MINUTE);
        assert_eq!(granted(&limiter, &name, 20).await, 0);
        bench.advance(2 * DAY);
        assert_eq!(granted(&limiter, &name, 20).await, 10);
    }
}

async fn the_largest_numbers_are_granted_exactly(bench: &Bench) {
    for (number, taken) in [1, 2, 999, 123_456_789_012_345, MOST - 1]
        .into_iter()
        .enumerate()
    {
        // By rates that divide nothing evenly, too.
        for (permits, period) in [(MOST, DAY), (MOST - 13, 7 * HOUR)] {
            for (name, limit) in in_time(permits, period) {
                let name = format!("{name} {number} {permits}");
                // A log has an entry for each request.
                let policy = Policy::new(&name, limit).cost(1_000_000_000);
                let limiter = bench.limiter([policy]);
                let _ = limiter
                    .check_cost(&name, "alice", taken.min(permits - 1))
                    .await;
                let rest = left(&limiter, &name).await;
                assert_eq!(rest, permits - taken.min(permits - 1), "{name}");
                assert_eq!(granted(&limiter, &name, u64::MAX).await, rest, "{name}");
                assert_eq!(granted(&limiter, &name, 1).await, 0, "{name}");
            }
        }
    }
}

async fn who_is_denied_is_told_when_there_is_one(bench: &Bench) {
    for (name, limit) in in_time(6, MINUTE) {
        bench.align(MINUTE);
        let limiter = limiter_of(bench, [(name, limit)]);
        assert_eq!(granted(&limiter, name, 100).await, 6, "{name}");
        for _ in 0..2 {
            let denied = limiter.admit_up_to(name, "alice", 100).await.unwrap_err();
            let decision = denied.decision().unwrap();
            assert_eq!(decision.outcome(), Outcome::Denied, "{name}");
            assert_eq!(
                denied.retry_after(),
                Some(decision.next_permit_after()),
                "{name}"
            );
        }
        let denied = limiter.admit_up_to(name, "alice", 100).await.unwrap_err();
        let wait = denied.retry_after().unwrap();
        bench.advance(wait - std::time::Duration::from_micros(1));
        assert_eq!(granted(&limiter, name, 100).await, 0, "{name}: earlier");
        bench.advance_us(1);
        assert!(granted(&limiter, name, 100).await > 0, "{name}: then");
        bench.advance(2 * MINUTE);
    }
}

async fn what_was_granted_is_settled_and_given_back(bench: &Bench) {
    for (name, limit) in in_time(10, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        let taken = limiter.admit_up_to(name, "alice", 3).await.unwrap();
        let mut permit = limiter.admit_up_to(name, "alice", 50).await.unwrap();
        assert_eq!(permit.granted(name), Some(7), "{name}");
        for (actual, rest) in [(2, 5), (7, 0), (0, 7), (4, 3)] {
            permit.settle(name, actual).unwrap();
            assert_eq!(left(&limiter, name).await, rest, "{name}: {actual}");
        }
        assert_eq!(permit.granted(name), Some(7), "{name}: it stays");
        permit.cancel();
        assert_eq!(left(&limiter, name).await, 7, "{name}");
        let all = limiter.admit_up_to(name, "alice", 50).await.unwrap();
        all.cancel();
        assert_eq!(left(&limiter, name).await, 7, "{name}");
        drop(limiter.admit_up_to(name, "alice", 2).await.unwrap());
        drop(taken);
        assert_eq!(
            left(&limiter, name).await,
            5,
            "{name}: dropped, so it is used"
        );
    }
}

/// A deny cache remembers that four do not fit.
async fn a_denial_of_more_leaves_the_rest_to_be_granted(bench: &Bench) {
    for (name, limit) in in_time(10, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        assert_eq!(granted(&limiter, name, 7).await, 7);
        for _ in 0..2 {
            let denied = limiter.check_cost(name, "alice", 4).await.unwrap();
            assert!(!denied.is_allowed(), "{name}");
        }
        assert_eq!(granted(&limiter, name, 4).await, 3, "{name}");
    }
}

async fn no_places_are_granted_in_part(bench: &Bench) {
    let limiter = limiter_of(bench, every(10, MINUTE));
    let name = "concurrency".to_owned();
    let denied = limiter.admit_up_to(&name, "alice", 3).await.unwrap_err();
    let text = "policy \"concurrency\": the permits of a concurrency limit are places, ask for them \
                with admit";
    assert_eq!(denied.to_string(), text);
    assert_eq!(left(&limiter, &name).await, 10);
    assert_eq!(denied.error(), Some(&CheckError::CannotGrantPart { name }));
}

async fn denials_of_all_are_counted_by_a_penalty(bench: &Bench) {
    let policy = Policy::new("tokens", Limit::fixed_window(5, MINUTE));
    let policy = policy.penalty(Penalty::after(2, MINUTE, HOUR));
    let limiter = bench.limiter([policy]);
    // What is granted in part is no denial.
    assert_eq!(granted(&limiter, "tokens", 3).await, 3);
    assert_eq!(granted(&limiter, "tokens", 3).await, 2);
    let outcome = |denied: Denied| denied.decision().unwrap().outcome();
    for expected in [Outcome::Denied, Outcome::Banned] {
        let denied = limiter.admit_up_to("tokens", "alice", 3).await;
        assert_eq!(denied.map_err(outcome).unwrap_err(), expected);
    }
    bench.advance(2 * MINUTE);
    let banned = limiter.admit_up_to("tokens", "alice", 3).await;
    assert_eq!(banned.map_err(outcome).unwrap_err(), Outcome::Banned);
}

async fn a_most_of_nothing_looks(bench: &Bench) {
    for (name, limit) in in_time(2, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        for had in [2, 0] {
            let permit = limiter.admit_up_to(name, "alice", 0).await.unwrap();
            assert_eq!(permit.granted(name), Some(0));
            assert_eq!(granted(&limiter, name, 9).await, had, "{name}");
        }
    }
}

async fn an_ordinary_permit_has_granted_its_cost(bench: &Bench) {
    let limiter = limiter_of(bench, every(10, MINUTE));
    let asked = [
        ("gcra", "alice", 2),
        ("gcra", "bob", 3),
        ("concurrency", "alice", 4),
    ];
    let mut permit = limiter.admit_all(asked).await.unwrap();
    permit.settle("gcra", 1).unwrap();
    let each = ["gcra", "concurrency", "queue"].map(|name| permit.granted(name));
    assert_eq!(each, [Some(5), Some(4), None]);
    let permit = limiter.admit("queue", "alice").await.unwrap();
    assert_eq!(permit.granted("queue"), Some(1));
}

async fn a_policy_that_does_not_exist_is_an_error(bench: &Bench) {
    let limiter = limiter_of(bench, in_time(10, MINUTE));
    let denied = limiter.admit_up_to("tokens", "alice", 3).await.unwrap_err();
    let name = "tokens".to_owned();
    assert_eq!(denied.error(), Some(&CheckError::UnknownPolicy { name }));
}
