//! Leases are renewed together for as long as they are held, and no longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::runtime::Handle;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep};
use tower_throttle::store::Action;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    Clock, FailureMode, Header, Limit, Limiter, ManualClock, MemoryStore, Permit, Policy, SECOND,
    StoreErrorKind,
};

use super::places::{EVERYBODY, LIFE, POLICY, Places, come_to, in_use, patient, policy, until};
use super::watched::Watched;
use support::redis::Server;

/// A limiter of a thousand places over a store that records what it is asked.
fn thousand(life: Duration) -> (Watched, Limiter) {
    let store = Watched::new();
    let limit = Limit::concurrency(1_000).lease(life);
    (store.clone(), patient(store, [policy(limit)]))
}

async fn admit(limiter: &Limiter) -> Permit {
    limiter.admit(POLICY, EVERYBODY).await.unwrap()
}

/// Lets time pass on the store's clock and in the process.
async fn pass(store: &Watched, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let step = Instant::now();
        sleep(Duration::from_millis(5)).await;
        store.clock().advance(step.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_outlives_many_lives_and_is_not_missed_when_it_ends() {
    let (store, limiter) = thousand(LIFE);
    let held = admit(&limiter).await;
    for _ in 0..10 {
        pass(&store, LIFE).await;
        assert_eq!(in_use(&limiter).await, 1);
    }
    drop(held);
    come_to(&limiter, 0).await;
    store.renewed();
    pass(&store, 10 * LIFE).await;
    assert_eq!(store.renewed(), [0; 0], "there is nothing left to renew");
}

/// As far as this process knows, it lives from the time at which the store was asked.
#[tokio::test(start_paused = true)]
async fn a_lease_outlives_answers_that_take_most_of_its_life() {
    let (store, limiter) = thousand(LIFE);
    store.answer_after(LIFE * 3 / 4);
    let (_held, ()) = tokio::join!(admit(&limiter), pass(&store, 10 * LIFE));
    store.answer_after(Duration::ZERO);
    assert_eq!(in_use(&limiter).await, 1);
}

/// The store may have taken or renewed it as soon as it was asked.
#[tokio::test(start_paused = true)]
async fn a_late_answer_does_not_make_a_lease_live_longer() {
    let (store, limiter) = thousand(LIFE);
    store.answer_after(LIFE / 2);
    let fails = async { store.fail(StoreErrorKind::Unreachable) };
    let (held, ()) = tokio::join!(admit(&limiter), fails);
    pass(&store, LIFE * 3 / 8).await;
    assert!(!held.has_lapsed());
    pass(&store, LIFE / 4).await;
    assert!(held.has_lapsed());

    let (store, limiter) = thousand(LIFE);
    let held = admit(&limiter).await;
    store.answer_after(LIFE / 2);
    pass(&store, LIFE * 5 / 12).await;
    assert_eq!(store.renewed(), [1], "after a third of its life");
    store.fail(StoreErrorKind::Unreachable);
    pass(&store, LIFE * 5 / 6).await;
    assert!(!held.has_lapsed());
    pass(&store, LIFE / 6).await;
    assert!(held.has_lapsed());
}

/// Otherwise its job would run beside that of the next one.
#[tokio::test(start_paused = true)]
async fn a_permit_tells_for_good_that_its_lease_has_lapsed() {
    let (store, limiter) = thousand(LIFE);
    let held = admit(&limiter).await;
    pass(&store, 10 * LIFE).await;
    assert!(!held.has_lapsed());
    // Nothing runs meanwhile.
    store.clock().advance(LIFE);
    tokio::time::advance(LIFE).await;
    assert!(held.has_lapsed());
    assert_eq!(in_use(&limiter).await, 0);
    pass(&store, 2 * LIFE).await;
    assert!(held.has_lapsed());

    let held = admit(&limiter).await;
    store.fail(StoreErrorKind::Unreachable);
    pass(&store, LIFE * 3 / 4).await;
    assert!(!held.has_lapsed());
    pass(&store, LIFE / 2).await;
    assert!(held.has_lapsed());
    store.work();
    pass(&store, 2 * LIFE).await;
    assert!(held.has_lapsed());
}

#[tokio::test(start_paused = true)]
async fn a_permit_without_a_lease_never_lapses() {
    let store = Watched::new();
    let rate = Policy::new("rate", Limit::gcra(1, SECOND));
    let places = policy(Limit::concurrency(1)).on_store_failure(FailureMode::Allow);
    let limiter = patient(store.clone(), [places, rate]);
    let _held = admit(&limiter).await;
    assert!(limiter.admit(POLICY, EVERYBODY).await.is_err());
    let rate = limiter.admit("rate", EVERYBODY).await.unwrap();
    store.fail(StoreErrorKind::Unreachable);
    let uncounted = limiter.admit(POLICY, EVERYBODY).await.unwrap();
    tokio::time::advance(3_600 * SECOND).await;
    for held in [rate, uncounted] {
        assert!(!held.has_lapsed(), "{held:?}");
    }
}

/// No other process knows of it.
#[tokio::test(start_paused = true)]
async fn a_lease_that_this_process_granted_by_itself_has_one_life() {
    let store = Watched::new();
    let places = policy(Limit::concurrency(1).lease(LIFE));
    let places = places.on_store_failure(FailureMode::Local { share: 1.0 });
    let limiter = patient(store.clone(), [places]);
    store.fail(StoreErrorKind::Unreachable);
    let held = admit(&limiter).await;
    pass(&store, LIFE * 3 / 4).await;
    assert!(!held.has_lapsed());
    pass(&store, LIFE / 2).await;
    assert!(held.has_lapsed());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_renews_lapses_after_30_s_by_default() {
    let store = Watched::new();
    let limiter = patient(store.clone(), [policy(Limit::concurrency(1))]);
    let _ = limiter.check(POLICY, EVERYBODY).await.unwrap();
    let microsecond = Duration::from_micros(1);
    store.clock().advance(30 * SECOND - microsecond);
    assert_eq!(in_use(&limiter).await, 1);
    store.clock().advance(microsecond);
    assert_eq!(in_use(&limiter).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_leases_are_renewed_in_five_trips_each_third() {
    let (store, limiter) = thousand(30 * SECOND);
    let mut held = Vec::new();
    // Each at a time of its own, until shortly before the first is due.
    for _ in 0..1_000 {
        held.push(admit(&limiter).await);
        pass(&store, Duration::from_millis(5)).await;
    }
    assert_eq!(store.renewed(), [0; 0]);
    for _ in 0..9 {
        pass(&store, 10 * SECOND).await;
        assert_eq!(store.renewed(), [200; 5]);
    }
    assert_eq!(in_use(&limiter).await, 1_000);
}

/// A store that answers at once, and counts the questions that renew leases.
#[derive(Clone)]
struct AtOnce {
    store: MemoryStore,
    renewals: Arc<AtomicUsize>,
}

impl Store for AtOnce {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let renews = |check: &Check<'_>| matches!(check.action, Action::Renew(_));
        let renews = checks.iter().any(renews);
        self.renewals.fetch_add(renews.into(), Ordering::SeqCst);
        self.store.ask(checks)
    }
}

/// Otherwise a process with a hundred thousand of them would answer nobody meanwhile.
#[tokio::test(start_paused = true)]
async fn others_run_while_many_leases_in_memory_are_renewed() {
    let store = AtOnce {
        store: MemoryStore::new(),
        renewals: Arc::default(),
    };
    let limit = Limit::concurrency(1_000).lease(LIFE);
    let limiter = patient(store.clone(), [policy(limit)]);
    let _held = join_all((0..1_000).map(|_| admit(&limiter))).await;
    tokio::time::advance(LIFE / 3).await;
    let (mut before, mut most) = (0, 0);
    for _ in 0..100 {
        let renewals = store.renewals.load(Ordering::SeqCst);
        most = most.max(renewals - before);
        before = renewals;
        yield_now().await;
    }
    assert_eq!((before, most), (5, 1));
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_short_cause_no_renewals() {
    let (store, limiter) = thousand(30 * SECOND);
    for _ in 0..100 {
        let held = [admit(&limiter).await, admit(&limiter).await];
        pass(&store, SECOND).await;
        drop(held);
    }
    assert_eq!(store.renewed(), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_short_lease_does_not_wait_for_long_ones() {
    // Before and after the first renewal of the long one.
    for begins in [5 * SECOND, 25 * SECOND] {
        let store = Watched::new();
        let policies = [("long", 60), ("short", 3)].map(|(name, life)| {
            Policy::new(name, Limit::concurrency(1).lease(life * SECOND)).by(Header::new("x-user"))
        });
        let limiter = patient(store.clone(), policies);
        let _long = limiter.admit("long", "alice").await.unwrap();
        pass(&store, begins).await;
        let _short = limiter.admit("short", "alice").await.unwrap();
        store.renewed();
        pass(&store, 60 * SECOND).await;
        for name in ["long", "short"] {
            let decision = limiter.peek(name, "alice").await.unwrap();
            assert_eq!(decision.remaining(), 0, "{name}");
        }
        // Once a second, and only when it is due together with the other.
        let renewed = store.renewed();
        assert_eq!(renewed.len(), 60);
        assert_eq!(renewed.into_iter().filter(|leases| *leases == 2).count(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_fails_is_tried_again_while_the_lease_lives() {
    // So long that the circuit breaker, which these failures open, probes in time.
    let life = 60 * SECOND;
    let (store, limiter) = thousand(life);
    for kind in [
        StoreErrorKind::Unreachable,
        StoreErrorKind::TimedOut,
        StoreErrorKind::Overloaded,
    ] {
        let held = admit(&limiter).await;
        store.fail(kind);
        pass(&store, life * 5 / 6).await;
        store.work();
        pass(&store, life).await;
        assert_eq!(in_use(&limiter).await, 1, "{kind:?}");
        drop(held);
        come_to(&limiter, 0).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_lease_is_renewed_also_when_there_was_none_for_long() {
    let (store, limiter) = thousand(LIFE);
    for _ in 0..3 {
        let held = admit(&limiter).await;
        pass(&store, 2 * LIFE).await;
        assert_eq!(in_use(&limiter).await, 1);
        drop(held);
        come_to(&limiter, 0).await;
        pass(&store, 2 * LIFE).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_panics_at_a_renewal_ends_no_renewals() {
    let (store, limiter) = thousand(LIFE);
    let held = admit(&limiter).await;
    for _ in 0..3 {
        store.panic();
        pass(&store, 3 * LIFE).await;
        assert_eq!(in_use(&limiter).await, 1);
    }
    drop(held);
}

/// The next round of its task is months away.
#[tokio::test(start_paused = true)]
async fn a_limiter_that_is_dropped_leaves_no_task_behind() {
    let (store, limiter) = thousand(365 * 86_400 * SECOND);
    let runtime = Handle::current().metrics();
    let tasks = || runtime.num_alive_tasks();
    let held = admit(&limiter).await;
    sleep(SECOND).await;
    drop(held);
    sleep(SECOND).await;
    assert_eq!(tasks(), 1);
    drop((store, limiter));
    until("no task", async || tasks() == 0).await;
}

/// When each lease on the server lapses.
fn lapses(redis: &Server) -> Vec<u64> {
    let keys = redis.keys().into_iter();
    let of_key = |key: String| -> Vec<(String, u64)> {
        redis.query(("ZRANGEBYSCORE", key, 1, "+inf", "WITHSCORES"))
    };
    keys.flat_map(of_key).map(|(_, lapses)| lapses).collect()
}

#[tokio::test]
async fn a_hundred_leases_on_ten_keys_are_renewed_by_one_command() {
    let (server, clock) = (Server::start(), ManualClock::new());
    let store = server.builder().clock_for_tests(clock.clone());
    let limit = Limit::concurrency(10).lease(LIFE);
    let limiter = patient(store.connect().await.unwrap(), [policy(limit)]);
    let held = join_all((0..100_u64).map(|number| limiter.admit(POLICY, number % 10))).await;
    assert!(held.iter().all(Result::is_ok));
    assert_eq!(server.keys().len(), 10);
    let (commands, started) = (server.calls("evalsha"), Instant::now());
    // Four lives, in steps in which each is renewed in time.
    for _ in 0..12 {
        clock.advance(LIFE / 3);
        let renewed = clock.now().saturating_add(LIFE.into()).get();
        until("all are renewed", async || {
            lapses(&server) == [renewed; 100]
        })
        .await;
    }
    let commands = server.calls("evalsha") - commands;
    // One for each third of a life that has passed.
    let most = 1 + started.elapsed().as_micros() / (LIFE / 3).as_micros();
    assert!(u128::from(commands) <= most, "{commands} commands");
    drop(held);
    until("nothing is left", async || server.keys().is_empty()).await;
}

#[tokio::test]
async fn a_key_that_was_overwritten_costs_only_its_own_leases() {
    let places = Places::redis().await;
    let redis = places.redis.as_ref().unwrap();
    let _carols = places.limiter.admit(POLICY, "carol").await.unwrap();
    let key = redis.keys().remove(0);
    let others = ["alice", "bob", "dave", "eve"];
    let admit = |user| places.limiter.admit(POLICY, user);
    let _others = join_all(others.map(admit)).await;
    redis.query::<()>(("SET", key, "corrupt", "PX", 600_000));
    for _ in 0..6 {
        places.clock.advance(LIFE / 3);
        for user in others {
            until("it is renewed", async || {
                let decision = places.limiter.peek(POLICY, user).await.unwrap();
                decision.remaining() == 1 && decision.reset_after() == LIFE
            })
            .await;
        }
    }
}
