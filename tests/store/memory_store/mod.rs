//! What the memory store promises beyond other stores: a bound, forgetting by itself, and whom it
//! forgets when it is full.
#![cfg(feature = "memory")]

use std::convert::Infallible;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt as _;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::Check;
use tower_throttle::{
    Decision, FailureMode, HOUR, Header, Key, Limit, Limiter, MINUTE, ManualClock, MemoryStore,
    Outcome, Penalty, Policy, RateLimitLayer, SECOND, StoreErrorKind, Subject,
};

use self::asking::{Asked, ask};

mod asking;
mod clocks;
mod kept;

/// A small store, so that a flood of ten times as many keys is quick.
const CAPACITY: usize = 2_048;
const FLOOD: u64 = 10 * CAPACITY as u64;

struct Setup {
    clock: ManualClock,
    store: MemoryStore,
    limiter: Limiter,
}

impl Setup {
    fn new(limit: Limit) -> Self {
        Self::with_policies([Policy::new("api", limit)])
    }

    fn with_policies(policies: impl IntoIterator<Item = Policy>) -> Self {
        let clock = ManualClock::new();
        let builder = MemoryStore::builder().capacity(CAPACITY);
        let store = builder.clock(clock.clone()).build();
        let limiter = Limiter::new(store.clone(), policies).unwrap();
        Self {
            clock,
            store,
            limiter,
        }
    }

    fn check(&self, key: impl Into<Key>) -> Decision {
        self.check_cost("api", key, 1)
    }

    fn check_cost(&self, policy: &str, key: impl Into<Key>, cost: u64) -> Decision {
        let answer = self.limiter.check_cost(policy, key, cost).now_or_never();
        answer.expect("a memory store answers at once").unwrap()
    }

    /// Asks once for each of these keys, which do not matter themselves.
    fn flood(&self, keys: impl IntoIterator<Item = u64>) {
        for key in keys {
            let _ = self.check(key);
        }
    }
}

/// Keys whose hashes begin like that of a subject they would evict.
#[test]
fn made_up_keys_crowd_nobody_out_before_the_store_is_full() {
    let setup = Setup::new(Limit::sliding_log(5, HOUR));
    let key = |number: u64| Key::header("x-user", number.to_string().as_bytes());
    let begins = |key: &Key| Subject::from(key).to_u128() >> (u128::BITS - 6);
    let alice = key(0);
    let alike = (1..).map(key).filter(|key| begins(key) == begins(&alice));
    for key in alike.take(CAPACITY / 4) {
        (0..5).for_each(|_| assert!(setup.check(key.clone()).is_allowed()));
    }
    let allowed = (0..100).filter(|_| setup.check(alice.clone()).is_allowed());
    assert_eq!(allowed.count(), 5);
}

#[test]
fn a_flood_of_distinct_keys_never_passes_the_bound() {
    let setup = Setup::new(Limit::gcra(100, MINUTE));
    for key in 0..FLOOD {
        assert!(setup.check(key).is_allowed());
        if key % 64 == 0 {
            assert!(setup.store.len() <= CAPACITY);
        }
    }
    assert_eq!(setup.store.len(), CAPACITY);
}

#[test]
fn a_tiny_capacity_is_rounded_up() {
    let store = MemoryStore::builder().capacity(0).build();
    let limiter = Limiter::new(store.clone(), [Policy::new("api", Limit::gcra(9, MINUTE))]);
    let limiter = limiter.unwrap();
    for key in 0..20_000_u64 {
        let decision = limiter.check("api", key).now_or_never().unwrap().unwrap();
        assert!(decision.store_failure().is_none());
    }
    assert_eq!(store.len(), 1_024);
}

#[test]
fn keys_in_use_survive_a_flood() {
    let setup = Setup::new(Limit::fixed_window(1_000, MINUTE));
    let active = || (0..100).map(|number| format!("active {number}"));
    for key in active() {
        let _ = setup.check(&key);
    }
    // Each is used once while a quarter of the capacity passes by.
    for (position, key) in (0..FLOOD).enumerate() {
        let _ = setup.check(key);
        if position % (CAPACITY / 4) == 0 {
            for key in active() {
                let _ = setup.check(&key);
            }
        }
    }
    let uses = 1 + FLOOD.div_ceil(CAPACITY as u64 / 4);
    for key in active() {
        let left = setup.check_cost("api", &key, 0).remaining();
        assert_eq!(left, 1_000 - uses, "{key}");
    }
}

