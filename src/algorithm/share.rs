//! A share of a limit: what one process grants by itself while the common store is away.

/// A fraction of every number of permits.
#[derive(Clone, Copy)]
pub(super) struct Share(pub(super) f64);

impl Share {
    /// This share of the permits, rounded down, so that shares that add up to the whole never give
    /// more than it; but at least one.
    pub(super) fn of(self, permits: u64) -> u64 {
        // In whole numbers: the product has more digits than a float.
        const ONE: u128 = 1 << 72;
        // The cast rounds down, saturates, and turns NaN into 0.
        let share = ((self.0 * ONE as f64) as u128).min(ONE);
        // As a float, 0.29 is slightly less than 0.29, but 29 of 100 are meant. The slack is too
        // small to matter to a share that means less.
        let meant = share + (share >> 52);
        let part = u128::from(permits) * meant / ONE;
        (part as u64).clamp(1, permits.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::MOST_PERMITS;

    #[test]
    fn a_share_is_what_it_looks_like_rounded_down_to_one_at_least() {
        for (share, permits, part) in [
            (0.29, 100, 29),
            (0.1, 30, 3),
            (1.0 / 3.0, 3, 1),
            (0.25, 10, 2),
            (0.001, 10, 1),
            (1.0, 1, 1),
            (1.0, MOST_PERMITS, MOST_PERMITS),
            (0.5, MOST_PERMITS, MOST_PERMITS / 2),
            (0.29, 10_u64.pow(14), 29 * 10_u64.pow(12)),
        ] {
            assert_eq!(Share(share).of(permits), part, "{share} of {permits}");
        }
    }

    #[test]
    fn shares_that_make_up_the_whole_never_give_more() {
        for processes in 1..=200_u64 {
            let share = 1.0 / processes as f64;
            for permits in (processes..2_000).chain(MOST_PERMITS - 200..=MOST_PERMITS) {
                let together = processes * Share(share).of(permits);
                assert!(together <= permits, "{processes} of {permits}");
            }
        }
    }

    #[test]
    fn a_share_out_of_range_gives_between_one_and_all() {
        for share in [f64::NAN, -1.0, 0.0, 2.0, f64::INFINITY] {
            let part = Share(share).of(10);
            assert!((1..=10).contains(&part), "{share} gave {part}");
        }
    }
}
