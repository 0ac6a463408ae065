//! Parameters travel with each check: how a changed limit treats what was used before.

use super::penalties::{Came, Guarded};
use super::*;
use crate::time::{HOUR, MINUTE};

impl Numbers {
    /// The limit with these, if it makes sense.
    fn changed(&self, permits: u64, period: Duration) -> Option<Limit> {
        let changed = Self {
            permits,
            period,
            ..*self
        };
        let limit = changed.limit();
        limit.valid().is_ok().then_some(limit)
    }
}

/// A key after some history in which nothing was given back.
fn used(numbers: &Numbers, history: Vec<(u64, u64)>) -> Subject {
    let mut subject = Subject::of(numbers.limit());
    for (pause, cost) in history {
        subject.now += pause;
        let _ = subject.ask(cost);
    }
    subject
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// With more permits at once in the same time, exactly that many more remain.
    #[test]
    fn raising_a_limit_gives_what_was_added_and_forgives_nothing(
        numbers in numbers(ALL), history in histories(), more in 1_u64..1_000,
    ) {
        let permits = numbers.permits.saturating_add(more);
        let raised = Numbers { permits, ..numbers };
        prop_assume!(raised.limit().valid().is_ok());
        let mut subject = used(&numbers, history);
        let before = subject.look(subject.now);
        subject.change(raised.limit());
        let after = subject.look(subject.now);
        let added = permits - numbers.permits;
        prop_assert_eq!(after.remaining(), before.remaining() + added);
        prop_assert_eq!(after.reset_after(), before.reset_after());
        // The new permits can be had at once, and then the limit holds.
        prop_assert!(subject.ask(after.remaining()).is_allowed());
        prop_assert!(!subject.would(subject.now, 1));
    }

    #[test]
    fn lowering_a_limit_keeps_what_was_used_above_it(
        numbers in numbers(ALL), history in histories(), permits in permits(),
    ) {
        let permits = permits.min(numbers.permits);
        let mut subject = used(&numbers, history);
        let before = subject.look(subject.now);
        let used = numbers.permits - before.remaining();
        subject.change(Numbers { permits, ..numbers }.limit());
        let after = subject.look(subject.now);
        prop_assert_eq!(after.remaining(), permits.saturating_sub(used));
        prop_assert_eq!(after.reset_after(), before.reset_after());
        let decision = subject.ask(1);
        prop_assert_eq!(decision.is_allowed(), permits > used);
        if let Some(wait) = decision.retry_after().map(us) {
            prop_assert!(!subject.would(subject.now + wait - 1, 1));
            prop_assert!(subject.would(subject.now + wait, 1));
        }
    }

    /// A bucket keeps the time until it is whole again, rounded up; a window keeps what was used.
    #[test]
    fn another_length_forgives_nothing_that_is_owed(
        numbers in numbers(ALL), history in histories(), rate in permits(), times in 2_u32..10,
    ) {
        let period = numbers.period * times;
        let changed = if numbers.is_bucket() {
            Numbers { rate, ..numbers }
        } else {
            Numbers { period, ..numbers }
        };
        prop_assume!(changed.limit().valid().is_ok());
        let mut subject = used(&numbers, history);
        let before = subject.look(subject.now);
        subject.change(changed.limit());
        let after = subject.look(subject.now);
        prop_assert!(after.reset_after() >= before.reset_after());
        if !numbers.is_bucket() {
            prop_assert!(after.remaining() <= before.remaining());
        }
    }

    /// What a window or a log remembers is over at once when the new length says so.
    #[test]
    fn a_shorter_window_ends_earlier_at_once(
        numbers in numbers(ALL), kind in prop_oneof![Just(4_usize), Just(5), Just(6)],
        history in histories(), period in periods(),
    ) {
        let numbers = Numbers { kind, ..numbers };
        let mut subject = used(&numbers, history);
        subject.change(Numbers { period, ..numbers }.limit());
        if period < numbers.period {
            prop_assert!(subject.look(subject.now).reset_after() <= period);
        }
    }

    /// Limits of any size one after the other, each on the state that the previous one left.
    #[test]
    fn no_change_makes_an_answer_impossible(
        numbers in numbers(ALL),
        history in prop::collection::vec((pauses(), costs(), permits(), periods()), 1..60),
    ) {
        let mut subject = Subject::of(numbers.limit());
        for (pause, cost, permits, period) in history {
            let Some(changed) = numbers.changed(permits, period) else {
                continue;
            };
            subject.change(changed);
            subject.now += pause;
            let decision = subject.ask(cost);
            prop_assert!(decision.remaining() <= permits);
            let looked = subject.look(subject.now);
            prop_assert_eq!(decision.remaining(), looked.remaining());
            prop_assert_eq!(decision.reset_after(), looked.reset_after());
            let reset = us(looked.reset_after());
            prop_assert_eq!(subject.look(subject.now + reset).remaining(), permits);
            prop_assert_eq!(reset == 0, looked.remaining() == permits);
            if reset > 0 {
                prop_assert!(subject.look(subject.now + reset - 1).remaining() < permits);
            }
            prop_assert_eq!(decision.outcome() == Outcome::NeverFits, cost > permits);
            prop_assert!(subject.would(subject.now, decision.remaining()));
            prop_assert!(decision.remaining() == permits || !subject.would(subject.now, permits));
            if let Some(wait) = decision.retry_after().map(us) {
                prop_assert!(!subject.would(subject.now + wait - 1, cost), "early by 1 us");
                prop_assert!(subject.would(subject.now + wait, cost), "at the announced instant");
            }
        }
    }

    /// As processes of two versions do while a deployment runs.
    #[test]
    fn two_sets_of_numbers_in_turns_admit_no_more_than_the_larger_does(
        numbers in numbers(0..8), others in (permits(), slices()),
        history in prop::collection::vec((pauses(), costs(), any::<bool>()), 1..80),
    ) {
        let (permits, slices) = others;
        let other = Numbers { permits, slices, ..numbers };
        prop_assume!(other.limit().valid().is_ok());
        let most = permits.max(numbers.permits);
        let period = us(numbers.period);
        let mut subject = Subject::of(numbers.limit());
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (pause, cost, is_other) in history {
            subject.now += pause;
            subject.change(if is_other { other } else { numbers }.limit());
            let now = subject.now;
            if !subject.ask(cost).is_allowed() {
                continue;
            }
            taken.push((now, cost));
            let mut together = 0;
            for (at, cost) in taken.iter().rev() {
                together += cost;
                let given = match numbers.kind {
                    // What comes back meanwhile can be taken, too.
                    kind if BUCKETS.contains(&kind) => {
                        let back = u128::from(now - at) * u128::from(numbers.rate);
                        u64::try_from(back / u128::from(period)).unwrap() + most
                    }
                    // Two windows may meet.
                    4 if now - at < period => 2 * most,
                    5 if now / period == at / period => most,
                    6 | 7 if now - at < period => most,
                    _ => break,
                };
                prop_assert!(together <= given, "{} since {}: {}", together, now - at, given);
            }
        }
    }

    #[test]
    fn no_changes_make_anybody_wait_for_longer_than_the_longest_of_the_limits(
        numbers in numbers(ALL),
        history in prop::collection::vec((pauses(), costs(), permits(), periods()), 1..60),
    ) {
        let mut subject = Subject::of(numbers.limit());
        let mut longest = 0;
        for (pause, cost, permits, period) in history {
            let Some(changed) = numbers.changed(permits, period) else {
                continue;
            };
            subject.change(changed);
            subject.now += pause;
            let mut whole = Subject::of(changed);
            let capacity = whole.capacity();
            let _ = whole.act(Action::Charge(capacity));
            longest = longest.max(match numbers.kind {
                // For what is taken in the first moment of a window or slice.
                COUNTER => 2 * us(period),
                7 => us(period) + us(period).div_ceil(numbers.slices.into()),
                kind if WINDOWS.contains(&kind) => us(period),
                _ => us(whole.look(whole.now).reset_after()),
            });
            let _ = subject.ask(cost);
            prop_assert!(us(subject.look(subject.now).reset_after()) <= longest);
        }
    }
}