#[test]
fn idle_keys_go_before_active_ones() {
    let setup = Setup::new(Limit::fixed_window(1_000, MINUTE));
    let count = CAPACITY as u64 / 4;
    let (idle, active) = (0..count, count..2 * count);
    setup.flood(idle.clone());
    (0..4).for_each(|_| setup.flood(active.clone()));
    setup.flood(FLOOD..FLOOD + 3 * count);
    let used = |key| 1_000 - setup.check_cost("api", key, 0).remaining();
    let kept = |keys: std::ops::Range<u64>, uses| keys.filter(|&key| used(key) == uses).count();
    assert_eq!(kept(active, 4), count as usize);
    assert!(kept(idle, 1) < count as usize);
}

#[test]
fn a_denied_subject_stays_denied_through_a_flood() {
    for limit in [
        Limit::gcra(1, MINUTE).burst(5),
        Limit::fixed_window(5, MINUTE),
        Limit::sliding_log(5, MINUTE),
    ] {
        let setup = Setup::with_policies([
            Policy::new("api", Limit::gcra(100, SECOND)),
            Policy::new("login", limit),
        ]);
        // Three of five are used, and four are asked for: denied, although something remains.
        assert!(setup.check_cost("login", "mallory", 3).is_allowed());
        let denied = setup.check_cost("login", "mallory", 4);
        let wait = denied.retry_after().unwrap();
        for part in 0..3 {
            setup.flood(part * FLOOD..(part + 1) * FLOOD);
            setup.clock.advance(wait / 3 - Duration::from_micros(1));
            let again = setup.check_cost("login", "mallory", 4);
            assert_eq!(again.outcome(), Outcome::Denied, "{limit:?}");
        }
        setup.clock.advance(Duration::from_micros(3));
        assert!(setup.check_cost("login", "mallory", 4).is_allowed());
    }
}

#[test]
fn an_exhausted_subject_is_still_denied_after_a_flood() {
    for limit in [
        Limit::gcra(5, MINUTE),
        Limit::fixed_window(5, MINUTE),
        Limit::sliding_log(5, MINUTE),
    ] {
        let setup = Setup::with_policies([
            Policy::new("api", Limit::gcra(100, MINUTE)),
            Policy::new("login", limit),
        ]);
        assert!(setup.check_cost("login", "mallory", 5).is_allowed());
        setup.flood(0..FLOOD);
        let denied = setup.check_cost("login", "mallory", 5);
        assert_eq!(denied.outcome(), Outcome::Denied, "{limit:?}");
        assert_eq!(denied.retry_after(), Some(MINUTE));
    }
}

#[test]
fn a_banned_subject_stays_banned_through_a_flood() {
    let policy = Policy::new("api", Limit::gcra(2, SECOND));
    let setup = Setup::with_policies([policy.penalty(Penalty::after(2, MINUTE, HOUR))]);
    for _ in 0..4 {
        let _ = setup.check("banned");
    }
    // What it has used is back; only the ban is left of it.
    setup.clock.advance(MINUTE);
    setup.flood(0..FLOOD);
    assert_eq!(setup.check("banned").outcome(), Outcome::Banned);
}

#[test]
fn a_store_of_denied_subjects_is_full_until_they_may_return() {
    let setup = Setup::new(Limit::gcra(2, MINUTE));
    setup.flood((0..FLOOD).flat_map(|key| [key, key]));
    assert_eq!(setup.store.len(), CAPACITY);

    // All that were let in are still denied; the others find the store full.
    let outcomes: Vec<Outcome> = (0..FLOOD).map(|key| setup.check(key).outcome()).collect();
    let count = |this| outcomes.iter().filter(|outcome| **outcome == this).count();
    let full = Outcome::FailedOpen(StoreErrorKind::Full);
    assert_eq!(count(Outcome::Denied), CAPACITY);
    assert_eq!(count(full), FLOOD as usize - CAPACITY);

    // Half of each quota is back, so nobody is denied although no state is over.
    setup.clock.advance(MINUTE / 2 - Duration::from_micros(1));
    assert_eq!(setup.check("newcomer").outcome(), full);
    setup.clock.advance(Duration::from_micros(1));
    for outcome in [Outcome::Allowed, Outcome::Allowed, Outcome::Denied] {
        assert_eq!(setup.check("newcomer").outcome(), outcome);
    }
    assert_eq!(setup.store.len(), CAPACITY);
}

