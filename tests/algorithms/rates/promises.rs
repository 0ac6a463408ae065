//! What is promised of a limit holds for several rates together.

use std::time::Duration;

use proptest::prelude::*;
use tower_throttle::store::{Action, Algorithm, Reading, State};
use tower_throttle::{
    AlwaysAllow, Clock as _, Decision, HOUR, Key, Limit, Limiter, MINUTE, Micros, Outcome, Policy,
    SECOND,
};

use super::{check, drain, with_rates};
use support::bench::Bench;
use support::drawn::drawn;
use support::on_every_store;

on_every_store! {
    random_histories_are_those_of_the_rates_by_themselves
    each_rate_denies_when_it_is_used_up
    a_denial_charges_nothing_under_any_rate
    a_cost_above_what_one_rate_ever_holds_never_fits
    four_rates_hold_together
}

/// The specification: each rate by itself, which takes if all of them fit.
struct Alone(Vec<(Algorithm, State)>);

impl Alone {
    fn of(limit: &Limit) -> Self {
        let rates = limit.rates();
        let each = rates.map(|rate| {
            let algorithm = Algorithm::try_from(&rate).unwrap();
            (algorithm, algorithm.untouched())
        });
        Self(each.collect())
    }

    /// Whether this many permits are granted, and if not, how long until they would be.
    fn take(&mut self, cost: u64, now: Micros) -> Result<(), Micros> {
        let action = Action::acquire(cost);
        let readings: Vec<_> = self.read(cost, now);
        let waits = readings.iter().filter(|reading| !reading.fits);
        if let Some(wait) = waits.map(|reading| reading.wait).max() {
            return Err(wait);
        }
        for ((algorithm, state), reading) in self.0.iter_mut().zip(readings) {
            algorithm.commit(state, now, &action, reading);
        }
        Ok(())
    }

    fn read(&self, cost: u64, now: Micros) -> Vec<Reading> {
        let each = self.0.iter();
        each.map(|(algorithm, state)| algorithm.read(state, now, &Action::acquire(cost)))
            .collect()
    }

    /// Whether this many could be taken now.
    fn fits(&self, cost: u64, now: Micros) -> bool {
        self.read(cost, now).iter().all(|reading| reading.fits)
    }
}

/// How long the clock stands before a request, and what that costs.
fn histories() -> impl Strategy<Value = Vec<(Duration, u64)>> {
    let pause = prop_oneof![
        4 => Just(Duration::ZERO),
        4 => (0_u64..400_000).prop_map(Duration::from_micros),
        1 => (0_u64..40_000_000).prop_map(Duration::from_micros),
    ];
    prop::collection::vec((pause, 1_u64..4), 60)
}

async fn random_histories_are_those_of_the_rates_by_themselves(bench: &Bench) {
    let mut histories = drawn(histories());
    for (name, limit) in with_rates((5, SECOND), &[(9, 3 * SECOND), (40, MINUTE)]) {
        let limiter = bench.limiter([Policy::new(name, limit)]);
        for history in 0..6_u64 {
            let mut alone = Alone::of(&limit);
            let steps = histories.next().unwrap();
            let mut denied = 0;
            for (pause, cost) in &steps {
                bench.advance(*pause);
                let asked = || limiter.check_cost(name, Key::from(history), *cost);
                let found = asked().await.unwrap();
                let expected = alone.take(*cost, bench.clock.now());
                let context = || format!("{name}: {found:?} in {steps:?}");
                assert_eq!(found.is_allowed(), expected.is_ok(), "{}", context());
                is_consistent(&found, &alone, bench.clock.now());
                let Err(wait) = expected else { continue };
                denied += 1;
                assert_eq!(found.retry_after(), Some(wait.to_duration()));
                if denied % 4 == 0 {
                    // A microsecond early it is denied, and then it is not.
                    bench.advance(wait.to_duration() - Duration::from_micros(1));
                    assert!(!asked().await.unwrap().is_allowed(), "{}", context());
                    bench.advance_us(1);
                    assert!(asked().await.unwrap().is_allowed(), "{}", context());
                    assert_eq!(alone.take(*cost, bench.clock.now()), Ok(()));
                }
            }
            assert!(denied > 0, "{name}: {steps:?}");
        }
    }
}

