//! Sliding window: the effects of its slices.

use std::collections::HashMap;

use super::over_admission::{admitted, fullest};
use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn sliding_window_never_admits_more_than_the_limit_in_any_window(
        limit in 1_u64..20, period in periods(), slices in 1_u32..=1_000, history in histories(),
    ) {
        let admitted = admitted(Limit::sliding_window(limit, period).slices(slices), history);
        prop_assert!(fullest(us(period), &admitted) <= limit);
    }

    /// For a caller that asks at every instant that might matter: at slice ends, and when they
    /// lapse.
    #[test]
    fn sliding_window_never_admits_more_to_a_caller_that_knows_its_slices(
        limit in 1_u64..20, slices in prop_oneof![Just(1_u32), Just(2), Just(3), Just(7), Just(10)],
        wishes in prop::collection::vec((0_u64..8, 0_u64..3, 0_u64..20), 1..120),
    ) {
        // No multiple of three or seven, so that those slices overhang.
        let period = Duration::from_millis(1);
        let slice = us(period).div_ceil(slices.into());
        let mut subject = Subject::of(Limit::sliding_window(limit, period).slices(slices));
        let mut admitted = Vec::new();
        for (ends, beside, most) in wishes {
            let end = (subject.now / slice + ends) * slice + beside;
            subject.now = subject.now.max(end - 1);
            let cost = most.min(subject.look(subject.now).remaining());
            if cost > 0 && subject.ask(cost).is_allowed() {
                admitted.push((subject.now, cost));
            }
        }
        prop_assert!(fullest(us(period), &admitted) <= limit);
    }

    /// One slice is a window: the limit applies to the open one and the previous one together.
    #[test]
    fn sliding_window_of_one_slice_counts_two_aligned_windows(
        limit in 1_u64..20, period in periods(), history in histories(),
    ) {
        let mut subject = Subject::of(Limit::sliding_window(limit, period).slices(1));
        let mut windows = HashMap::<u64, u64>::new();
        for (pause, cost) in history {
            subject.now += pause;
            let number = subject.now / us(period);
            let used: u64 = [number, number - 1]
                .iter()
                .filter_map(|number| windows.get(number))
                .sum();
            let fits = cost == 0 || used + cost <= limit;
            prop_assert_eq!(subject.ask(cost).is_allowed(), fits);
            if fits {
                *windows.entry(number).or_default() += cost;
            }
        }
    }

    /// After the same permits, a cost that the log admits is admitted at most one slice later.
    #[test]
    fn sliding_window_is_the_log_a_slice_late_at_most(
        limit in 1_u64..20, period in periods(), slices in 1_u32..=1_000, history in histories(),
    ) {
        let mut sliced = Subject::of(Limit::sliding_window(limit, period).slices(slices));
        let mut log = Subject::of(Limit::sliding_log(limit, period));
        let slice = us(period).div_ceil(slices.into());
        for (pause, cost) in history {
            sliced.now += pause;
            log.now = sliced.now;
            let late = sliced.now + slice;
            for cost in [1, 2, limit] {
                prop_assert!(!log.would(log.now, cost) || sliced.would(late, cost));
                prop_assert!(!sliced.would(log.now, cost) || log.would(log.now, cost));
            }
            if sliced.ask(cost).is_allowed() {
                let _ = log.act(Action::Charge(cost));
            }
        }
    }
}
