//! `FixedMicros`: durations and instants of whole microseconds and a fraction of 32 bits, the same
//! in Rust, in scripts and in what is stored.

use crate::time::Micros;

/// `us + fraction / 2^32` microseconds.
///
/// The order of the fields makes the derived order that of the durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FixedMicros {
    pub(crate) us: u64,
    pub(crate) fraction: u32,
}

impl FixedMicros {
    pub(crate) const ZERO: Self = Self::whole(0);

    pub(crate) const fn whole(us: u64) -> Self {
        Self { us, fraction: 0 }
    }

    /// The time in which one of so many permits a period is given, rounded down. Up to 10 million
    /// permits a second this is less than 2.4 parts in 10^9 too little.
    pub(super) fn interval(permits: u64, period: Micros) -> Self {
        let parts = (u128::from(period.get()) << 32) / u128::from(permits.max(1));
        // Never zero, by which nothing can be divided.
        Self::of_parts(parts.max(1))
    }

    /// In parts of 2^-32 microseconds.
    #[inline]
    fn parts(self) -> u128 {
        u128::from(self.us) << 32 | u128::from(self.fraction)
    }

    #[inline]
    fn of_parts(parts: u128) -> Self {
        match u64::try_from(parts >> 32) {
            Ok(us) => Self {
                us,
                fraction: parts as u32,
            },
            Err(_) => Self {
                us: u64::MAX,
                fraction: u32::MAX,
            },
        }
    }

    /// So many times this.
    #[inline]
    pub(crate) fn times(self, times: u64) -> Self {
        // Most costs are one permit, and most rates need no fraction.
        if times == 1 {
            return self;
        }
        if self.fraction == 0 {
            return Self::whole(self.us.saturating_mul(times));
        }
        match self.parts().checked_mul(times.into()) {
            Some(parts) => Self::of_parts(parts),
            None => Self::of_parts(u128::MAX),
        }
    }

    /// How often `part`, which is not zero, is in this.
    #[inline]
    pub(crate) fn divided_by(self, part: Self) -> u64 {
        if self.fraction == 0 && part.fraction == 0 {
            return self.us / part.us;
        }
        let (whole, part) = (self.parts(), part.parts());
        match (u64::try_from(whole), u64::try_from(part)) {
            // A division of 128 bits is slow.
            (Ok(whole), Ok(part)) => whole / part,
            _ => u64::try_from(whole / part).unwrap_or(u64::MAX),
        }
    }

    #[inline]
    pub(crate) fn saturating_add(self, other: Self) -> Self {
        let (fraction, carry) = self.fraction.overflowing_add(other.fraction);
        let us = self.us.saturating_add(other.us);
        Self {
            us: us.saturating_add(carry.into()),
            fraction,
        }
    }

    /// The difference, at least zero.
    #[inline]
    pub(crate) fn saturating_sub(self, other: Self) -> Self {
        let (fraction, borrow) = self.fraction.overflowing_sub(other.fraction);
        let us = self.us.checked_sub(other.us);
        match us.and_then(|us| us.checked_sub(borrow.into())) {
            Some(us) => Self { us, fraction },
            None => Self::ZERO,
        }
    }

    /// Rounded up to whole microseconds.
    #[inline]
    pub(crate) fn ceil(self) -> Micros {
        Micros::new(self.us.saturating_add(u64::from(self.fraction > 0)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fixed() -> impl Strategy<Value = FixedMicros> {
        let us = prop_oneof![0..9_u64, 0..10_000_000_000_u64, 0..1_u64 << 62];
        let fraction = prop_oneof![Just(0), any::<u32>()];
        (us, fraction).prop_map(|(us, fraction)| FixedMicros { us, fraction })
    }

    proptest! {
        #[test]
        fn a_rate_is_never_too_low_and_hardly_too_high(
            period_us in prop_oneof![1_000..=1_000_000_u64, 1_000_000..=366 * 86_400_000_000_u64],
            // Permits take the longer the fewer there are, and then the fraction matters less.
            fewer in prop_oneof![Just(1_u64), 1..3_u64, 1..10_000_000_u64],
            less in 0..1_000_u64,
        ) {
            let permits = (period_us * 10 / fewer).saturating_sub(less).max(1);
            let interval = FixedMicros::interval(permits, Micros::new(period_us));
            let given = interval.parts() * u128::from(permits);
            let period = u128::from(period_us) << 32;
            prop_assert!(given <= period);
            prop_assert!((period - given) * 10_000_000_000 < 24 * period);
        }

        #[test]
        fn it_calculates_like_a_number_of_parts(
            one in fixed(),
            other in fixed(),
            times in prop_oneof![Just(1_u64), 0..1_000_u64, Just(999_999_999_999_999)],
        ) {
            let parts = |parts: u128| FixedMicros::of_parts(parts);
            prop_assert_eq!(one.saturating_add(other), parts(one.parts() + other.parts()));
            prop_assert_eq!(
                one.saturating_sub(other),
                parts(one.parts().saturating_sub(other.parts()))
            );
            if other > FixedMicros::ZERO {
                let often = one.parts() / other.parts();
                prop_assert_eq!(one.divided_by(other), u64::try_from(often).unwrap_or(u64::MAX));
            }
            let product = one.parts().saturating_mul(times.into());
            if one.fraction > 0 || product >> 32 < u128::from(u64::MAX) {
                prop_assert_eq!(one.times(times), parts(product));
            }
        }
    }

    #[test]
    fn no_number_of_permits_takes_no_time() {
        let interval = FixedMicros::interval(999_999_999_999_999, Micros::new(1_000));
        assert!(interval > FixedMicros::ZERO);
        assert_eq!(
            interval.times(999_999_999_999_999).divided_by(interval),
            999_999_999_999_999
        );
    }
}
