//! Steps of the clock, by up to hours in both directions.

use proptest::sample::Index;

use super::penalties::{Came, Guarded};
use super::*;
use crate::time::{HOUR, MINUTE};

/// How the clock goes on, or is set, before the next request.
#[derive(Clone, Copy, Debug)]
enum Clock {
    GoesOn(u64),
    StepsBack(u64),
    StepsAhead(u64),
}

fn clocks() -> impl Strategy<Value = Clock> {
    let step = || prop_oneof![1_u64..5_000, 1_u64..5_000_000, 1_u64..3 * us(HOUR)];
    prop_oneof![
        6 => pauses().prop_map(Clock::GoesOn),
        2 => step().prop_map(Clock::StepsBack),
        1 => step().prop_map(Clock::StepsAhead),
    ]
}

impl Clock {
    /// The clock and the time that has really passed.
    fn pass(self, (clock, real): (u64, u64)) -> (u64, u64) {
        match self {
            Self::GoesOn(us) => (clock + us, real + us),
            Self::StepsBack(us) => (clock - us, real),
            Self::StepsAhead(us) => (clock + us, real),
        }
    }
}

/// Those whose permits come back by themselves, whoever has taken them.
const WITHOUT_HOLDERS: Range<usize> = 0..10;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// And it is exact: the clock goes on from here.
    #[test]
    fn nobody_waits_for_more_than_two_windows_whatever_the_clock_did(
        numbers in numbers(WINDOWS.start..WITHOUT_HOLDERS.end),
        history in prop::collection::vec((clocks(), costs()), 1..MOST_ASKS),
    ) {
        let mut subject = Subject::of(numbers.limit());
        let mut time = (subject.now, 0);
        for (clock, cost) in history {
            time = clock.pass(time);
            (subject.now, _) = time;
            let decision = subject.act(Action::acquire(cost));
            if let Some(wait) = decision.retry_after().map(us) {
                prop_assert!(wait <= 2 * us(numbers.period), "{wait}");
                prop_assert!(!subject.would(subject.now + wait - 1, cost));
                prop_assert!(subject.would(subject.now + wait, cost));
            }
            let next = us(decision.next_permit_after());
            if next > 0 {
                prop_assert!(subject.would(subject.now + next, 1));
            }
            let remaining = decision.remaining();
            prop_assert!(remaining == 0 || subject.would(subject.now, remaining));
        }
    }

    /// A step ahead gives back what would have come back meanwhile: the limit once more, at most.
    #[test]
    fn a_step_back_admits_no_more_and_one_ahead_the_limit_once_more(
        numbers in numbers(0..WINDOWS.end),
        history in prop::collection::vec((clocks(), 1_u64..6), 1..120),
        permits in 1_u64..9,
    ) {
        let numbers = Numbers { permits, ..numbers };
        prop_assume!(numbers.limit().valid().is_ok());
        let (period, most) = (us(numbers.period), u128::from(permits));
        let at_once = match numbers.kind {
            4 | 5 => 2 * most,
            COUNTER => 2 * most - 1,
            _ => most,
        };
        let mut subject = Subject::of(numbers.limit());
        let mut time = (subject.now, 0);
        let mut admitted: Vec<(u64, u64, usize)> = Vec::new();
        let mut ahead = 0;
        for (clock, cost) in history {
            time = clock.pass(time);
            (subject.now, _) = time;
            ahead += usize::from(matches!(clock, Clock::StepsAhead(_)));
            if subject.act(Action::acquire(cost)).is_allowed() {
                admitted.push((time.1, cost, ahead));
            }
            let mut taken = 0;
            for (at, cost, ahead_then) in admitted.iter().rev() {
                let elapsed = time.1 - at;
                let brought = match numbers.is_bucket() {
                    true => u128::from(elapsed) * u128::from(numbers.rate) / u128::from(period),
                    false if elapsed >= period => break,
                    false => 0,
                };
                taken += u128::from(*cost);
                let steps = (ahead - ahead_then) as u128;
                prop_assert!(taken <= at_once * (1 + steps) + brought, "{taken} in {elapsed}");
            }
        }
    }

    /// Nor any later, than after twice its length.
    #[test]
    fn no_step_back_ends_a_ban_and_none_makes_it_longer_than_twice_its_length(
        (ban, within) in (periods(), periods()),
        doubles in any::<bool>(),
        steps in prop::collection::vec((any::<u32>(), any::<bool>()), 1..60),
        factor in any::<Index>(),
    ) {
        let mut penalty = Penalty::after(2, within, ban);
        if doubles {
            penalty = penalty.doubling_up_to(366 * DAY);
        }
        let mut guarded = Guarded::of(Limit::sliding_log(1, 366 * DAY), &penalty);
        // From the length of a ban to thousands of them.
        let unit = us(ban).min(us(DAY)) * (1 + factor.index(3_000) as u64) / 100 + 1;
        let mut real = 0;
        let (mut until, mut length) = (0, 0);
        for (step, is_back) in steps {
            let step = u64::from(step) % unit;
            if is_back {
                guarded.guard.now -= step;
            } else {
                guarded.guard.now += step;
                real += step;
            }
            match guarded.ask() {
                Came::Through => {}
                Came::Banned(rest) => prop_assert!(rest <= 2 * length, "{rest} of {length}"),
                Came::Denied { brought } => {
                    prop_assert!(real >= until, "before the ban's end");
                    if brought > 0 {
                        (until, length) = (real + brought, brought);
                    }
                }
            }
        }
    }
}

