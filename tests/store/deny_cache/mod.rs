//! Remembered denials: what is answered from memory, for how long, and what ends it.
#![cfg(all(feature = "memory", feature = "redis"))]

mod attack;
mod changes;
mod cluster;
mod failing;
mod groups;
mod history;
mod several_checks;
mod shadow;
mod two_processes;

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use support::bench::{answer, ask};
use tower_throttle::store::{Acquire, Action, Algorithm, Wait};
use tower_throttle::store::{Answer, Check, DenyCache, Store};
use tower_throttle::{
    DAY, Decision, Limit, MINUTE, ManualClock, MemoryStore, Micros, Outcome, SECOND, StoreError,
    StoreErrorKind,
};

const MICROSECOND: Duration = Duration::from_micros(1);

/// A store that decides when it is asked, but whose answers are there only when awaited.
#[derive(Clone)]
struct Trips {
    counts: MemoryStore,
    asked: Arc<AtomicUsize>,
    fails: Arc<AtomicBool>,
}

impl Store for Trips {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let decided = match self.counts.ask(checks) {
            _ if self.fails.load(Ordering::SeqCst) => {
                Err(StoreError::new(StoreErrorKind::Unreachable))
            }
            Answer::Ready(decided) => decided,
            Answer::Pending(_) => panic!("a memory store answers at once"),
        };
        Answer::Pending(Box::pin(std::future::ready(decided)))
    }
}

impl Trips {
    /// The same question, past the cache.
    fn ask_again(&self, limit: Limit, cost: u64) -> Answer {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        ask(self, &[("api", algorithm, "alice", Action::acquire(cost))])
    }
}

/// A deny cache over a store that counts its questions, both on a manual clock.
struct Bench {
    clock: ManualClock,
    trips: Trips,
    cache: DenyCache<Trips>,
}

impl Bench {
    /// Remembers for so long that age ends nothing.
    fn new() -> Self {
        Self::remembering(DAY)
    }

    fn remembering(age: Duration) -> Self {
        let clock = ManualClock::new();
        let trips = Trips {
            counts: MemoryStore::builder().clock(clock.clone()).build(),
            asked: Arc::default(),
            fails: Arc::default(),
        };
        let cache = DenyCache::new(trips.clone()).max_age(age);
        Self {
            cache: cache.clock_for_tests(clock.clone()),
            clock,
            trips,
        }
    }

    /// How many questions the store is asked meanwhile.
    async fn trips(&self, work: impl Future) -> usize {
        let before = self.trips.asked.load(Ordering::SeqCst);
        work.await;
        self.trips.asked.load(Ordering::SeqCst) - before
    }

    async fn take(&self, limit: Limit, cost: u64) -> Decision {
        self.act(limit, Action::acquire(cost)).await
    }

    async fn act(&self, limit: Limit, action: Action) -> Decision {
        answer(self.begin(limit, action)).await[0]
    }

    /// The answer, decided and not awaited yet.
    fn begin(&self, limit: Limit, action: Action) -> Answer {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        self.ask(&[("api", algorithm, "alice", action)])
    }

