//! Fixed window, sliding log, sliding window and sliding counter: modelled as every permit that was
//! ever taken, or as a count for each window.

use std::collections::HashMap;

use proptest::sample::Index;
use proptest::test_runner::TestCaseError;

use super::*;

/// An algorithm written another way.
trait Model {
    /// The permits used.
    fn used(&self, now: u64) -> u64;
    /// Takes permits, whether or not they fit.
    fn charge(&mut self, now: u64, permits: u64);
    fn credit(&mut self, now: u64, permits: u64, taken_at: Option<u64>);
}

/// No count is above this, however much is charged.
const MOST: u64 = MOST_PERMITS;

/// Every permit that was ever taken, in lots: when they were taken, and how many are left.
struct ModelPermits<F> {
    lots: Vec<(u64, u64)>,
    /// When permits taken at an instant come back.
    lapses: F,
    /// For how many of the newest lots it is known when they were taken.
    reach: usize,
}

fn permits_that_lapse<F: Fn(u64) -> u64>(lapses: F, reach: usize) -> ModelPermits<F> {
    ModelPermits {
        lots: Vec::new(),
        lapses,
        reach,
    }
}

impl<F: Fn(u64) -> u64> Model for ModelPermits<F> {
    fn used(&self, now: u64) -> u64 {
        let live = self.lots.iter().filter(|(at, _)| (self.lapses)(*at) > now);
        live.map(|(_, permits)| permits).sum()
    }

    fn charge(&mut self, now: u64, permits: u64) {
        let room = MOST - self.used(now);
        self.lots.push((now, room.min(permits)));
    }

    fn credit(&mut self, now: u64, permits: u64, taken_at: Option<u64>) {
        let lapses = &self.lapses;
        if taken_at.is_some_and(|at| lapses(at) <= now) {
            return;
        }
        let live = self.lots.iter_mut();
        let live = live.filter(|(at, left)| lapses(*at) > now && *left > 0);
        let mut live: Vec<_> = live.collect();
        // Permits of that instant, and then of those before it; else the oldest.
        let known = taken_at.and_then(|taken_at| {
            let before = live.partition_point(|(at, _)| lapses(*at) <= lapses(taken_at));
            let is_near = live.len() - before < self.reach;
            (before > 0 && is_near).then_some(before)
        });
        if let Some(before) = known {
            live.truncate(before);
            live.reverse();
        }
        let mut back = permits;
        for (_, left) in live {
            let given = back.min(*left);
            *left -= given;
            back -= given;
        }
    }
}

/// The open window, if there is one.
struct ModelWindow {
    length: u64,
    aligned: bool,
    opened: u64,
    used: u64,
}

impl ModelWindow {
    fn is_open(&self, now: u64) -> bool {
        self.used > 0 && now - self.opened < self.length
    }
}

impl Model for ModelWindow {
    fn used(&self, now: u64) -> u64 {
        if self.is_open(now) { self.used } else { 0 }
    }

    fn charge(&mut self, now: u64, permits: u64) {
        if !self.is_open(now) {
            let into = if self.aligned { now % self.length } else { 0 };
            (self.opened, self.used) = (now - into, 0);
        }
        self.used = MOST.min(self.used + permits);
    }

    fn credit(&mut self, now: u64, permits: u64, taken_at: Option<u64>) {
        if self.is_open(now) && taken_at.is_none_or(|at| at >= self.opened) {
            self.used = self.used.saturating_sub(permits);
        }
    }
}

/// A count for each window that ever was.
struct ModelCounts {
    window: u64,
    counts: HashMap<u64, u64>,
}

impl ModelCounts {
    fn count(&self, number: u64) -> u64 {
        self.counts.get(&number).copied().unwrap_or(0)
    }

    /// Takes permits out of a count. Returns how many are still to be taken.
    fn give_back(&mut self, number: u64, permits: u64) -> u64 {
        let count = self.counts.entry(number).or_default();
        let back = permits.min(*count);
        *count -= back;
        permits - back
    }
}

impl Model for ModelCounts {
    fn used(&self, now: u64) -> u64 {
        let (number, into) = (now / self.window, now % self.window);
        // Everything times the window, so that the only division is the last.
        let weighted = u128::from(self.count(number)) * u128::from(self.window)
            + u128::from(self.count(number - 1)) * u128::from(self.window - into);
        u64::try_from(weighted.div_ceil(self.window.into())).unwrap()
    }

