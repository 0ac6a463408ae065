//! `Demand`: how many permits of a subject were asked for lately.

use crate::time::Micros;

/// Counts permits in periods of a given length.
#[derive(Clone, Copy, Default)]
pub(super) struct Demand {
    since: Micros,
    current: u32,
    before: u32,
}

impl Demand {
    pub(super) fn note(&mut self, permits: u32, now: Micros, period: Micros) {
        let gone = now.saturating_sub(self.since).get();
        if gone >= period.get() {
            // Otherwise there was a period in which nobody asked.
            let is_next = gone < 2 * period.get();
            self.before = if is_next { self.current } else { 0 };
            self.current = 0;
            self.since = now;
        }
        self.current = self.current.saturating_add(permits);
    }

    /// The permits to expect in a period: at least as many as in the last one, and more as soon as
    /// more were asked for.
    pub(super) fn in_a_period(&self) -> u32 {
        self.current.max(self.before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Micros = Micros::new(100);

    #[test]
    fn demand_is_expected_again_until_a_whole_period_passes_without_any() {
        let mut demand = Demand::default();
        for (at, permits, expected) in [
            (1_000, 3, 3),
            (1_050, 4, 7),
            (1_100, 1, 7),
            (1_150, 9, 10),
            (1_200, 3, 10),
            (1_400, 2, 2),
        ] {
            demand.note(permits, Micros::new(at), PERIOD);
            assert_eq!(demand.in_a_period(), expected, "at {at}");
        }
    }
}
