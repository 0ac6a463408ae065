//! A share of a limit: what one process grants by itself while the common store is away.

/// A fraction of every number of permits.
#[derive(Clone, Copy)]
pub(super) struct Share(pub(super) f64);

impl Share {
    /// This share of the permits, rounded down, so that shares that add up to the whole never give
    /// more than it; but at least one.
    pub(super) fn of(self, permits: u32) -> u32 {
        // As a float, 0.29 is slightly less than 0.29, but 29 of 100 are meant. The slack is too
        // small to matter to a share that means less.
        const SLACK: f64 = 1.0 + 4.0 * f64::EPSILON;
        let part = f64::from(permits) * self.0 * SLACK;
        // The cast rounds down, saturates, and turns NaN into 0.
        (part as u32).clamp(1, permits.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_what_it_looks_like_rounded_down_to_one_at_least() {
        for (share, permits, part) in [
            (0.29, 100, 29),
            (0.1, 30, 3),
            (1.0 / 3.0, 3, 1),
            (0.25, 10, 2),
            (0.001, 10, 1),
            (1.0, 1, 1),
            (1.0, u32::MAX, u32::MAX),
            (0.5, u32::MAX, u32::MAX / 2),
        ] {
            assert_eq!(Share(share).of(permits), part, "{share} of {permits}");
        }
    }

    #[test]
    fn shares_that_make_up_the_whole_never_give_more() {
        for processes in 1..=200 {
            let share = 1.0 / f64::from(processes);
            for permits in (processes..2_000).chain([u32::MAX - 1, u32::MAX]) {
                let together = u64::from(processes) * u64::from(Share(share).of(permits));
                assert!(together <= permits.into(), "{processes} of {permits}");
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