/// Ten an hour, and twenty a minute, of each algorithm with windows.
fn an_hour_and_a_minute() -> impl Iterator<Item = [Limit; 2]> {
    (4..9).map(|kind| {
        [(10, HOUR), (20, MINUTE)].map(|(permits, period)| {
            let numbers = Numbers {
                kind,
                permits,
                rate: 1,
                period,
                slices: 10,
            };
            numbers.limit()
        })
    })
}

/// As `docs/operations.md` warns of a deployment that changes the window.
#[test]
fn a_take_by_a_shorter_window_forgets_what_only_a_longer_one_counts() {
    for [hour, minute] in an_hour_and_a_minute() {
        let mut subject = Subject::of(hour);
        subject.now -= subject.now % us(DAY);
        assert!(subject.ask(10).is_allowed());
        assert!(!subject.ask(1).is_allowed(), "{hour}");
        subject.now += us(20 * MINUTE);
        subject.change(minute);
        assert!(subject.ask(1).is_allowed(), "{minute}");
        subject.now += us(2 * MINUTE);
        subject.change(hour);
        assert!(subject.ask(10).is_allowed(), "{hour}");
    }
}

/// The same of the counter.
#[test]
fn permits_of_a_counter_come_back_late_while_two_windows_take_turns() {
    let windows = [60, 61].map(|secs| Limit::sliding_counter(10, secs * SECOND));
    let allowed = |windows: [Limit; 2]| {
        let mut subject = Subject::of(windows[0]);
        let asked = windows.iter().cycle().take(100);
        // One in ten seconds, of ten in a minute.
        let asked = asked.filter(|limit| {
            subject.now += us(10 * SECOND);
            subject.change(**limit);
            subject.ask(1).is_allowed()
        });
        asked.count()
    };
    let [minute, longer] = windows;
    assert_eq!(allowed([minute, minute]), 100);
    assert_eq!(allowed([longer, longer]), 100);
    assert!(allowed(windows) < 60, "{}", allowed(windows));
}

/// And of a penalty.
#[test]
fn a_denial_counted_within_a_shorter_time_forgets_older_ones() {
    let bans = |within: [Duration; 2]| {
        let penalties = within.map(|within| Penalty::after(3, within, HOUR));
        let mut guarded = Guarded::of(Limit::gcra(1, DAY), &penalties[0]);
        let _ = guarded.ask();
        let came = penalties.iter().cycle().take(20).map(|penalty| {
            guarded.guard.now += us(2 * MINUTE);
            guarded.penalty.algorithm = Algorithm::try_from(penalty).unwrap();
            guarded.ask()
        });
        came.filter(|came| matches!(came, Came::Banned(_))).count()
    };
    assert!(bans([HOUR, HOUR]) > 0);
    assert_eq!(bans([HOUR, MINUTE]), 0);
}