    fn ask(&self, asked: &[support::bench::Done<'_>]) -> Answer {
        ask(&self.cache, asked)
    }

    async fn drain(&self, limit: Limit) {
        while self.take(limit, 1).await.is_allowed() {}
    }
}

/// Everything that users see, except where it comes from.
fn facts_of(decision: &Decision) -> impl PartialEq + Debug {
    (facts_of_denial(decision), decision.receipt().taken_at())
}

/// The same for a denial: nothing was taken, so there is no instant to compare.
fn facts_of_denial(decision: &Decision) -> impl PartialEq + Debug {
    (
        (decision.outcome(), decision.limit(), decision.window()),
        (decision.remaining(), decision.retry_after()),
        (decision.delay(), decision.reset_after()),
        decision.banned_for(),
    )
}

fn limits() -> [Limit; 7] {
    [
        Limit::gcra(3, MINUTE),
        Limit::token_bucket(3, tower_throttle::per_minute(3)),
        Limit::leaky_bucket(3, tower_throttle::per_minute(3)).without_delay(),
        Limit::fixed_window(3, MINUTE),
        Limit::sliding_log(3, MINUTE),
        Limit::sliding_window(3, MINUTE),
        Limit::sliding_counter(3, MINUTE),
    ]
}

#[tokio::test]
async fn a_denial_is_remembered_exactly_until_its_wait_is_over() {
    for limit in limits() {
        let bench = Bench::new();
        bench.drain(limit).await;
        let first = bench.take(limit, 1).await.retry_after().unwrap();
        bench.clock.advance(first - MICROSECOND);
        let last = async {
            let last = bench.take(limit, 1).await;
            assert_eq!(last.retry_after(), Some(MICROSECOND), "{limit:?}");
        };
        assert_eq!(bench.trips(last).await, 0, "{limit:?}");
        bench.clock.advance(MICROSECOND);
        let over = bench.trips(async { assert!(bench.take(limit, 1).await.is_allowed()) });
        assert_eq!(over.await, 1, "{limit:?}");
    }
}

#[tokio::test]
async fn hits_are_counted_and_ask_the_store_nothing() {
    for limit in limits() {
        let bench = Bench::new();
        bench.drain(limit).await;
        let hits = bench.cache.hits();
        let denied = async {
            for _ in 0..1_000 {
                let denied = bench.take(limit, 1).await;
                assert!(denied.is_remembered() && !denied.is_allowed());
            }
        };
        assert_eq!(bench.trips(denied).await, 0, "{limit:?}");
        assert_eq!(bench.cache.hits() - hits, 1_000, "{limit:?}");
    }
}

#[tokio::test]
async fn while_one_looks_again_others_are_answered_from_memory() {
    let bench = Bench::remembering(SECOND);
    let limit = Limit::gcra(1, DAY);
    bench.drain(limit).await;
    bench.clock.advance(SECOND / 2);
    let in_flight_work = bench.begin(limit, Action::acquire(1));
    assert!(matches!(in_flight_work, Answer::Pending(_)));
    let others = async {
        for _ in 0..100 {
            assert!(!bench.take(limit, 1).await.is_allowed());
        }
    };
    assert_eq!(bench.trips(others).await, 0);
    answer(in_flight_work).await;
    bench.clock.advance(SECOND * 3 / 4);
    assert!(matches!(
        bench.begin(limit, Action::acquire(1)),
        Answer::Pending(_)
    ));
    bench.clock.advance(SECOND / 4);
    let too_old = async {
        for _ in 0..2 {
            drop(bench.begin(limit, Action::acquire(1)));
        }
    };
    assert_eq!(bench.trips(too_old).await, 2, "it was not looked at again");
}

#[tokio::test]
async fn a_higher_cost_waits_for_as_long_as_the_store_would_say() {
    let known_for_every_cost = [Limit::gcra(5, MINUTE), Limit::fixed_window(5, MINUTE)];
    let known_for_its_own = [
        Limit::sliding_log(5, MINUTE),
        Limit::sliding_counter(5, MINUTE),
    ];
    for (limits, asked) in [(known_for_every_cost, 0), (known_for_its_own, 1)] {
        for limit in limits {
            let bench = Bench::new();
            let _ = bench.take(limit, 4).await;
            assert!(!bench.take(limit, 3).await.is_allowed());
            let higher = async {
                let four = bench.take(limit, 4).await;
                let again = answer(bench.trips.ask_again(limit, 4)).await;
                assert_eq!(facts_of(&four), facts_of(&again[0]));
                assert_eq!(four.is_remembered(), asked == 0);
            };
            assert_eq!(bench.trips(higher).await - 1, asked, "{limit:?}");
            let lower = bench.trips(bench.take(limit, 1)).await;
            assert_eq!(lower, 1, "what may fit is for the store to say");
        }
    }
}

#[tokio::test]
async fn a_patient_question_is_denied_from_memory_if_it_cannot_wait() {
    let bench = Bench::new();
    let limit = Limit::gcra(1, MINUTE);
    let _ = bench.take(limit, 1).await;
    let waiting = |longest: Duration| {
        Action::Acquire(Acquire::new(1).with_wait(Wait::Strict(Micros::from(longest))))
    };
    assert!(!bench.act(limit, waiting(MINUTE / 2)).await.is_allowed());
    let shorter = async {
        assert!(!bench.act(limit, waiting(MINUTE / 3)).await.is_allowed());
        assert!(!bench.take(limit, 1).await.is_allowed());
    };
    assert_eq!(bench.trips(shorter).await, 0);
    assert!(bench.act(limit, waiting(MINUTE)).await.is_allowed());
}

#[tokio::test]
async fn a_cost_that_never_fits_denies_no_other_cost() {
    for limit in limits() {
        let bench = Bench::new();
        let capacity = Algorithm::try_from(&limit).unwrap().capacity();
        let never = async {
            for _ in 0..100 {
                let decision = bench.take(limit, capacity + 1).await;
                assert_eq!(decision.outcome(), Outcome::NeverFits, "{limit:?}");
                assert_eq!(
                    (decision.remaining(), decision.retry_after()),
                    (capacity, None)
                );
            }
        };
        assert_eq!(bench.trips(never).await, 1, "{limit:?}");
        assert!(bench.take(limit, capacity).await.is_allowed(), "{limit:?}");
        let after = bench.take(limit, capacity + 1).await;
        assert_eq!(
            (after.outcome(), after.remaining()),
            (Outcome::NeverFits, 0),
            "{limit:?}"
        );
    }
}

#[tokio::test]
async fn a_cost_that_never_fits_is_remembered_for_any_patience() {
    let limit = Limit::gcra(3, MINUTE);
    let longest = Micros::from(MINUTE);
    let patient = Acquire::new(4).with_wait(Wait::Strict(longest));
    let bench = Bench::new();
    let never = async {
        for _ in 0..100 {
            let decision = bench.act(limit, Action::Acquire(patient)).await;
            assert_eq!(decision.outcome(), Outcome::NeverFits);
        }
    };
    assert_eq!(bench.trips(never).await, 1);
}

/// If it could fit, a single permit more would be there by the time of the answer.
#[tokio::test]
async fn a_cost_that_never_fits_is_remembered_after_slow_answers() {
    for limit in limits() {
        let bench = Bench::new();
        let capacity = Algorithm::try_from(&limit).unwrap().capacity();
        let in_flight_work = bench.begin(limit, Action::acquire(capacity + 1));
        bench.clock.advance(MINUTE / 2);
        assert_eq!(
            answer(in_flight_work).await[0].outcome(),
            Outcome::NeverFits
        );
        let again = async {
            let decision = bench.take(limit, capacity + 1).await;
            assert_eq!(decision.outcome(), Outcome::NeverFits);
        };
        assert_eq!(bench.trips(again).await, 0, "{limit:?}");
    }
}

#[tokio::test]
async fn a_question_without_an_answer_is_not_remembered() {
    let bench = Bench::new();
    let limit = Limit::gcra(1, MINUTE);
    let _ = bench.take(limit, 1).await;
    drop(bench.begin(limit, Action::acquire(1)));
    let dropped = bench.trips(bench.take(limit, 0)).await;
    assert_eq!(dropped, 1);
    assert_eq!(bench.cache.hits(), 0);

    bench.trips.fails.store(true, Ordering::SeqCst);
    let Answer::Pending(failed) = bench.begin(limit, Action::acquire(1)) else {
        panic!("nothing is known of it");
    };
    assert!(failed.await.is_err());
    bench.trips.fails.store(false, Ordering::SeqCst);
    assert_eq!(bench.trips(bench.take(limit, 1)).await, 1);
}

#[tokio::test]
async fn a_slow_answer_is_kept_no_longer_and_tells_no_short_wait() {
    for limit in limits() {
        let bench = Bench::new();
        while bench.take(limit, 1).await.remaining() > 0 {}
        let in_flight_work = bench.begin(limit, Action::acquire(1));
        // The store may have decided at any time in between.
        bench.clock.advance(SECOND);
        let wait = answer(in_flight_work).await[0].retry_after().unwrap();
        let known = bench.take(limit, 1).await;
        assert_eq!(known.retry_after(), Some(wait), "{limit:?}");
        bench.clock.advance(wait - SECOND - MICROSECOND);
        let last = bench.take(limit, 1).await;
        assert_eq!(last.retry_after(), Some(SECOND + MICROSECOND), "{limit:?}");
        assert_eq!(bench.cache.hits(), 2);
        bench.clock.advance(MICROSECOND);
        assert!(bench.take(limit, 1).await.is_allowed(), "{limit:?}");
    }
}

#[tokio::test]
async fn a_flood_of_subjects_evicts_denials_but_falsifies_none() {
    const SUBJECTS: u64 = 80_000;
    let bench = Bench::new();
    let algorithm = Algorithm::try_from(&Limit::gcra(1, DAY)).unwrap();
    let take = |key: u64| {
        let key = format!("subject {key}");
        answer(bench.ask(&[("api", algorithm, &key, Action::acquire(1))]))
    };
    for key in 0..SUBJECTS {
        assert!(take(key).await.all_allow());
        assert!(!take(key).await.all_allow());
    }
    let mut asked = 0;
    for key in 0..SUBJECTS {
        asked += bench
            .trips(async { assert!(!take(key).await.all_allow()) })
            .await;
    }
    assert!(
        asked >= SUBJECTS as usize - 65_536,
        "it holds more than it may: {asked}"
    );
    let latest = bench.trips(take(SUBJECTS - 1)).await;
    assert_eq!(latest, 0);
}
