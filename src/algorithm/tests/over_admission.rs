//! The most that is ever admitted within one window's length.

use proptest::sample::Index;

use super::buckets::{PER_US, permit};
use super::*;

/// The most permits within any interval of this length, of `(instant, permits)` in order.
pub(super) fn fullest(window: u64, admitted: &[(u64, u64)]) -> u64 {
    let within = |end: u64| {
        let live = admitted
            .iter()
            .filter(|(at, _)| *at <= end && at + window > end);
        live.map(|(_, permits)| permits).sum()
    };
    admitted
        .iter()
        .map(|(at, _)| within(*at))
        .max()
        .unwrap_or(0)
}

/// What is admitted in a history: when, and how many permits.
pub(super) fn admitted(limit: Limit, history: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut subject = Subject::of(limit);
    let mut admitted = Vec::new();
    for (pause, cost) in history {
        subject.now += pause;
        if subject.ask(cost).is_allowed() {
            admitted.push((subject.now, cost));
        }
    }
    admitted
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn sliding_log_never_admits_more_than_the_limit_in_any_window(
        limit in 1_u64..20, period in periods(), history in histories(),
    ) {
        let admitted = admitted(Limit::sliding_log(limit, period), history);
        prop_assert!(fullest(us(period), &admitted) <= limit);
    }

    #[test]
    fn fixed_window_never_admits_more_than_twice_the_limit_in_any_window(
        limit in 1_u64..20, period in periods(), aligned: bool, history in histories(),
    ) {
        let windows = Limit::fixed_window(limit, period);
        let windows = if aligned { windows.aligned() } else { windows };
        let admitted = admitted(windows, history);
        prop_assert!(fullest(us(period), &admitted) <= 2 * limit);
    }

    /// Within any time: what the capacity holds, plus what the rate adds meanwhile.
    #[test]
    fn a_bucket_never_admits_more_than_its_capacity_and_what_its_rate_brings(
        numbers in numbers(BUCKETS), history in histories(),
    ) {
        let admitted = admitted(numbers.limit(), history);
        let permit = permit(&numbers) as u128;
        for (first, (start, _)) in admitted.iter().enumerate() {
            let mut taken = 0;
            for (at, cost) in &admitted[first..] {
                taken += u128::from(*cost);
                let brought = u128::from(at - start) * PER_US as u128;
                let full = u128::from(numbers.permits) * permit;
                prop_assert!(taken * permit <= full + brought);
            }
        }
    }

    /// A debt does not tell whose permits have come back meanwhile. So of those that stay taken,
    /// there are less than the capacity too many, however many others are given back.
    #[test]
    fn a_bucket_that_is_given_back_to_admits_less_than_its_capacity_too_many(
        numbers in numbers(BUCKETS),
        history in prop::collection::vec((pauses(), any::<Option<Index>>(), 1_u64..4), 1..120),
    ) {
        let mut subject = Subject::of(numbers.limit());
        let permit = permit(&numbers) as u128;
        let mut taken: Vec<(u64, u64, Receipt)> = Vec::new();
        for (pause, back, cost) in history {
            subject.now += pause;
            if let Some(back) = back.filter(|_| !taken.is_empty()) {
                let (_, permits, receipt) = taken.remove(back.index(taken.len()));
                subject.refund(permits, receipt);
                continue;
            }
            let decision = subject.ask(cost);
            if decision.is_allowed() {
                taken.push((subject.now, cost, decision.receipt()));
            }
            let mut used = 0;
            for (at, cost, _) in taken.iter().rev() {
                used += u128::from(*cost);
                let brought = u128::from(subject.now - at) * PER_US as u128;
                let full = u128::from(numbers.permits) * permit;
                prop_assert!(used * permit < 2 * full + brought);
            }
        }
    }
}

/// The documented worst case of [`Policy::settle`](crate::Policy::settle). In every second all
/// permits are taken and all but the last are given back, which has come back by itself when the
/// second is over.
#[test]
fn open_requests_let_a_bucket_admit_almost_twice_its_capacity() {
    const BURST: u64 = 10;
    let mut subject = Subject::of(Limit::gcra(1, SECOND).burst(BURST));
    let mut open = Vec::new();
    for _ in 1..BURST {
        let mut taken: Vec<_> = (0..BURST).map(|_| subject.ask(1).receipt()).collect();
        open.extend(taken.pop());
        for receipt in taken {
            subject.refund(1, receipt);
        }
        subject.now += us(SECOND);
    }
    assert_eq!(subject.look(subject.now).remaining(), BURST);
    let use_up = |subject: &mut Subject| (0..).take_while(|_| subject.ask(1).is_allowed()).count();
    let before = use_up(&mut subject);
    for receipt in open {
        subject.refund(1, receipt);
    }
    let used = before + use_up(&mut subject);
    assert_eq!(used, 2 * BURST as usize - 1);
}

