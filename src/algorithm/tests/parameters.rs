//! Parameters travel with each check: how a changed limit treats what was used before.

use super::*;

/// A key after some history in which nothing was given back.
fn used(numbers: &Numbers, history: Vec<(u64, u32)>) -> Subject {
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
        numbers in numbers(ALL), history in histories(), more in 1_u32..1_000,
    ) {
        let permits = numbers.permits.saturating_add(more);
        let raised = Numbers { permits, ..numbers };
        prop_assume!(raised.limit().sound().is_ok());
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
        prop_assume!(changed.limit().sound().is_ok());
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
            let changed = Numbers { permits, period, ..numbers };
            if changed.limit().sound().is_err() {
                continue;
            }
            subject.change(changed.limit());
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
}