#[test]
fn expired_keys_are_forgotten_while_only_one_other_key_is_used() {
    let setup = Setup::with_policies([
        Policy::new("api", Limit::sliding_log(2, MINUTE)),
        Policy::new("other", Limit::gcra(100_000, SECOND)),
    ]);
    // So few that each finds room in its shard.
    setup.flood(0..500);
    assert_eq!(setup.store.len(), 500);

    let traffic =
        || (0..20_000).for_each(|_| assert!(setup.check_cost("other", "alice", 1).is_allowed()));
    // A second longer than needed, for clocks that are corrected.
    setup
        .clock
        .advance(MINUTE + SECOND - Duration::from_micros(1));
    traffic();
    assert_eq!(setup.store.len(), 501);
    setup.clock.advance(Duration::from_micros(1));
    traffic();
    assert_eq!(setup.store.len(), 1);
}

#[test]
fn newcomers_make_room_for_themselves_when_keys_are_short_lived() {
    let setup = Setup::new(Limit::fixed_window(2, SECOND));
    for key in 0..FLOOD {
        let _ = setup.check(key);
        setup.clock.advance(SECOND / 100);
    }
    // A hundred are alive at any time.
    assert!(setup.store.len() < 1_000, "{}", setup.store.len());
}

#[test]
fn a_request_that_takes_nothing_stores_nothing() {
    let setup = Setup::new(Limit::sliding_log(5, MINUTE));
    assert_eq!(
        setup.check_cost("api", "alice", 6).outcome(),
        Outcome::NeverFits
    );
    assert!(setup.check_cost("api", "bob", 0).is_allowed());
    assert!(setup.store.is_empty());
}

#[test]
fn a_clock_that_steps_back_forgets_nothing() {
    let setup = Setup::new(Limit::fixed_window(2, MINUTE));
    setup.flood(0..500);
    setup.clock.step_back(60 * MINUTE);
    setup.flood(500..1_000);
    let left = |key: u64| setup.check_cost("api", key, 0).remaining();
    assert!((0..1_000).all(|key| left(key) == 1));
}

#[test]
fn two_algorithms_under_one_name_do_not_disturb_each_other() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock).build();
    let limiter = |limit| Limiter::new(store.clone(), [Policy::new("api", limit)]).unwrap();
    let (old, new) = (
        limiter(Limit::gcra(1, MINUTE)),
        limiter(Limit::fixed_window(1, MINUTE)),
    );
    let allowed = |limiter: &Limiter| {
        let decision = limiter.check("api", "alice").now_or_never().unwrap();
        decision.unwrap().is_allowed()
    };
    assert!(allowed(&old) && allowed(&new));
    assert!(!allowed(&old) && !allowed(&new));
}

#[test]
fn checks_of_one_question_are_charged_all_or_none() {
    let setup = Setup::new(Limit::gcra(1, MINUTE));
    let wide = Asked::new("wide", Limit::fixed_window(10, MINUTE), "alice", 1);
    let narrow = Asked::new("narrow", Limit::sliding_log(2, MINUTE), "alice", 1);
    let unused = Asked::new("unused", Limit::gcra(5, MINUTE), "bob", 1);
    let both = [wide.check(), narrow.check()];
    for left in [1, 0] {
        let decisions = ask(&setup.store, &both).unwrap();
        assert!(decisions.all_allow());
        assert_eq!(decisions[1].remaining(), left);
    }

    let denied = ask(
        &setup.store,
        &[wide.check(), unused.check(), narrow.check()],
    )
    .unwrap();
    let outcomes: Vec<Outcome> = denied.iter().map(Decision::outcome).collect();
    assert_eq!(
        outcomes,
        [Outcome::Allowed, Outcome::Allowed, Outcome::Denied]
    );
    let left: Vec<u64> = denied.iter().map(Decision::remaining).collect();
    assert_eq!(left, [8, 5, 0], "a denial charges nobody");
    assert_eq!(setup.store.len(), 2, "a denial leaves no trace");
    assert!(ask(&setup.store, &[]).unwrap().is_empty());
}

