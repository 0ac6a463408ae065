//! Compares the specification with independently written models, and with its promises.

use std::num::NonZeroU64;
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;

use super::action::MOST_COST;
use super::concurrency::MOST_LOOKED_AT;
use super::*;
use crate::decision::{Decision, Outcome, Receipt};
use crate::limit::{Limit, MOST_PERMITS, Rate};
use crate::time::{DAY, Micros, SECOND};

mod bans;
mod buckets;
mod clock_steps;
mod giving_back;
mod leases;
mod over_admission;
mod parameters;
mod penalties;
mod promises;
mod rates;
mod slices;
mod windows;

/// Late enough that clocks can step back.
const START: u64 = 4_102_444_800_000_000;

/// One key of one algorithm.
#[derive(Clone)]
struct Subject {
    algorithm: Algorithm,
    state: State,
    now: u64,
    leases: u64,
}

impl Subject {
    fn of(limit: Limit) -> Self {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        Self {
            algorithm,
            state: algorithm.untouched(),
            now: START,
            leases: 1 << 32,
        }
    }

    /// Takes permits if they fit, each with a lease of its own.
    fn ask(&mut self, cost: u64) -> Decision {
        self.take(cost, false)
    }

    fn take(&mut self, cost: u64, is_final: bool) -> Decision {
        self.leases += 1;
        self.act(Action::Acquire(Acquire {
            lease: Some(lease(self.leases)),
            is_final,
            ..take(cost, Wait::None)
        }))
    }

    fn act(&mut self, action: Action) -> Decision {
        let now = Micros::new(self.now);
        let reading = self.algorithm.read(&self.state, now, &action);
        // Of what does not fit, this repairs the state.
        let reading = self
            .algorithm
            .commit(&mut self.state, now, &action, reading);
        decide(
            std::iter::once(Ask::enforced(&self.algorithm, &action)),
            &[reading],
        )[0]
    }

    /// Gives back of what a decision took.
    fn refund(&mut self, permits: u64, receipt: Receipt) {
        let _ = self.act(Action::Refund { permits, receipt });
    }

    /// Whether it would be allowed, without charging anything.
    fn would(&self, now: u64, cost: u64) -> bool {
        self.algorithm
            .read(&self.state, Micros::new(now), &Action::acquire(cost))
            .fits
    }

    /// What a look at this instant shows.
    fn look(&self, now: u64) -> Decision {
        let look = Action::look();
        let reading = self.algorithm.read(&self.state, Micros::new(now), &look);
        decide(
            std::iter::once(Ask::enforced(&self.algorithm, &look)),
            &[reading],
        )[0]
    }

    fn capacity(&self) -> u64 {
        self.algorithm.capacity()
    }

    /// Everything that is remembered.
    fn remembered(&self) -> String {
        format!("{:?}", self.state)
    }

    /// From now on another limit decides the key.
    fn change(&mut self, limit: Limit) {
        self.algorithm = Algorithm::try_from(&limit).unwrap();
    }
}

fn take(cost: u64, wait: Wait) -> Acquire {
    Acquire {
        cost,
        wait,
        lease: None,
        is_final: false,
        takes_fewer: false,
    }
}

fn lease(number: u64) -> LeaseId {
    LeaseId::from(NonZeroU64::new(number).unwrap())
}

fn us(duration: Duration) -> u64 {
    Micros::from(duration).get()
}

/// The numbers of a limit, so that they can be changed one by one.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    kind: usize,
    /// The most at once.
    permits: u64,
    /// For a bucket, the permits in each period.
    rate: u64,
    period: Duration,
    slices: u32,
}

const BUCKETS: Range<usize> = 0..4;
const WINDOWS: Range<usize> = 4..9;
const ALL: Range<usize> = 0..10;
/// The indices of the leaky bucket that is a queue, and of the sliding counter.
const QUEUE: usize = 2;
const COUNTER: usize = 8;

impl Numbers {
    fn limit(&self) -> Limit {
        let Self {
            permits, period, ..
        } = *self;
        let rate = Rate::new(self.rate, period);
        match self.kind {
            0 => Limit::gcra(self.rate, period).burst(permits),
            1 => Limit::token_bucket(permits, rate),
            QUEUE => Limit::leaky_bucket(permits, rate),
            3 => Limit::leaky_bucket(permits, rate).without_delay(),
            4 => Limit::fixed_window(permits, period),
            5 => Limit::fixed_window(permits, period).aligned(),
            6 => Limit::sliding_log(permits, period),
            7 => Limit::sliding_window(permits, period).slices(self.slices),
            COUNTER => Limit::sliding_counter(permits, period),
            _ => Limit::concurrency(permits).lease(period),
        }
    }