/// A sliding counter under an adversary, in windows of 1 ms.
#[derive(Clone)]
struct Attacked {
    counter: Subject,
    admitted: Vec<(u64, u64)>,
}

const WINDOW: u64 = 1_000;

impl Attacked {
    fn new(limit: u64) -> Self {
        let counter = Subject::of(Limit::sliding_counter(limit, Duration::from_millis(1)));
        Self {
            counter,
            admitted: Vec::new(),
        }
    }

    /// Takes this many permits at an instant, or as many as there are.
    fn take(&mut self, at: u64, most: u64) {
        self.counter.now = START + at;
        let cost = most.min(self.counter.look(self.counter.now).remaining());
        if cost > 0 && self.counter.ask(cost).is_allowed() {
            self.admitted.push((at, cost));
        }
    }
}

/// The worst of all ways to take any number of permits at each of these instants in turn.
fn worst(attacked: &Attacked, instants: &[u64]) -> u64 {
    let Some((at, later)) = instants.split_first() else {
        return fullest(WINDOW, &attacked.admitted);
    };
    let left = attacked.counter.look(START + at).remaining();
    let takes = (0..=left).map(|most| {
        let mut attacked = attacked.clone();
        attacked.take(*at, most);
        worst(&attacked, later)
    });
    takes.max().unwrap_or(0)
}

/// The worst case of [`Limit::sliding_counter`], over all histories of three windows that take
/// permits at their ends, at thirds of them, and in between.
#[test]
fn sliding_counter_is_below_twice_its_limit_in_small_histories() {
    let instants: Vec<u64> = (0..3)
        .flat_map(|number| [0, 333, 500, 667, 998, 999].map(|into| number * WINDOW + into))
        .collect();
    for limit in 1..=3 {
        assert_eq!(worst(&Attacked::new(limit), &instants), 2 * limit - 1);
    }
}

/// The same for larger limits, by a search for ever worse histories.
#[test]
fn sliding_counter_is_below_twice_its_limit_as_far_as_searched() {
    const WINDOWS: u64 = 4;
    let mut chance = Chance(1);
    for limit in [2, 5, 10, 40] {
        let mut worst = 0;
        for _ in 0..20 {
            let mut history: Vec<(u64, u64)> = (0..12)
                .map(|_| (chance.below(WINDOWS * WINDOW), 1 + chance.below(limit)))
                .collect();
            let mut found = 0;
            for _ in 0..150 {
                let mut changed = history.clone();
                let number = chance.below(changed.len() as u64) as usize;
                changed[number] = match chance.below(3) {
                    0 => (chance.below(WINDOWS * WINDOW), 1 + chance.below(limit)),
                    1 => (
                        changed[number].0 / WINDOW * WINDOW + WINDOW - 1 - chance.below(3),
                        limit,
                    ),
                    _ => (
                        changed[number]
                            .0
                            .saturating_add(chance.below(200))
                            .saturating_sub(100),
                        limit,
                    ),
                };
                let mut attacked = Attacked::new(limit);
                changed.sort_unstable();
                for (at, most) in &changed {
                    attacked.take(*at, *most);
                }
                let so_bad = fullest(WINDOW, &attacked.admitted);
                if so_bad >= found {
                    (history, found) = (changed, so_bad);
                }
            }
            worst = worst.max(found);
        }
        assert_eq!(worst, 2 * limit - 1, "of a limit of {limit}");
    }
}

/// The documented worst case is reached and not exceeded: everything in the last moment of a
/// window, then as much as there is in every moment of the next.
#[test]
fn sliding_counter_admits_its_worst_to_a_caller_that_knows_its_windows() {
    let limit = 100;
    let mut attacked = Attacked::new(limit);
    for at in WINDOW - 1..3 * WINDOW {
        attacked.take(at, limit);
    }
    assert_eq!(fullest(WINDOW, &attacked.admitted), 2 * limit - 1);
}

/// A generator with the same numbers in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        // Marsaglia's xorshift.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}