#[test]
fn a_question_that_finds_no_room_for_one_key_charges_none() {
    let setup = Setup::new(Limit::gcra(1, MINUTE));
    let known = |cost| Asked::new("known", Limit::fixed_window(10, MINUTE), "alice", cost);
    let left = |asked: &Asked| ask(&setup.store, &[asked.check()]).unwrap()[0].remaining();
    // It survives the flood, because six more would be denied, and still has room for one.
    assert_eq!(left(&known(6)), 4);
    setup.flood(0..FLOOD);
    let known = known(1);
    assert_eq!(left(&known), 3);

    let others: Vec<Asked> = (0..200_u64)
        .map(|key| Asked::new("other", Limit::fixed_window(10, MINUTE), key, 1))
        .collect();
    for two in others.chunks(2) {
        let checks = [known.check(), two[0].check(), two[1].check()];
        let error = ask(&setup.store, &checks).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full);
    }
    assert_eq!(left(&known), 2);
    assert_eq!(setup.store.len(), CAPACITY);
}

/// Otherwise a client that fills the store would lift the limits for all new clients.
#[test]
fn a_policy_whose_key_finds_no_room_lifts_no_other_limit() {
    let key = Header::new("x-user");
    for (mode, statuses) in [
        (FailureMode::Allow, [200, 200, 200, 429]),
        (FailureMode::Deny, [503; 4]),
    ] {
        let setup = Setup::with_policies([
            Policy::new("everybody", Limit::fixed_window(9, MINUTE)),
            Policy::new("api", Limit::gcra(1, MINUTE))
                .by(key.clone())
                .on_store_failure(mode),
        ]);
        let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
        let service = RateLimitLayer::new(setup.limiter.clone())
            .wrap_body()
            .layer(inner);
        let status = |user: &str| {
            let request = Request::builder().header("x-user", user).body(()).unwrap();
            let answer = service.clone().oneshot(request).now_or_never();
            answer.expect("an answer at once").unwrap().status()
        };
        // It survives the flood, because six more would be denied.
        let left = setup.check_cost("everybody", Key::everybody(), 6);
        assert_eq!(left.remaining(), 3);
        setup.flood(0..FLOOD);
        let newcomers = ["alice", "bob", "carol", "dave"];
        assert_eq!(newcomers.map(status), statuses, "{mode:?}");
    }
}

#[test]
fn eight_threads_on_one_key_are_admitted_exactly_the_limit() {
    for limit in [
        Limit::gcra(1_000, MINUTE),
        Limit::fixed_window(1_000, MINUTE),
        Limit::sliding_log(1_000, MINUTE),
    ] {
        let setup = Setup::new(limit);
        let start = Barrier::new(8);
        let admitted = || {
            start.wait();
            let asked = (0..500).map(|_| setup.check("alice"));
            asked.filter(Decision::is_allowed).count()
        };
        let total: usize = thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(admitted)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        assert_eq!(total, 1_000, "{limit:?}");
    }
}

#[test]
fn questions_about_the_same_keys_in_opposite_order_all_end() {
    let setup = Setup::new(Limit::gcra(1, MINUTE));
    let asked: Vec<Asked> = (0..6_u64)
        .map(|key| Asked::new("api", Limit::fixed_window(6_000, MINUTE), key, 1))
        .collect();
    let forward: Vec<Check<'_>> = asked.iter().map(Asked::check).collect();
    let backward: Vec<Check<'_>> = asked.iter().rev().map(Asked::check).collect();
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for checks in [&forward, &backward, &forward, &backward] {
            scope.spawn(|| {
                start.wait();
                (0..1_000).for_each(|_| assert!(ask(&setup.store, checks).unwrap().all_allow()));
            });
        }
    });
    let last = ask(&setup.store, &forward).unwrap();
    assert!(last.iter().all(|decision| decision.remaining() == 1_999));
}