    fn is_bucket(&self) -> bool {
        BUCKETS.contains(&self.kind)
    }
}

fn numbers(kinds: Range<usize>) -> impl Strategy<Value = Numbers> {
    (kinds, permits(), permits(), periods(), slices()).prop_map(
        |(kind, permits, rate, period, slices)| {
            let numbers = Numbers {
                kind,
                permits,
                rate,
                period,
                slices,
            };
            let is_valid = numbers.limit().valid().is_ok();
            // A bucket that takes centuries to fill is no valid limit, nor is too high a rate.
            let rate = if is_valid {
                rate
            } else {
                permits.min(us(period).saturating_mul(1_000_000))
            };
            Numbers { rate, ..numbers }
        },
    )
}

fn slices() -> impl Strategy<Value = u32> {
    prop_oneof![Just(1_u32), Just(2), Just(3), Just(7), Just(10), Just(60)]
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

fn permits() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1_u64..20,
        1 => Just(300_000_u64),
        1 => Just(999_983_u64),
        1 => Just(10_000_000_u64),
        1 => Just(MOST_PERMITS),
        2 => magnitudes(MOST_PERMITS),
    ]
}

/// Numbers of every magnitude, from 1.
fn magnitudes(most: u64) -> impl Strategy<Value = u64> {
    (0..=most.ilog2(), any::<u64>()).prop_map(move |(bits, number)| {
        let least = 1 << bits;
        (least + number % least).min(most)
    })
}

fn pauses() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => Just(0_u64),
        4 => 1_u64..1_000,
        4 => 1_u64..2_000_000,
        1 => 1_u64..100_000_000_000,
    ]
}

fn costs() -> impl Strategy<Value = u64> {
    prop_oneof![6 => Just(1_u64), 3 => 0_u64..12, 1 => magnitudes(MOST_COST)]
}

/// If there were more leases, a wait could be too long.
const MOST_ASKS: usize = MOST_LOOKED_AT;

/// `(microseconds since the last ask, cost)`.
fn histories() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((pauses(), costs()), 1..=MOST_ASKS)
}

fn waits() -> impl Strategy<Value = Wait> {
    let longest = prop_oneof![0_u64..3_000_000, Just(us(DAY))].prop_map(Micros::new);
    prop_oneof![
        2 => Just(Wait::None),
        1 => longest.clone().prop_map(Wait::Strict),
        1 => longest.prop_map(Wait::Burst),
    ]
}

/// Every action on a key. Those that give back are [adjusted](about) to what was taken last.
fn actions() -> impl Strategy<Value = Action> {
    let id = || (1_u64..6).prop_map(lease);
    prop_oneof![
        8 => (costs(), waits(), prop::option::of(id()), any::<bool>())
            .prop_map(|(cost, wait, lease, is_final)| {
                Action::Acquire(Acquire { lease, is_final, ..take(cost, wait) })
            }),
        2 => (0_u64..2_000).prop_map(Action::Charge),
        3 => (costs(), prop::option::of(Just(Micros::ZERO)))
            .prop_map(|(permits, taken_at)| Action::Credit { permits, taken_at }),
        1 => costs().prop_map(|permits| Action::Refund { permits, receipt: Receipt::default() }),
        1 => costs().prop_map(|permits| Action::Cancel { permits, receipt: Receipt::default() }),
        1 => costs().prop_map(|permits| Action::Withdraw { permits, receipt: Receipt::default() }),
        1 => (0..3_000_000_u64, costs()).prop_map(|(us, permits)| {
            let time = Micros::new(us);
            Action::Hold { time, permits }
        }),
        1 => Just(Action::Reset),
        1 => id().prop_map(Action::Renew),
        1 => id().prop_map(Action::Release),
    ]
}

fn about(action: Action, last: Receipt) -> Action {
    match action {
        Action::Credit {
            permits,
            taken_at: Some(_),
        } => Action::Credit {
            permits,
            taken_at: Some(last.at),
        },
        Action::Refund { permits, .. } => Action::Refund {
            permits,
            receipt: last,
        },
        Action::Cancel { permits, .. } => Action::Cancel {
            permits,
            receipt: last,
        },
        Action::Withdraw { permits, .. } => Action::Withdraw {
            permits,
            receipt: last,
        },
        action => action,
    }
}

#[test]
fn a_state_of_another_algorithm_reads_as_untouched() {
    let mut subject = Subject::of(Limit::gcra(1, SECOND));
    let _ = subject.ask(1);
    subject.change(Limit::sliding_log(2, SECOND));
    assert_eq!(subject.ask(1).remaining(), 1);
    assert_eq!(subject.ask(1).remaining(), 0);
}
