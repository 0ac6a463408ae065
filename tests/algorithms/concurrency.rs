//! Concurrency: a number of requests at the same time, by leases.

use std::num::NonZeroU64;
use std::time::Duration;

use tower_throttle::store::{Acquire, Action, LeaseId};
use tower_throttle::{Decision, HOUR, Limit, SECOND};

use crate::credit;
use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    no_more_run_at_the_same_time_than_the_limit
    a_lease_holds_as_many_permits_as_its_request_costs
    the_leases_of_a_server_that_crashed_lapse_by_themselves
    a_lease_that_is_renewed_lives_on
    a_lease_never_outlives_its_renewal
    a_lapsed_lease_is_not_revived
    wait_behind_many_leases_of_several_permits_is_long_enough
    of_many_leases_that_lapse_at_once_all_are_looked_at_or_none
    a_release_is_idempotent
    a_release_of_nothing_leaves_nothing
    a_credit_ends_nobodys_lease
    a_longer_lease_is_had_with_the_next_renewal
    a_charge_fills_up_what_can_be_held_beside_leases
}

const LIMIT: Limit = Limit::concurrency(3).lease(Duration::from_secs(30));

fn lease(number: u64) -> LeaseId {
    LeaseId::from(NonZeroU64::new(number).unwrap())
}

/// A request starts, with a lease of this number.
async fn start(bench: &Bench, number: u64, cost: u64) -> Decision {
    let take = Acquire::new(cost).with_lease(lease(number));
    bench.act(LIMIT, Action::Acquire(take)).await
}

async fn renew(bench: &Bench, number: u64) -> Decision {
    bench.act(LIMIT, Action::Renew(lease(number))).await
}

async fn release(bench: &Bench, number: u64) -> Decision {
    bench.act(LIMIT, Action::Release(lease(number))).await
}

async fn no_more_run_at_the_same_time_than_the_limit(bench: &Bench) {
    for number in 1..=3 {
        assert!(start(bench, number, 1).await.is_allowed());
    }
    assert!(!start(bench, 4, 1).await.is_allowed());
    assert_eq!(release(bench, 2).await.remaining(), 1);
    assert!(start(bench, 4, 1).await.is_allowed());
    assert!(!start(bench, 5, 1).await.is_allowed());
}

async fn a_lease_holds_as_many_permits_as_its_request_costs(bench: &Bench) {
    assert_eq!(start(bench, 1, 2).await.remaining(), 1);
    assert!(!start(bench, 2, 2).await.is_allowed());
    assert_eq!(start(bench, 3, 1).await.remaining(), 0);
    assert_eq!(release(bench, 1).await.remaining(), 2);
    assert_eq!(release(bench, 3).await.remaining(), 3);
    assert_eq!(bench.ask(LIMIT, 4).await.retry_after(), None, "never fits");
}

async fn the_leases_of_a_server_that_crashed_lapse_by_themselves(bench: &Bench) {
    let _ = start(bench, 1, 1).await;
    bench.advance(10 * SECOND);
    let _ = start(bench, 2, 2).await;
    // The first lapse gives one, and two more come with the second.
    for (cost, wait) in [(1, 20), (2, 30), (3, 30)] {
        let denied = start(bench, 3, cost).await;
        assert_eq!(
            denied.retry_after(),
            Some(wait * SECOND),
            "a cost of {cost}"
        );
    }
    bench.advance(20 * SECOND);
    assert_eq!(bench.ask(LIMIT, 0).await.remaining(), 1);
    bench.advance(10 * SECOND);
    assert_eq!(bench.ask(LIMIT, 0).await.remaining(), 3);
}

/// The first 64 are looked at, and the others are taken to hold one permit each.
async fn wait_behind_many_leases_of_several_permits_is_long_enough(bench: &Bench) {
    let limit = Limit::concurrency(200).lease(HOUR);
    for number in 1..=100 {
        bench.advance(SECOND);
        let take = Acquire::new(2).with_lease(lease(number));
        assert!(bench.act(limit, Action::Acquire(take)).await.is_allowed());
    }
    for (cost, last_to_lapse) in [
        (1, 1),
        (2, 1),
        (3, 2),
        (127, 64),
        (128, 64),
        (129, 65),
        (130, 66),
        (163, 99),
        (164, 100),
        (165, 100),
        (200, 100),
    ] {
        let denied = bench.ask(limit, cost).await;
        let wait = HOUR - (100 - last_to_lapse) * SECOND;
        assert_eq!(denied.retry_after(), Some(wait), "a cost of {cost}");
    }
    if let Some(server) = bench.server_if_any() {
        let before = server.calls("zscore");
        let _ = bench.ask(limit, 200).await;
        let looks = server.calls("zscore") - before;
        assert!(looks < 70, "{looks}");
    }
}

