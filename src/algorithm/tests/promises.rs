//! What every algorithm promises, whatever was done with the key before.

use proptest::test_runner::TestCaseError;

use super::*;

/// What the answer to a cost says is true, to the permit and to the microsecond.
fn keeps_its_promises(
    subject: &Subject,
    cost: u64,
    decision: &Decision,
) -> Result<(), TestCaseError> {
    let (now, capacity) = (subject.now, subject.capacity());
    let remaining = decision.remaining();
    prop_assert!(remaining <= capacity);
    prop_assert_eq!(
        decision.outcome() == Outcome::NeverFits,
        cost > capacity,
        "a cost of {}",
        cost
    );
    prop_assert_eq!(
        decision.outcome() == Outcome::Denied,
        decision.retry_after().is_some()
    );
    if let Some(wait) = decision.retry_after().map(us) {
        prop_assert!(!subject.would(now + wait - 1, cost), "early by 1 us");
        prop_assert!(subject.would(now + wait, cost), "at the announced instant");
        let renews = decision.renews_after.get();
        prop_assert!(renews <= wait, "when the cost fits, so does one permit");
    }
    // What remains can be had at once, and not one more.
    prop_assert!(subject.would(now, remaining));
    if let Some(more) = remaining.checked_add(1) {
        prop_assert!(!subject.would(now, more));
    }
    let reset = us(decision.reset_after());
    prop_assert_eq!(subject.look(now + reset).remaining(), capacity);
    prop_assert_eq!(reset == 0, remaining == capacity);
    if reset > 0 {
        let before = subject.look(now + reset - 1).remaining();
        prop_assert!(before < capacity, "untouched before its reset");
    }
    let next = us(decision.next_permit_after());
    prop_assert_eq!(next == 0, remaining > 0);
    if next > 0 {
        prop_assert!(subject.would(now + next, 1), "when the next permit comes");
        // Places come back when their holders end.
        let is_exact = subject.algorithm.lease().is_none();
        prop_assert!(
            !is_exact || !subject.would(now + next - 1, 1),
            "early by 1 us"
        );
    }
    // A store keeps the state until it is untouched, and no longer.
    let expires = subject.state.expires_at().get();
    prop_assert_eq!(expires.max(now), now + reset);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_answer_keeps_its_promises(
        numbers in numbers(ALL),
        history in prop::collection::vec((pauses(), costs(), any::<bool>()), 1..=MOST_ASKS),
    ) {
        let mut subject = Subject::of(numbers.limit());
        for (pause, cost, is_final) in history {
            subject.now += pause;
            let decision = subject.take(cost, is_final);
            keeps_its_promises(&subject, cost, &decision)?;
        }
    }

    #[test]
    fn every_answer_keeps_its_promises_whatever_was_charged_and_given_back(
        numbers in numbers(ALL),
        history in prop::collection::vec((pauses(), actions(), costs()), 1..60),
    ) {
        let mut subject = Subject::of(numbers.limit());
        let mut last = Receipt::default();
        for (pause, action, cost) in history {
            subject.now += pause;
            let action = about(action, last);
            let decision = subject.act(action);
            if action.acquires() > 0 && !action.is_final() && decision.is_allowed() {
                last = decision.receipt();
            }
            prop_assert_eq!(subject.look(subject.now).remaining(), decision.remaining());
            prop_assert_eq!(subject.look(subject.now).reset_after(), decision.reset_after());
            let decision = subject.ask(cost);
            keeps_its_promises(&subject, cost, &decision)?;
        }
    }

    /// A store forgets a state when it expires: from then on nobody can tell.
    #[test]
    fn a_state_that_may_be_forgotten_answers_as_the_untouched_one(
        numbers in numbers(ALL),
        history in prop::collection::vec((pauses(), actions()), 1..60),
        later in pauses(),
        action in actions(),
    ) {
        let mut kept = Subject::of(numbers.limit());
        let mut last = Receipt::default();
        for (pause, action) in history {
            kept.now += pause;
            last = kept.act(about(action, last)).receipt();
        }
        kept.now = kept.now.max(kept.state.expires_at().get()) + later;
        let mut forgotten = Subject { state: kept.algorithm.untouched(), ..kept.clone() };
        let action = about(action, last);
        prop_assert_eq!(kept.act(action), forgotten.act(action));
        prop_assert_eq!(kept.act(Action::acquire(1)), forgotten.act(Action::acquire(1)));
    }

    #[test]
    fn a_clock_that_steps_back_never_admits_more(
        numbers in numbers(ALL),
        history in prop::collection::vec((pauses(), actions()), 1..60),
        back in 1_u64..10_000_000,
        behind in actions(),
    ) {
        let mut subject = Subject::of(numbers.limit());
        let mut last = Receipt::default();
        for (pause, action) in history {
            subject.now += pause;
            last = subject.act(about(action, last)).receipt();
            let now = subject.now;
            for cost in [1, 2, 5] {
                prop_assert!(!subject.would(now - back, cost) || subject.would(now, cost));
            }
            // Nor can they after an action on it that gives nothing back.
            if !matches!(behind, Action::Acquire(_) | Action::Charge(_) | Action::Renew(_)) {
                continue;
            }
            let mut later = subject.clone();
            later.now -= back;
            let decision = later.act(behind);
            let is_repaired = !decision.is_allowed() && later.remembered() != subject.remembered();
            if is_repaired || (back > us(numbers.period) && !numbers.is_bucket()) {
                // What was taken has been taken then, by the clock that is back.
                continue;
            }
            let looked = later.look(later.now);
            prop_assert_eq!(decision.remaining(), looked.remaining());
            // Past its window, a counter cannot tell whether everything was given back.
            if numbers.kind != COUNTER {
                prop_assert_eq!(decision.reset_after(), looked.reset_after());
            }
            for cost in [1, 2, 5] {
                prop_assert!(!later.would(now, cost) || subject.would(now, cost));
            }
        }
    }

    /// Whether and when a cost fits does not depend on how often it is asked for.
    #[test]
    fn asking_while_denied_changes_nothing(
        numbers in numbers(ALL), history in histories(), hammering in histories(),
    ) {
        let mut subject = Subject::of(numbers.limit());
        for (pause, cost) in history {
            subject.now += pause;
            let _ = subject.ask(cost);
        }
        let (before, cost) = (subject.clone(), subject.capacity());
        let Some(wait) = subject.clone().ask(cost).retry_after() else { return Ok(()) };
        let comes_in = subject.now + us(wait);
        for (pause, _) in hammering {
            subject.now = (subject.now + pause).min(comes_in - 1);
            prop_assert_eq!(subject.ask(cost).retry_after(), Some(Duration::from_micros(comes_in - subject.now)));
        }
        prop_assert_eq!(subject.remembered(), before.remembered());
        subject.now = comes_in;
        prop_assert!(subject.ask(cost).is_allowed());
    }
}

