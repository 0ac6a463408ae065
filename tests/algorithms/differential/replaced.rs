//! A limit that is replaced between taking permits and giving them back. They are given back under
//! the rules they were taken by: what others have used under the new ones falls by what is given
//! back, and never by more.

use std::cell::Cell;
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Check, PolicyId};
use tower_throttle::{
    Clock as _, Decision, HOUR, Key, Limit, MINUTE, ManualClock, MemoryStore, Micros, RedisStore,
    SECOND, Subject,
};

use super::{Algorithms, Timed, answer, wanted};

const PERMITS: u64 = 10_000;
const LONGEST: Duration = HOUR;

#[derive(Clone, Debug)]
struct Replacing {
    old: Limit,
    new: Limit,
    /// The length of their windows.
    windows: [Duration; 2],
    /// What others take, first under the old rules and then under the new ones: when, in
    /// thousandths of the available time, and how much.
    others: [Vec<(u64, u64)>; 2],
    /// What is taken under the old rules, when within the window, how much of it is given back, and
    /// when.
    taken: (u64, u64),
    back: (u64, u64),
    /// When to look at what is left, in thousandths of the longer window.
    looks: Vec<u64>,
}

fn replacing() -> impl Strategy<Value = Replacing> {
    // Each divides the longest, so that all begin together.
    let window = || {
        prop_oneof![
            Just(6 * SECOND),
            Just(40 * SECOND),
            Just(MINUTE),
            Just(LONGEST)
        ]
    };
    let moment = 0_u64..1_000;
    let others = |many: Range<usize>| {
        let other = (moment.clone(), 1_u64..12);
        prop::collection::vec(other, many).prop_map(|mut others| {
            others.sort_unstable();
            others
        })
    };
    // More than the newest entries of a log that are searched.
    let others = (others(0..12), others(1..60)).prop_map(|(before, since)| [before, since]);
    let slices = prop_oneof![Just(1_u32), Just(3), Just(10)];
    let looks = prop::collection::vec(moment.clone(), 1..6).prop_map(|mut looks| {
        looks.sort_unstable();
        looks
    });
    let taken = (moment.clone(), 1_u64..12, moment.clone(), 1_u64..12);
    let limits = (0..4, slices, [window(), window()], any::<[bool; 2]>());
    let limits = limits.prop_map(|(algorithm, slices, windows, are_aligned)| {
        let limit = |window, is_aligned| match algorithm {
            0 => Limit::sliding_log(PERMITS, window),
            1 => Limit::sliding_window(PERMITS, window).slices(slices),
            2 => Limit::sliding_counter(PERMITS, window),
            _ if is_aligned => Limit::fixed_window(PERMITS, window).aligned(),
            _ => Limit::fixed_window(PERMITS, window),
        };
        let limits = [0, 1].map(|at| limit(windows[at], are_aligned[at]));
        (limits, windows)
    });
    (limits, others, taken, looks).prop_map(
        |(([old, new], windows), others, (at, cost, back_at, back), looks)| Replacing {
            old,
            new,
            windows,
            others,
            taken: (at, cost),
            back: (back_at, back.min(cost)),
            looks,
        },
    )
}

/// Where it runs: two keys, of which only the first is given back to, and all stores that must
/// answer alike.
struct Place {
    clock: ManualClock,
    redis: RedisStore,
    memory: MemoryStore,
    algorithms: Algorithms,
    number: u64,
}

impl Place {
    /// Applies an action to one key, or both.
    async fn act(&mut self, limit: &Limit, action: Action, keys: &[u64]) -> Vec<Decision> {
        let policy = PolicyId::new("replaced");
        let mut decisions = Vec::new();
        for key in keys {
            let check = Check::new(
                &policy,
                Subject::from(&Key::all([self.number, *key].map(Key::from))),
                Algorithm::try_from(limit).unwrap(),
                action,
            );
            let expected = self.algorithms.ask(&[check], self.clock.now());
            assert_eq!(answer(&self.memory, &[check]).await, expected, "{action:?}");
            assert_eq!(answer(&self.redis, &[check]).await, expected, "{action:?}");
            decisions.push(expected[0]);
        }
        decisions
    }

    /// How much less of the first key is used than of the second.
    async fn given_back(&mut self, limit: &Limit) -> i64 {
        let looked = self.act(limit, Action::look(), &[0, 1]).await;
        let [first, second] = [0, 1].map(|key: usize| looked[key].remaining() as i64);
        first - second
    }

    async fn tell(&mut self, replacing: &Replacing) {
        let Replacing { old, new, .. } = replacing;
        let [old_us, new_us] = replacing.windows.map(|window| Micros::from(window).get());
        let longest = old_us.max(new_us);
        let all_begin = Micros::from(LONGEST).get();
        let start = ManualClock::new().now().get() / all_begin * all_begin + all_begin;
        let clock = self.clock.clone();
        let set = |range: Range<u64>, thousandths: u64| {
            let after = (range.end - range.start) * thousandths / 1_000;
            clock.set(Micros::new(range.start + after));
        };

        let [before, since] = &replacing.others;
        let (taken, cost) = replacing.taken;
        let (before_us, taken_us) = (start - old_us, start + old_us * taken / 1_000);
        for (at, cost) in before {
            set(before_us..taken_us, *at);
            self.act(old, Action::acquire(*cost), &[0, 1]).await;
        }
        clock.set(Micros::new(taken_us));
        let receipt = self.act(old, Action::acquire(cost), &[0, 1]).await[0].receipt();
        // While it counts in full under the rules that it was taken by.
        let meanwhile = taken_us..start + old_us;
        for (at, cost) in since {
            set(meanwhile.clone(), *at);
            self.act(new, Action::acquire(*cost), &[0, 1]).await;
        }
        let (back, permits) = replacing.back;
        set(
            meanwhile,
            since.last().map_or(back, |(at, _)| back.max(*at)),
        );
        self.act(old, Action::Refund { permits, receipt }, &[0])
            .await;

        let permits = permits as i64;
        // A fixed window may have ended, and so may a window that was made shorter. If others do
        // not follow a window, less may still count than was taken.
        let is_fixed = Algorithm::try_from(old).unwrap().name() == "fixed_window";
        let given_back = self.given_back(new).await;
        if new_us.is_multiple_of(old_us) && !is_fixed {
            assert_eq!(given_back, permits, "at once");
        }
        let now = clock.now().get();
        for look in &replacing.looks {
            set(now..now + 2 * longest, *look);
            let given_back = self.given_back(new).await;
            assert!((0..=permits).contains(&given_back), "later: {given_back}");
        }
    }
}

#[test]
fn refund_under_old_rules_keeps_usage_under_new_ones() {
    let (runtime, _server, Timed { store, clock }) = Timed::alone();
    let number = Cell::new(0);
    let config = Config {
        cases: u32::try_from(wanted().div_ceil(20)).unwrap(),
        failure_persistence: None,
        ..Config::default()
    };
    let told = TestRunner::new(config).run(&replacing(), |replacing| {
        number.set(number.get() + 1);
        let mut place = Place {
            redis: store.clone(),
            memory: MemoryStore::builder().clock(clock.clone()).build(),
            algorithms: Algorithms::default(),
            clock: clock.clone(),
            number: number.get(),
        };
        runtime.block_on(place.tell(&replacing));
        Ok(())
    });
    told.unwrap();
}