/// Whatever their order.
async fn of_many_leases_that_lapse_at_once_all_are_looked_at_or_none(bench: &Bench) {
    let limit = Limit::concurrency(291).lease(HOUR);
    let start = async |numbers: std::ops::RangeInclusive<u64>, permits_of: fn(u64) -> u64| {
        for number in numbers {
            let take = Acquire::new(permits_of(number)).with_lease(lease(number));
            assert!(bench.act(limit, Action::Acquire(take)).await.is_allowed());
        }
        bench.advance(SECOND);
    };
    start(1..=10, |_| 3).await;
    start(11..=110, |number| 1 + number % 3).await;
    start(111..=170, |_| 1).await;
    for (cost, lapses) in [(30, 1), (31, 2), (130, 2), (131, 3), (191, 3), (291, 3)] {
        let denied = bench.ask(limit, cost).await;
        let wait = HOUR - (4 - lapses) * SECOND;
        assert_eq!(denied.retry_after(), Some(wait), "a cost of {cost}");
    }
}

async fn a_lease_that_is_renewed_lives_on(bench: &Bench) {
    let _ = start(bench, 1, 3).await;
    // Every third of its life.
    for _ in 0..12 {
        bench.advance(10 * SECOND);
        assert_eq!(renew(bench, 1).await.remaining(), 0);
        assert!(!start(bench, 2, 1).await.is_allowed());
    }
    let _ = release(bench, 1).await;
    assert!(start(bench, 2, 3).await.is_allowed());
}

async fn a_lease_never_outlives_its_renewal(bench: &Bench) {
    let _ = start(bench, 1, 3).await;
    bench.advance(29 * SECOND);
    assert_eq!(renew(bench, 1).await.reset_after(), 30 * SECOND);
    bench.advance(30 * SECOND - Duration::from_micros(1));
    assert!(!start(bench, 2, 1).await.is_allowed());
    bench.advance_us(1);
    assert!(start(bench, 2, 1).await.is_allowed());
}

/// If it is renewed a moment too late, its permits may be others' by now.
async fn a_lapsed_lease_is_not_revived(bench: &Bench) {
    let _ = start(bench, 1, 2).await;
    bench.advance(30 * SECOND);
    assert_eq!(renew(bench, 1).await.remaining(), 3);
    for number in 2..=4 {
        assert!(start(bench, number, 1).await.is_allowed());
    }
    assert_eq!(renew(bench, 1).await.remaining(), 0);
    assert_eq!(bench.ask(LIMIT, 0).await.remaining(), 0);
}

/// As when a request's end is reported twice, or long after its lease has lapsed.
async fn a_release_is_idempotent(bench: &Bench) {
    let _ = start(bench, 1, 1).await;
    let _ = start(bench, 2, 1).await;
    for _ in 0..3 {
        assert_eq!(release(bench, 1).await.remaining(), 2);
    }
    bench.advance(30 * SECOND);
    let _ = start(bench, 3, 3).await;
    assert_eq!(release(bench, 2).await.remaining(), 0);
    assert_eq!(release(bench, 9).await.remaining(), 0, "nobody's");
}

async fn a_release_of_nothing_leaves_nothing(bench: &Bench) {
    let _ = release(bench, 1).await;
    let _ = renew(bench, 1).await;
    assert_eq!(bench.stored(), 0);
}

/// A credit concerns permits taken without a lease; a lease is released by its holder.
async fn a_credit_ends_nobodys_lease(bench: &Bench) {
    let _ = start(bench, 1, 1).await;
    let _ = bench.act(LIMIT, Action::Charge(2)).await;
    let back = credit(9, None);
    assert_eq!(bench.act(LIMIT, back).await.remaining(), 2);
    assert_eq!(bench.act(LIMIT, back).await.remaining(), 2);
}

async fn a_longer_lease_is_had_with_the_next_renewal(bench: &Bench) {
    let _ = start(bench, 1, 1).await;
    let longer = Limit::concurrency(3).lease(90 * SECOND);
    let renewed = bench.act(longer, Action::Renew(lease(1))).await;
    assert_eq!(renewed.reset_after(), 90 * SECOND);
    // A shorter life never takes away what was promised.
    let renewed = renew(bench, 1).await;
    assert_eq!(renewed.reset_after(), 90 * SECOND);
}

/// All together are counted up to the largest limit.
async fn a_charge_fills_up_what_can_be_held_beside_leases(bench: &Bench) {
    let _ = start(bench, 1, 1).await;
    let _ = bench.act(LIMIT, Action::Charge(u64::MAX)).await;
    let back = credit(999_999_999_999_998, None);
    assert_eq!(bench.act(LIMIT, back).await.remaining(), 2);
}
