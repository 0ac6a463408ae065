//! Combines the decisions of a limit's rates, and orders the decisions of a request by how close
//! they are to exhaustion.

use std::cmp::{Ordering, Reverse};

use super::{Decision, Outcome};
use crate::time::Micros;

impl Decision {
    /// The decision of a limit with two rates: `self` for the first, `other` for the second.
    ///
    /// It denies if either does, for the longer time. Its limit and window are those of the rate
    /// that denies for longest. If none denies, they are those of the rate with the fewest permits
    /// remaining, so that the remaining permits can really be taken.
    pub(crate) fn and_under(self, other: &Self) -> Self {
        let (about, beside) = match self.weight().cmp(&other.weight()) {
            Ordering::Less => (*other, self),
            Ordering::Equal | Ordering::Greater => (self, *other),
        };
        let mut all = about;
        if about.is_evaluated() && beside.is_evaluated() {
            all.remaining = about.remaining.min(beside.remaining);
            // A permit is available once every exhausted rate has one.
            if beside.remaining == 0 {
                all.renews_after = beside.renews_after.max(about.next_after());
                all.renews_whole &= about.remaining == 0 && beside.renews_whole;
            }
            all.reset_after = about.reset_after.max(beside.reset_after);
            all.is_near_limit =
                all.outcome == Outcome::Allowed && (about.is_near_limit || beside.is_near_limit);
        }
        // The request waits until it fits both rates.
        all.delay = about.delay.max(beside.delay);
        // All rates grant the same; a rate that is not known grants nothing.
        all.granted = self.granted.max(other.granted);
        all.receipt = self.receipt;
        all.decided_locally = self.decided_locally.or(other.decided_locally);
        all.is_remembered = self.is_remembered || other.is_remembered;
        all
    }

    /// The order by which one rate's decision represents the limit: first the longer wait, where no
    /// wait is least; then a decision that is unknown, since an unknown rate makes the whole limit
    /// unknown; then fewer permits remaining; then the later reset.
    fn weight(&self) -> impl Ord {
        let wait = (!self.is_allowed()).then_some(self.wait());
        let is_unknown = !self.is_evaluated();
        let used_up = u64::MAX - self.remaining;
        (wait, is_unknown, used_up, self.reset_after)
    }

    /// How long a denial lasts. A cost that never fits counts as the longest.
    pub(super) fn wait(&self) -> Micros {
        match self.outcome {
            Outcome::NeverFits => Micros::new(u64::MAX),
            _ => self.retry_after,
        }
    }
}

impl Decision {
    /// An order with the closest to exhaustion first: denials by the longest wait, then allowed
    /// decisions by the fewest permits remaining, then by the latest reset. The same rule as
    /// [`and_under`](Self::and_under), for the policies of a request.
    ///
    /// Compares the number of remaining permits, not their share of the limit. A burst or capacity
    /// may be a fraction or a multiple of the limit, so a share would hide an almost empty one.
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
