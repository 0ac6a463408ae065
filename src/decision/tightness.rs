//! Which of several decisions is the closest to exhaustion.

use std::cmp::Reverse;

use super::Decision;

impl Decision {
    /// An order with the closest to exhaustion first: denials first, the longest wait before all
    /// others; then by the fewest permits remaining, and then the last to be reset. The rule of
    /// [`and_under`](Self::and_under), for the policies of a request.
    ///
    /// The number remaining counts, not its share of the limit, which is what a window gives. A
    /// burst or a capacity may be a fraction or a multiple of that, and an almost empty one would
    /// be passed over.
    pub(crate) fn tightest_first(&self) -> impl Ord + use<> {
        let wait = (!self.is_allowed()).then_some(self.wait());
        (Reverse(wait), self.remaining, Reverse(self.reset_after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Outcome;
    use crate::time::Micros;

    fn decision(outcome: Outcome, remaining: u64, wait: u64, reset: u64) -> Decision {
        Decision {
            remaining,
            retry_after: Micros::new(wait),
            reset_after: Micros::new(reset),
            ..Decision::unasked(outcome, (100, Micros::new(1_000)))
        }
    }

    #[test]
    fn denials_are_tightest_then_fewest_permits_then_the_latest_reset() {
        let in_order = [
            decision(Outcome::NeverFits, 100, 0, 0),
            decision(Outcome::Banned, 0, 70, 70),
            decision(Outcome::Denied, 30, 9, 10),
            decision(Outcome::Denied, 31, 9, 20),
            decision(Outcome::Allowed, 0, 0, 5),
            decision(Outcome::Allowed, 3, 0, 900),
            decision(Outcome::Allowed, 3, 0, 40),
            decision(Outcome::Allowed, 4, 0, 1_000),
        ];
        for pair in in_order.windows(2) {
            assert!(
                pair[0].tightest_first() < pair[1].tightest_first(),
                "{pair:?}"
            );
        }
    }

    #[test]
    fn the_smaller_number_left_is_tighter_whatever_share_of_the_limit_it_is() {
        let of = |limit, remaining| Decision {
            limit,
            ..decision(Outcome::Allowed, remaining, 0, 0)
        };
        let [burst, window] = [of(100, 13), of(10, 3)];
        assert!(window.tightest_first() < burst.tightest_first());
        let [bucket, window] = [of(10, 9), of(1_000, 500)];
        assert!(bucket.tightest_first() < window.tightest_first());
    }
}