/// Of the largest numbers and the longest times.
fn largest() -> impl Iterator<Item = Algorithm> {
    let most = MOST_PERMITS;
    let longest = 366 * DAY;
    let limits = [
        Limit::gcra(most, 1_000 * SECOND),
        Limit::gcra(1, longest).burst(100),
        Limit::token_bucket(100, Rate::new(1, longest)),
        Limit::leaky_bucket(100, Rate::new(1, longest)),
        Limit::leaky_bucket(most, Rate::new(most, longest)).without_delay(),
        Limit::fixed_window(most, longest).aligned(),
        Limit::fixed_window(1, longest),
        Limit::sliding_log(most, longest),
        Limit::sliding_window(most, longest).slices(1_000),
        Limit::sliding_counter(most, longest),
        Limit::concurrency(most).lease(longest),
    ];
    let penalty = Penalty::after(1, longest, longest);
    let penalty = Algorithm::try_from(&penalty).unwrap();
    let limits = limits.map(|limit| Algorithm::try_from(&limit).unwrap());
    limits.into_iter().chain([penalty])
}

#[test]
fn nothing_panics_at_the_ends_of_time() {
    let most = u64::MAX;
    for algorithm in largest() {
        for now in [0, 1, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
            let state = algorithm.untouched();
            let mut subject = Subject {
                algorithm,
                state,
                now,
                leases: 0,
            };
            for now in [now, 0, u64::MAX] {
                subject.now = now;
                for number in [0, 1, MOST_PERMITS, most, 1] {
                    do_everything(&mut subject, number);
                }
            }
        }
    }
}

