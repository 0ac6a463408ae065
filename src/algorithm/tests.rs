//! The specification held against models that are written another way, and against its promises.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::time::{DAY, SECOND};

/// Far enough in that clocks can step back.
const START: u64 = 4_102_444_800_000_000;

/// One key of one algorithm.
struct Subject {
    algorithm: Algorithm,
    state: State,
    now: u64,
}

impl Subject {
    fn of(limit: Limit) -> Self {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        Self {
            algorithm,
            state: algorithm.untouched(),
            now: START,
        }
    }

    fn ask(&mut self, cost: u32) -> Decision {
        self.act(Action::take(cost))
    }

    fn act(&mut self, action: Action) -> Decision {
        let now = Micros::new(self.now);
        let mut reading = self.algorithm.read(&self.state, now, &action);
        if reading.fits {
            reading = self
                .algorithm
                .commit(&mut self.state, now, &action, reading);
        }
        decide(std::iter::once((&self.algorithm, &action)), &[reading])[0]
    }

    /// What would be answered, with nothing charged.
    fn would(&self, now: u64, cost: u32) -> bool {
        self.algorithm
            .read(&self.state, Micros::new(now), &Action::take(cost))
            .fits
    }
}

fn periods() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(Duration::from_millis(1)),
        Just(Duration::from_micros(7_001)),
        (1_000_u64..5_000_000).prop_map(Duration::from_micros),
        Just(SECOND),
        Just(60 * SECOND),
        Just(DAY),
        Just(366 * DAY),
    ]
}

fn permits() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 1_u32..20,
        1 => Just(300_000_u32),
        1 => Just(999_983_u32),
        1 => Just(10_000_000_u32),
        1 => Just(u32::MAX),
    ]
}

/// `(microseconds since the last ask, cost)`.
fn histories() -> impl Strategy<Value = Vec<(u64, u32)>> {
    let pause = prop_oneof![
        4 => Just(0_u64),
        4 => 1_u64..1_000,
        4 => 1_u64..2_000_000,
        1 => 1_u64..100_000_000_000,
    ];
    let cost = prop_oneof![6 => Just(1_u32), 3 => 0_u32..12, 1 => any::<u32>()];
    prop::collection::vec((pause, cost), 1..80)
}

/// A bucket of whole integers: one permit is `period` units, each microsecond brings `limit`.
struct ModelBucket {
    level: u128,
    full: u128,
    per_us: u128,
    permit: u128,
}

impl ModelBucket {
    fn new(limit: u32, period: Duration, burst: u32) -> Self {
        let full = u128::from(burst) * period.as_micros();
        Self {
            level: full,
            full,
            per_us: limit.into(),
            permit: period.as_micros(),
        }
    }

    fn take(&mut self, pause: u64, cost: u32) -> (bool, u32) {
        self.level = (self.level + u128::from(pause) * self.per_us).min(self.full);
        let price = u128::from(cost) * self.permit;
        let fits = price <= self.level;
        if fits {
            self.level -= price;
        }
        (fits, u32::try_from(self.level / self.permit).unwrap())
    }
}

/// Every permit that was ever given, one by one or in lots.
#[derive(Default)]
struct ModelLog(Vec<(u64, u32)>);