    fn charge(&mut self, now: u64, permits: u64) {
        let count = self.counts.entry(now / self.window).or_default();
        *count = MOST.min(*count + permits);
    }

    fn credit(&mut self, now: u64, permits: u64, taken_at: Option<u64>) {
        let number = now / self.window;
        match taken_at.map(|at| number - at / self.window) {
            Some(0) => {
                self.give_back(number, permits);
            }
            Some(1) => {
                self.give_back(number - 1, permits);
            }
            Some(_) => {}
            None => {
                let rest = self.give_back(number, permits);
                self.give_back(number - 1, rest);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Acquire(u64),
    Charge(u64),
    /// Of what was taken at one of the instants so far, or at an unknown one.
    Credit(u64, Option<Index>),
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let act = prop_oneof![
        8 => costs().prop_map(Act::Acquire),
        1 => costs().prop_map(Act::Charge),
        3 => (costs(), any::<Option<Index>>()).prop_map(|(permits, at)| Act::Credit(permits, at)),
    ];
    prop::collection::vec((pauses(), act), 1..80)
}

fn agrees(
    limit: Limit,
    mut model: impl Model,
    history: Vec<(u64, Act)>,
) -> Result<(), TestCaseError> {
    let mut subject = Subject::of(limit);
    let permits = subject.capacity();
    let mut taken = vec![subject.now];
    for (pause, act) in history {
        subject.now += pause;
        let now = subject.now;
        let decision = match act {
            Act::Acquire(cost) => {
                let fits = cost == 0 || model.used(now) + cost <= permits;
                let decision = subject.ask(cost);
                prop_assert_eq!(decision.is_allowed(), fits);
                if fits && cost > 0 {
                    model.charge(now, cost);
                    taken.push(now);
                }
                decision
            }
            Act::Charge(0) => continue,
            Act::Charge(cost) => {
                model.charge(now, cost);
                taken.push(now);
                subject.act(Action::Charge(cost))
            }
            Act::Credit(permits, at) => {
                let taken_at = at.map(|at| *at.get(&taken));
                model.credit(now, permits, taken_at);
                subject.act(Action::Credit {
                    permits,
                    taken_at: taken_at.map(Micros::new),
                })
            }
        };
        let left = permits.saturating_sub(model.used(now));
        prop_assert_eq!(decision.remaining(), left);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn fixed_window_does_what_a_count_between_its_ends_does(
        limit in permits(), period in periods(), aligned: bool, history in acts(),
    ) {
        let windows = Limit::fixed_window(limit, period);
        let model = ModelWindow { length: us(period), aligned, opened: 0, used: 0 };
        agrees(if aligned { windows.aligned() } else { windows }, model, history)?;
    }

    #[test]
    fn sliding_log_does_what_a_list_of_all_permits_does(
        limit in permits(), period in periods(), history in acts(),
    ) {
        let model = permits_that_lapse(|at| at + us(period), 32);
        agrees(Limit::sliding_log(limit, period), model, history)?;
    }

    #[test]
    fn sliding_window_does_what_a_list_of_all_permits_and_their_slices_does(
        limit in permits(), period in periods(), slices in slices(), history in acts(),
    ) {
        let slice = us(period).div_ceil(slices.into());
        let model = permits_that_lapse(|at| (at / slice + 1) * slice + us(period), usize::MAX);
        agrees(Limit::sliding_window(limit, period).slices(slices), model, history)?;
    }

    #[test]
    fn sliding_counter_does_what_the_weighted_counts_allow(
        limit in permits(), period in periods(), history in acts(),
    ) {
        let model = ModelCounts { window: us(period), counts: HashMap::new() };
        agrees(Limit::sliding_counter(limit, period), model, history)?;
    }
}

#[test]
fn permits_of_a_fixed_window_may_be_handed_out_until_it_ends() {
    let mut subject = Subject::of(Limit::fixed_window(5, SECOND));
    let taken = subject.ask(3);
    let left = |elapsed_us| {
        let elapsed = Micros::new(elapsed_us);
        subject.algorithm.permits_left_after(&taken, elapsed)
    };
    assert!(left(999_999) >= 3);
    assert_eq!(left(1_000_000), 0);
}