/// A store of somebody's own may read what it likes.
#[test]
fn nothing_panics_whatever_was_read() {
    const ENDS: [u64; 3] = [0, 1, u64::MAX];
    let most = u64::MAX;
    let levels = ENDS.map(|one| ENDS.map(|other| [one, other])).concat();
    let readings = levels.into_iter().flat_map(|level| {
        let reading = move |us| {
            let time = Micros::new(us);
            Reading::new(us > 0, time, level, time, time)
        };
        ENDS.map(reading)
    });
    let readings: Vec<_> = readings.collect();
    for algorithm in largest() {
        for action in [Action::look(), Action::acquire(most), Action::Charge(most)] {
            for reading in &readings {
                let asks = std::iter::once(Ask::enforced(&algorithm, &action));
                assert_eq!(decide(asks, &[*reading]).len(), 1);
            }
        }
    }
}

fn do_everything(subject: &mut Subject, number: u64) {
    let forever = Micros::new(u64::MAX);
    let receipt = subject.ask(number).receipt();
    for wait in [
        Wait::Strict(forever),
        Wait::Burst(forever),
        Wait::Burst(Micros::ZERO),
    ] {
        let _ = subject.act(Action::Acquire(take(number, wait)));
    }
    for taken_at in [None, Some(Micros::ZERO), Some(receipt.at), Some(forever)] {
        let _ = subject.act(Action::Charge(number));
        let _ = subject.act(Action::Credit {
            permits: number,
            taken_at,
        });
    }
    for action in [
        Action::Charge(number),
        Action::Cancel {
            permits: number,
            receipt,
        },
        Action::Withdraw {
            permits: number,
            receipt,
        },
        Action::Renew(lease(subject.leases)),
        Action::Release(lease(subject.leases)),
        Action::Charge(number),
        Action::Reset,
        Action::Charge(number),
    ] {
        let decision = subject.act(action);
        assert!(decision.is_allowed(), "{action:?}");
    }
}

#[cfg(feature = "redis")]
proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A server takes all that fit at one instant in one step, whatever they cost. So what each of
    /// them would have been told follows from the reading of the previous one and what that took.
    #[test]
    fn later_acquires_of_several_find_only_more_used(
        numbers in numbers(BUCKETS.start..WINDOWS.end),
        before in numbers(ALL),
        history in histories(),
        back in pauses(),
        costs in prop::collection::vec(1_u64..12, 2..40),
        are_equal in any::<bool>(),
        is_final in any::<bool>(),
    ) {
        // What they find may have been taken under other numbers, and by a later clock.
        let before = Numbers { kind: numbers.kind, ..before };
        prop_assume!(before.limit().valid().is_ok());
        let mut subject = Subject::of(before.limit());
        for (pause, cost) in history {
            subject.now += pause;
            let _ = subject.act(Action::acquire(cost));
        }
        subject.now -= back.min(subject.now - START);
        subject.change(numbers.limit());
        let mut previous = None;
        for cost in &costs {
            let cost = if are_equal { costs[0] } else { *cost };
            let action = if is_final { Action::consume(cost) } else { Action::acquire(cost) };
            let now = Micros::new(subject.now);
            let found = subject.algorithm.read(&subject.state, now, &action);
            if !found.fits || !found.wait.is_zero() {
                previous = None;
                continue;
            }
            let decision = subject.act(action);
            let reading = match previous {
                // A reply tells once when the next permit comes back, as it does so behind the last.
                Some((reading, taken)) => {
                    let behind = subject.algorithm.behind(&reading, taken);
                    Reading { next: found.next, ..behind }
                }
                None => found,
            };
            let ask = Ask::enforced(&subject.algorithm, &action);
            prop_assert_eq!(decision, decide(std::iter::once(ask), &[reading])[0]);
            previous = Some((reading, cost));
        }
    }
}