/// What is said to remain can be taken, and no more, except what has come back since a denial was
/// remembered.
fn is_consistent(found: &Decision, alone: &Alone, now: Micros) {
    let remaining = found.remaining();
    assert!(alone.fits(remaining, now), "{found:?}");
    let is_more = alone.fits(remaining + 1, now);
    assert!(!is_more || found.is_remembered(), "{found:?}");
}

async fn each_rate_denies_when_it_is_used_up(bench: &Bench) {
    for (name, limit) in with_rates((2, SECOND), &[(3, HOUR)]) {
        bench.align(HOUR);
        let limiter = bench.limiter([Policy::new(name, limit)]);
        assert_eq!(drain(&limiter, name).await, 2, "{name}");
        let denied = check(&limiter, name).await;
        assert_eq!((denied.limit(), denied.window()), (2, SECOND), "{name}");
        assert!(denied.retry_after() <= Some(2 * SECOND), "{name}");
        bench.advance(2 * SECOND);
        assert_eq!(drain(&limiter, name).await, 1, "{name}");
        let denied = check(&limiter, name).await;
        assert_eq!((denied.limit(), denied.window()), (3, HOUR), "{name}");
        assert!(denied.retry_after() > Some(MINUTE), "{name}: {denied:?}");
        assert_eq!(denied.remaining(), 0, "{name}");
    }
}

async fn a_denial_charges_nothing_under_any_rate(bench: &Bench) {
    for (name, limit) in with_rates((2, MINUTE), &[(3, HOUR)]) {
        bench.align(HOUR);
        let limiter = bench.limiter([Policy::new(name, limit)]);
        let once = || async { check(&limiter, name).await.is_allowed() };
        assert!(once().await && once().await, "{name}");
        bench.advance(2 * MINUTE);
        assert!(once().await, "{name}");
        for _ in 0..5 {
            assert!(!once().await, "{name}");
        }
        // One permit of the first rate is left, as none of the denials has taken it.
        let first = limit.rates().next().unwrap();
        let limiter = bench.limiter([Policy::new(name, first)]);
        assert_eq!(drain(&limiter, name).await, 1, "{name}");
    }
}

async fn a_cost_above_what_one_rate_ever_holds_never_fits(bench: &Bench) {
    let limit = Limit::gcra(10, SECOND).burst(3).and(1_000, HOUR);
    let limiter = bench.limiter([Policy::new("api", limit)]);
    let denied = limiter.check_cost("api", "alice", 4).await.unwrap();
    assert_eq!(denied.outcome(), Outcome::NeverFits);
    assert_eq!((denied.limit(), denied.retry_after()), (10, None));
    assert_eq!(limiter.summary("api").unwrap().capacity, 3);
    let refused = Limiter::new(AlwaysAllow, [Policy::new("api", limit).cost(4)]);
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.starts_with("policy \"api\": cost: got 4, "),
        "{refused}"
    );
}

async fn four_rates_hold_together(bench: &Bench) {
    let others = [(3, MINUTE), (4, HOUR), (5, 24 * HOUR)];
    for (name, limit) in with_rates((2, SECOND), &others) {
        bench.align(24 * HOUR);
        let limiter = bench.limiter([Policy::new(name, limit)]);
        let mut had = Vec::new();
        for pause in [Duration::ZERO, 3 * SECOND, 3 * MINUTE, 3 * HOUR] {
            bench.advance(pause);
            had.push(drain(&limiter, name).await);
        }
        assert_eq!(had, [2, 1, 1, 1], "{name}");
        assert_eq!(check(&limiter, name).await.limit(), 5, "{name}");
    }
}
