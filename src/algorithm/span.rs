//! Durations with an exact fraction of a microsecond: `us + part / scale`.

use crate::time::Micros;

/// The exact time in which one permit is given: `numerator / scale` microseconds, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Interval {
    numerator: u64,
    scale: u32,
    /// The same as a duration: most costs are one permit, and this saves a division.
    part: u32,
    us: u64,
}

/// A duration of `us + part / scale` microseconds, `part < scale`; the scale is the interval's.
///
/// The order of the fields makes the derived order that of the durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) us: u64,
    pub(super) part: u32,
}

impl Interval {
    pub(super) fn new(permits: u32, period: Micros) -> Self {
        let divisor = greatest_common_divisor(period.get(), permits.into());
        let (numerator, scale) = (period.get() / divisor, u64::from(permits) / divisor);
        let narrow = |divided| u32::try_from(divided).expect("a divisor of a u32 leaves a u32");
        Self {
            numerator,
            scale: narrow(scale),
            part: narrow(numerator % scale),
            us: numerator / scale,
        }
    }

    #[inline]
    pub(super) fn scale(self) -> u32 {
        self.scale
    }

    /// The time in which this many permits are given. Exact below 2^64 us, which `Limit` ensures.
    #[inline]
    pub(super) fn times(self, permits: u64) -> Span {
        if permits == 1 {
            return Span {
                us: self.us,
                part: self.part,
            };
        }
        match (permits.checked_mul(self.numerator), self.scale) {
            (Some(us), 1) => Span::whole(us),
            (Some(units), scale) => Span {
                us: units / u64::from(scale),
                part: (units % u64::from(scale)) as u32,
            },
            (None, scale) => {
                let units = u128::from(permits) * u128::from(self.numerator);
                Span {
                    us: u64::try_from(units / u128::from(scale)).unwrap_or(u64::MAX),
                    part: (units % u128::from(scale)) as u32,
                }
            }
        }
    }

    /// The whole span in parts of a microsecond; `None` from 2^64 on.
    #[inline]
    pub(super) fn parts(self, span: Span) -> Option<u64> {
        let of_us = span.us.checked_mul(self.scale.into())?;
        of_us.checked_add(span.part.into())
    }

    /// How many whole permits are given in this time.
    #[inline]
    pub(super) fn fit_into(self, span: Span) -> u32 {
        let permits = match self.parts(span) {
            Some(parts) => parts / self.numerator,
            None => {
                let units = u128::from(span.us) * u128::from(self.scale) + u128::from(span.part);
                u64::try_from(units / u128::from(self.numerator)).unwrap_or(u64::MAX)
            }
        };
        u32::try_from(permits).unwrap_or(u32::MAX)
    }

    #[inline]
    pub(super) fn sum(self, a: Span, b: Span) -> Span {
        // Most rates need no fraction and so no carry.
        if self.scale == 1 {
            return Span::whole(a.us.saturating_add(b.us));
        }
        let part = u64::from(a.part) + u64::from(b.part);
        let carry = u64::from(part >= u64::from(self.scale));
        Span {
            us: a.us.saturating_add(b.us).saturating_add(carry),
            part: (part - carry * u64::from(self.scale)) as u32,
        }
    }

    /// `a - b`, at least zero.
    #[inline]
    pub(super) fn difference(self, a: Span, b: Span) -> Span {
        if self.scale == 1 {
            return Span::whole(a.us.saturating_sub(b.us));
        }
        if a <= b {
            return Span::ZERO;
        }
        let borrow = u32::from(a.part < b.part);
        Span {
            us: a.us - b.us - u64::from(borrow),
            // In 64 bits: the part and a whole scale together may exceed a u32.
            part: (u64::from(a.part) + u64::from(borrow) * u64::from(self.scale)
                - u64::from(b.part)) as u32,
        }
    }
}

impl Span {
    pub(super) const ZERO: Self = Self::whole(0);

    pub(super) const fn whole(us: u64) -> Self {
        Self { us, part: 0 }
    }

    /// Rounded up to whole microseconds.
    #[inline]
    pub(super) fn ceil(self) -> Micros {
        Micros::new(self.us.saturating_add(u64::from(self.part > 0)))
    }
}

fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
