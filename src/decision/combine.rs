//! Several decisions: those on the rates of a limit combined into one, and which of those on a
//! request is the closest to exhaustion.

use std::cmp::{Ordering, Reverse};

use super::{Decision, Outcome};
use crate::time::Micros;

impl Decision {
    /// The decision on a limit of two rates: `self` on the first, `other` on the other.
    ///
    /// It denies if one of them does, for as long as any of them does. Its limit and window are
    /// those of the rate that it is about: the one that denies for longest, or else the one that
    /// leaves the fewest permits now, so that what is said to remain can be taken.
    pub(crate) fn and_under(self, other: &Self) -> Self {
        let (about, beside) = match self.weight().cmp(&other.weight()) {
            Ordering::Less => (*other, self),
            Ordering::Equal | Ordering::Greater => (self, *other),
        };
        let mut all = about;
        if about.is_evaluated() && beside.is_evaluated() {
            all.remaining = about.remaining.min(beside.remaining);
            // There are more permits once each rate that has none left has more.
            if beside.remaining == 0 {
                all.renews_after = beside.renews_after.max(about.next_after());
                all.renews_whole &= about.remaining == 0 && beside.renews_whole;
            }
            all.reset_after = about.reset_after.max(beside.reset_after);
            all.is_near_limit =
                all.outcome == Outcome::Allowed && (about.is_near_limit || beside.is_near_limit);
        }
        // The wait lasts until the request fits under both.
        all.delay = about.delay.max(beside.delay);
        // All rates grant the same; a rate that is not known grants nothing.
        all.granted = self.granted.max(other.granted);
        all.receipt = self.receipt;
        all.decided_locally = self.decided_locally.or(other.decided_locally);
        all.is_remembered = self.is_remembered || other.is_remembered;
        all
    }

    /// How much it outweighs another decision of the same limit. The longer wait counts first; no
    /// wait is less than any. Then a decision that is not known: what is not known of one rate is
    /// not known of all. Then fewer permits remaining, and then the later reset.
    fn weight(&self) -> impl Ord {
        let wait = (!self.is_allowed()).then_some(self.wait());
        let is_unknown = !self.is_evaluated();
        let used_up = u64::MAX - self.remaining;
        (wait, is_unknown, used_up, self.reset_after)
    }

    /// How long a denial lasts. One that never fits outlasts every wait.
    pub(super) fn wait(&self) -> Micros {
        match self.outcome {
            Outcome::NeverFits => Micros::new(u64::MAX),
            _ => self.retry_after,
        }
    }
}

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
    use crate::error::StoreErrorKind;
    use crate::time::Micros;

    fn decision(outcome: Outcome, limit: u64, remaining: u64, wait: u64) -> Decision {
        Decision {
            remaining,
            retry_after: Micros::new(wait),
            renews_after: Micros::new(wait.max(1)),
            reset_after: Micros::new(limit),
            ..Decision::unasked(outcome, (limit, Micros::new(1_000)))
        }
    }

    fn both_ways(one: Decision, other: Decision) -> [Decision; 2] {
        [one.and_under(&other), other.and_under(&one)]
    }

    #[test]
    fn the_decision_is_about_the_rate_that_leaves_the_fewest_permits() {
        let second = decision(Outcome::Allowed, 10, 7, 0);
        let hour = decision(Outcome::Allowed, 1_000, 400, 0);
        for both in both_ways(second, hour) {
            assert_eq!((both.limit, both.remaining), (10, 7));
            assert_eq!(both.reset_after, Micros::new(1_000), "the hour's");
            assert_eq!(both.outcome, Outcome::Allowed);
        }
        let hour = decision(Outcome::Allowed, 1_000, 5, 0);
        for both in both_ways(second, hour) {
            assert_eq!((both.limit, both.remaining), (1_000, 5));
        }
    }

    #[test]
    fn the_decision_denies_for_as_long_as_any_rate_does() {
        let allowed = decision(Outcome::Allowed, 10, 7, 0);
        let brief = decision(Outcome::Denied, 100, 0, 9);
        let long = decision(Outcome::Denied, 1_000, 2, 70);
        let never = decision(Outcome::NeverFits, 5, 5, 0);
        for both in both_ways(allowed, brief) {
            assert_eq!((both.outcome, both.limit), (Outcome::Denied, 100));
        }
        for both in both_ways(brief, long) {
            assert_eq!((both.limit, both.remaining), (1_000, 0));
            assert_eq!(both.retry_after, Micros::new(70));
            assert_eq!(both.renews_after, Micros::new(9), "then there is one");
        }
        for both in both_ways(long, never) {
            assert_eq!((both.outcome, both.limit), (Outcome::NeverFits, 5));
            assert_eq!(both.retry_after(), None);
        }
    }

    #[test]
    fn a_limit_is_not_asked_if_one_of_its_rates_is_not() {
        let allowed = decision(Outcome::Allowed, 10, 7, 0);
        let denied = decision(Outcome::Denied, 10, 3, 9);
        let not_asked = decision(Outcome::NotAsked, 1_000, 0, 0);
        for both in both_ways(allowed, not_asked) {
            assert_eq!(both.outcome, Outcome::NotAsked);
        }
        for both in both_ways(denied, not_asked) {
            assert_eq!((both.outcome, both.remaining), (Outcome::Denied, 3));
        }
        let failed = Outcome::FailedOpen(StoreErrorKind::CorruptValue);
        for both in both_ways(allowed, decision(failed, 1_000, 0, 0)) {
            assert_eq!(both.outcome, failed);
        }
    }

    fn request_decision(outcome: Outcome, remaining: u64, wait: u64, reset: u64) -> Decision {
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
            request_decision(Outcome::NeverFits, 100, 0, 0),
            request_decision(Outcome::Banned, 0, 70, 70),
            request_decision(Outcome::Denied, 30, 9, 10),
            request_decision(Outcome::Denied, 31, 9, 20),
            request_decision(Outcome::Allowed, 0, 0, 5),
            request_decision(Outcome::Allowed, 3, 0, 900),
            request_decision(Outcome::Allowed, 3, 0, 40),
            request_decision(Outcome::Allowed, 4, 0, 1_000),
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
            ..request_decision(Outcome::Allowed, remaining, 0, 0)
        };
        let [burst, window] = [of(100, 13), of(10, 3)];
        assert!(window.tightest_first() < burst.tightest_first());
        let [bucket, window] = [of(10, 9), of(1_000, 500)];
        assert!(bucket.tightest_first() < window.tightest_first());
    }
}
