//! Rates in fixed point, from one a year to the largest: bursts, waits and resets are exact
//! on the interval of a permit, however long they go on.

use super::buckets::{PER_US, permit};
use super::*;
use crate::limit::most_capacity;

/// Buckets of every kind, period, rate up to this many permits in a microsecond, and capacity.
fn rates(most_in_us: u64) -> impl Strategy<Value = Numbers> {
    let periods = magnitudes(us(366 * DAY)).prop_map(|period_us| period_us.max(1_000));
    let of_period = move |period_us: u64| {
        let most = period_us.saturating_mul(most_in_us).min(MOST_PERMITS);
        (Just(period_us), magnitudes(most))
    };
    let of_rate = |(period_us, rate): (u64, u64)| {
        let most = most_capacity(rate, Micros::new(period_us));
        (BUCKETS, Just(period_us), Just(rate), magnitudes(most))
    };
    let rates = periods.prop_flat_map(of_period).prop_flat_map(of_rate);
    rates.prop_map(|(kind, period_us, rate, burst)| Numbers {
        kind,
        permits: burst,
        rate,
        period: Duration::from_micros(period_us),
        slices: 1,
    })
}

/// So many units in microseconds, rounded up.
fn us_of(units: i128) -> u64 {
    (units as u128).div_ceil(PER_US as u128) as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn at_a_frozen_clock_exactly_the_burst_is_admitted(
        numbers in rates(1_000_000), costs in prop::collection::vec(any::<u64>(), 6), singles in 0_u64..6,
    ) {
        let mut subject = Subject::of(numbers.limit());
        let mut left = numbers.permits;
        let singles = singles.min(left);
        for _ in 0..singles {
            left -= 1;
            prop_assert_eq!(subject.take(1, true).remaining(), left);
        }
        for cost in costs {
            let cost = cost % left.max(1);
            left -= cost;
            let decision = subject.ask(cost);
            prop_assert!(decision.is_allowed());
            prop_assert_eq!(decision.remaining(), left);
        }
        prop_assert!(subject.ask(left).is_allowed());

        let permit = permit(&numbers);
        let denied = subject.ask(1);
        prop_assert_eq!(denied.retry_after().map(us), Some(us_of(permit)));
        let full = permit * i128::from(numbers.permits);
        prop_assert_eq!(us(denied.reset_after()), us_of(full));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// A caller that waits each time gets each permit when it is due: nothing adds up.
    #[test]
    fn permits_come_back_at_their_exact_instants(
        numbers in rates(10), taken in prop::collection::vec(1_u64..9, 1..60),
    ) {
        // What comes within the microsecond of a permit has room: a full bucket would lose it.
        let numbers = Numbers { permits: numbers.permits.max(32), ..numbers };
        let mut subject = Subject::of(numbers.limit());
        let _ = subject.act(Action::Charge(numbers.permits));
        let mut due = 0;
        for cost in taken {
            due += permit(&numbers) * i128::from(cost);
            // A rate of millions a second gives some within one microsecond.
            if let Some(wait) = subject.ask(cost).retry_after() {
                prop_assert_eq!(subject.now + us(wait), START + us_of(due));
                subject.now += us(wait);
                prop_assert!(subject.ask(cost).is_allowed());
            }
        }
    }

    /// Whether the interval is a whole number of microseconds or not: what is owed is exactly what
    /// was taken under each of the limits.
    #[test]
    fn a_rate_changed_to_a_fraction_and_back_forgives_nothing(
        numbers in rates(1_000_000), whole_us in 1_000_u64..1_000_000,
        history in prop::collection::vec((0_u64..2_000_000, 0_u64..9, any::<bool>()), 1..60),
    ) {
        let whole = Numbers {
            permits: 1,
            rate: 1,
            period: Duration::from_micros(whole_us),
            ..numbers
        };
        let mut subject = Subject::of(whole.limit());
        let mut owed = 0;
        for (pause, taken, is_whole) in history {
            subject.now += pause;
            owed = (owed - i128::from(pause) * PER_US).max(0);
            let used = if is_whole { whole } else { numbers };
            subject.change(used.limit());
            prop_assert_eq!(us(subject.look(subject.now).reset_after()), us_of(owed));
            let charged = subject.act(Action::Charge(taken));
            owed += permit(&used) * i128::from(taken);
            // The most that may be owed.
            prop_assume!(owed < i128::from(us(100 * 366 * DAY)) * PER_US);
            prop_assert_eq!(us(charged.reset_after()), us_of(owed));
        }
    }
}