/// As after a failover to a replica whose clock is behind.
#[test]
fn a_limit_denies_for_no_more_than_two_windows_after_a_step_by_an_hour() {
    for kind in WINDOWS.start..WITHOUT_HOLDERS.end {
        let (permits, period) = (4, 2 * SECOND);
        let numbers = Numbers {
            kind,
            permits,
            rate: 1,
            period,
            slices: 10,
        };
        let mut subject = Subject::of(numbers.limit());
        let use_up = |subject: &mut Subject| {
            let take = |_: &_| subject.act(Action::acquire(1)).is_allowed();
            (0..10).filter(take).count()
        };
        assert_eq!(use_up(&mut subject), 4);
        subject.now -= us(HOUR);
        // Hammering, too, does not make it any longer.
        let mut real = 0;
        while !subject.act(Action::acquire(1)).is_allowed() {
            subject.now += 1_000;
            real += 1_000;
            assert!(real <= 2 * us(period), "{kind}");
        }
    }
}

/// Somebody may have been let in ahead of time, or have used more than there was: a debt does not tell
/// whether it began by another clock.
#[test]
fn a_debt_is_owed_by_the_clock_that_it_was_made_by() {
    for kind in BUCKETS {
        let (permits, period) = (4, 2 * SECOND);
        let numbers = Numbers {
            kind,
            permits,
            rate: 4,
            period,
            slices: 1,
        };
        let mut subject = Subject::of(numbers.limit());
        let _ = subject.act(Action::acquire(4));
        let wait = subject.act(Action::acquire(1)).retry_after();
        subject.now -= us(MINUTE);
        let behind = subject.act(Action::acquire(1)).retry_after();
        assert_eq!(behind, wait.map(|wait| wait + MINUTE), "{kind}");
    }
}

/// Its holder may have been promised a longer life, and ends it.
#[test]
fn a_lease_lapses_by_the_clock_that_acquired_it() {
    let mut subject = Subject::of(Limit::concurrency(1).lease(MINUTE));
    let held = Acquire {
        lease: Some(lease(1)),
        ..take(1, Wait::None)
    };
    assert!(subject.act(Action::Acquire(held)).is_allowed());
    subject.now -= us(HOUR);
    let denied = subject.act(Action::acquire(1));
    assert_eq!(denied.retry_after(), Some(HOUR + MINUTE));
    let _ = subject.act(Action::Renew(lease(1)));
    assert_eq!(
        subject.act(Action::acquire(1)).retry_after(),
        denied.retry_after()
    );
    let _ = subject.act(Action::Release(lease(1)));
    assert!(subject.act(Action::acquire(1)).is_allowed());
}
