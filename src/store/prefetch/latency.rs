//! `Latency`: how long round trips for batches have taken lately.

use crate::time::Micros;

/// Not the lease's horizon: where permits may be held for less time than a trip takes, each batch
/// would be forgotten before the next one.
const HALF_LIFE: Micros = Micros::new(100_000);

#[derive(Clone, Copy, Default)]
pub(super) struct Latency {
    longest: Micros,
    at: Micros,
}

impl Latency {
    pub(super) fn note(&mut self, trip: Micros, now: Micros) {
        let longest = trip.max(self.expected(now));
        *self = Self { longest, at: now };
    }

    /// The longest of them, halved after each half-life. So a single slow trip is not expected for
    /// ever, even if it keeps batches from being asked for.
    pub(super) fn expected(&self, now: Micros) -> Micros {
        let halvings = half_lives(self.at, now, HALF_LIFE);
        Micros::new(self.longest.get().checked_shr(halvings).unwrap_or(0))
    }
}

/// How many half-lives have passed since then.
pub(super) fn half_lives(since: Micros, now: Micros, half_life: Micros) -> u32 {
    let gone = now.saturating_sub(since).get() / half_life.get().max(1);
    u32::try_from(gone).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_trip_is_expected_and_half_of_it_after_each_half_life() {
        let mut latency = Latency::default();
        for (at, trip, expected) in [
            (1_000_000, 8, 8),
            (1_050_000, 2, 8),
            (1_150_000, 2, 4),
            (1_199_000, 9, 9),
            (1_499_000, 0, 1),
            (9_999_000, 0, 0),
        ] {
            let now = Micros::new(at);
            latency.note(Micros::new(trip), now);
            let longest = latency.expected(now);
            assert_eq!(longest, Micros::new(expected), "at {at}");
        }
    }
}