impl ModelLog {
    fn used(&self, now: u64, window: u64) -> u64 {
        let live = self.0.iter().filter(|(at, _)| at + window > now);
        live.map(|(_, cost)| u64::from(*cost)).sum()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn gcra_admits_what_a_token_bucket_of_exact_integers_does(
        limit in permits(), period in periods(), burst in 1_u32..2_000, history in histories(),
    ) {
        let gcra = Limit::gcra(limit, period).burst(burst);
        prop_assume!(gcra.sound().is_ok());
        let mut subject = Subject::of(gcra);
        let mut model = ModelBucket::new(limit, period, burst);
        for (pause, cost) in history {
            subject.now += pause;
            let decision = subject.ask(cost);
            let expected = model.take(pause, cost);
            prop_assert_eq!((decision.is_allowed(), decision.remaining()), expected);
        }
    }

    #[test]
    fn sliding_log_admits_what_a_list_of_all_permits_does(
        limit in permits(), period in periods(), history in histories(),
    ) {
        let mut subject = Subject::of(Limit::sliding_log(limit, period));
        let mut model = ModelLog::default();
        let window = u64::try_from(period.as_micros()).unwrap();
        for (pause, cost) in history {
            subject.now += pause;
            let decision = subject.ask(cost);
            let used = model.used(subject.now, window);
            let fits = cost == 0 || used + u64::from(cost) <= u64::from(limit);
            if fits {
                model.0.push((subject.now, cost));
            }
            prop_assert_eq!(decision.is_allowed(), fits);
            let used = model.used(subject.now, window);
            prop_assert_eq!(u64::from(decision.remaining()), u64::from(limit) - used);
        }
    }

    #[test]
    fn fixed_window_admits_no_more_than_the_limit_between_its_ends(
        limit in permits(), period in periods(), aligned: bool, history in histories(),
    ) {
        let windows = Limit::fixed_window(limit, period);
        let mut subject = Subject::of(if aligned { windows.aligned() } else { windows });
        let window = u64::try_from(period.as_micros()).unwrap();
        let (mut ends, mut used) = (0, 0_u64);
        for (pause, cost) in history {
            subject.now += pause;
            let is_over = subject.now >= ends;
            let before = if is_over { 0 } else { used };
            let fits = cost == 0 || before + u64::from(cost) <= u64::from(limit);
            if fits && cost > 0 {
                used = before + u64::from(cost);
                if is_over {
                    let into = if aligned { subject.now % window } else { 0 };
                    ends = subject.now - into + window;
                }
            }
            let decision = subject.ask(cost);
            prop_assert_eq!(decision.is_allowed(), fits);
            let left = u64::from(limit) - if subject.now >= ends { 0 } else { used };
            prop_assert_eq!(u64::from(decision.remaining()), left);
        }
    }

    #[test]
    fn sliding_counter_admits_what_the_weighted_counts_allow(
        limit in permits(), period in periods(), history in histories(),
    ) {
        let mut subject = Subject::of(Limit::sliding_counter(limit, period));
        let mut counts = std::collections::HashMap::<u64, u128>::new();
        let window = u64::try_from(period.as_micros()).unwrap();
        for (pause, cost) in history {
            subject.now += pause;
            let (number, into) = (subject.now / window, subject.now % window);
            let count = |number: u64| counts.get(&number).copied().unwrap_or(0);
            // Everything times the window, so that nothing is ever divided.
            let weighted = count(number) * u128::from(window)
                + count(number - 1) * u128::from(window - into);
            let with_cost = weighted + u128::from(cost) * u128::from(window);
            let fits = cost == 0 || with_cost <= u128::from(limit) * u128::from(window);
            if fits {
                *counts.entry(number).or_default() += u128::from(cost);
            }
            prop_assert_eq!(subject.ask(cost).is_allowed(), fits);
        }
    }

    #[test]
    fn every_answer_keeps_its_promises(
        which in 0_usize..5, limit in permits(), period in periods(), history in histories(),
    ) {
        let mut subject = Subject::of([
            Limit::gcra(limit, period),
            Limit::fixed_window(limit, period),
            Limit::fixed_window(limit, period).aligned(),
            Limit::sliding_log(limit, period),
            Limit::sliding_counter(limit, period),
        ][which]);
        for (pause, cost) in history {
            subject.now += pause;
            let decision = subject.ask(cost);
            let now = subject.now;
            prop_assert!(decision.remaining() <= limit);
            prop_assert_eq!(decision.outcome() == Outcome::NeverFits, cost > limit);
            if let Some(wait) = decision.retry_after() {
                let wait = u64::try_from(wait.as_micros()).unwrap();
                prop_assert!(!subject.would(now + wait - 1, cost), "early by a microsecond");
                prop_assert!(subject.would(now + wait, cost), "at the announced instant");
            }
            // What remains can be had at once, and one more can not.
            prop_assert!(subject.would(now, decision.remaining()));
            if let Some(more) = decision.remaining().checked_add(1) {
                prop_assert!(!subject.would(now, more));
            }
            let reset = u64::try_from(decision.reset_after().as_micros()).unwrap();
            let remaining_at = |at: u64| {
                let look = Action::look();
                let reading = subject.algorithm.read(&subject.state, Micros::new(at), &look);
                decide(std::iter::once((&subject.algorithm, &look)), &[reading])[0].remaining()
            };
            prop_assert_eq!(remaining_at(now + reset), limit);
            if reset > 1 && which != 0 {
                prop_assert!(remaining_at(now + reset - 1) < limit);
            }
            // A store may forget the state from its expiry on: it is the untouched one by then.
            prop_assert!(subject.state.expires_at() <= Micros::new(now + reset) || reset == 0);
        }
    }

    #[test]
    fn a_clock_that_steps_back_never_admits_more(
        which in 0_usize..4, limit in 1_u32..20, period in periods(), back in 1_u64..10_000_000,
        history in histories(),
    ) {
        let limit = [
            Limit::gcra(limit, period),
            Limit::fixed_window(limit, period),
            Limit::sliding_log(limit, period),
            Limit::sliding_counter(limit, period),
        ][which];
        let mut subject = Subject::of(limit);
        for (pause, cost) in history {
            subject.now += pause;
            subject.ask(cost);
            for cost in [1, 2, 5] {
                let behind = subject.would(subject.now - back, cost);
                prop_assert!(!behind || subject.would(subject.now, cost));
            }
        }
    }
}

/// Every permit of a burst of a million at rates that divide nothing evenly.
#[test]
fn large_bursts_are_exact_to_the_permit() {
    for (limit, period) in [
        (3, SECOND),
        (999_983, DAY),
        (300_000, SECOND),
        (10_000_000, SECOND),
    ] {
        let mut subject = Subject::of(Limit::gcra(limit, period).burst(100_000));
        for left in (0..100_000).rev() {
            assert_eq!(subject.ask(1).remaining(), left);
        }
        assert!(!subject.ask(1).is_allowed());
    }
}

/// The documented worst case, reached and not passed: everything in the last moment of a window,
/// then as much as there is in every moment of the next.
#[test]
fn sliding_counter_admits_at_worst_one_less_than_twice_its_limit() {
    let limit = 100;
    let mut subject = Subject::of(Limit::sliding_counter(limit, SECOND));
    let mut admitted: Vec<u64> = Vec::new();
    subject.now += 1_000_000 - 1;
    for _ in 0..2_000 {
        while subject.ask(1).is_allowed() {
            admitted.push(subject.now);
        }
        // Instants of both windows, in steps that end a microsecond before an end.
        subject.now += if subject.now % 1_000_000 == 999_999 {
            1
        } else {
            999
        };
    }
    let within = |end: u64| {
        let window = end - 999_999..=end;
        admitted.iter().filter(|at| window.contains(at)).count()
    };
    let fullest = admitted.iter().map(|end| within(*end)).max();
    assert_eq!(fullest, Some(2 * limit as usize - 1));
}

#[test]
fn a_state_of_another_algorithm_reads_as_untouched() {
    let mut subject = Subject::of(Limit::gcra(1, SECOND));
    subject.ask(1);
    subject.algorithm = Algorithm::try_from(&Limit::sliding_log(2, SECOND)).unwrap();
    assert_eq!(subject.ask(1).remaining(), 1);
    assert_eq!(subject.ask(1).remaining(), 0);
}

#[test]
fn nothing_panics_at_the_ends_of_time() {
    for limit in [
        Limit::gcra(u32::MAX, Duration::from_millis(1)),
        Limit::gcra(1, 366 * DAY).burst(100),
        Limit::fixed_window(u32::MAX, 366 * DAY).aligned(),
        Limit::sliding_log(u32::MAX, 366 * DAY),
        Limit::sliding_counter(u32::MAX, 366 * DAY),
    ] {
        for now in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let mut subject = Subject::of(limit);
            for now in [now, 0, u64::MAX] {
                subject.now = now;
                for cost in [0, 1, u32::MAX, 1] {
                    subject.ask(cost);
                }
            }
        }
    }
}
