//! `Decision`: the answer to one check.

use std::time::Duration;

use crate::error::StoreErrorKind;
use crate::time::Micros;

mod combine;
mod decisions;

pub use self::decisions::{Decisions, Verdict};

/// The answer to one check: whether the request may pass, and what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it may be denied, or not have been carried out"]
pub struct Decision {
    pub(crate) outcome: Outcome,
    /// Whether it was allowed with at most a tenth of the limit, burst or capacity left.
    pub(crate) is_near_limit: bool,
    pub(crate) limit: u64,
    pub(crate) window: Micros,
    pub(crate) remaining: u64,
    /// How many permits were taken, if [fewer](crate::store::Acquire::takes_fewer) would have done;
    /// zero of any other.
    pub(crate) granted: u64,
    pub(crate) retry_after: Micros,
    /// How long the request is delayed, or would have been.
    pub(crate) delay: Micros,
    pub(crate) reset_after: Micros,
    /// How long until there is a permit again, if none is left; of a fixed window, whether or not
    /// any is left, how long until it ends.
    pub(crate) renews_after: Micros,
    /// Whether all permits are back then, as with a fixed window, not just one more.
    pub(crate) renews_whole: bool,
    /// How long the subject is banned; zero if it is not.
    pub(crate) ban: Micros,
    pub(crate) receipt: Receipt,
    /// Why the store did not decide, if the local share did.
    pub(crate) decided_locally: Option<StoreErrorKind>,
    /// Whether it was decided from memory.
    pub(crate) is_remembered: bool,
    /// Whether its permits were taken in advance.
    pub(crate) is_prefetched: bool,
}

/// Identifies permits that were taken, to give them back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// When they were taken, on the store's clock; zero if it is not told.
    pub(crate) at: Micros,
    /// For an algorithm that supports waiting: the state after they were taken, which shows whether
    /// anybody has taken permits since. For a fixed window: its end.
    pub(crate) mark: [u64; 2],
    pub(crate) taken_of: Origin,
}

/// Where the permits were taken.
// A word wide, where there would be padding: what wraps a decision (`Option`, `Result`, `Poll`) tells
// itself by a value that is none of these. By one of a single byte, it would be copied in pieces that
// are not those in which it was written, and the processor waits whenever they differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Origin {
    /// In the store.
    #[default]
    Store,
    /// In the local share: the store knows nothing of them.
    #[cfg(feature = "memory")]
    LocalShare,
}

impl Receipt {
    /// The instant of the decision, on the store's clock. `None` if nobody is going to give back
    /// what it has taken, as with [`Limiter::check`](crate::Limiter::check): the store is not asked
    /// for it [then](crate::store::Acquire::is_final).
    pub fn taken_at(&self) -> Option<Micros> {
        (!self.at.is_zero()).then_some(self.at)
    }
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It fits.
    Allowed,
    /// It does not fit yet; [`Decision::retry_after`] says when it does.
    Denied,
    /// It costs more than the limit can ever hold, or the limit [admits
    /// nothing](crate::Limit::nothing): waiting does not help.
    NeverFits,
    /// The subject was denied too often and is banned; [`Decision::banned_for`] says how long.
    Banned,
    /// The store was not asked, or could not tell, while another policy was known to deny the same
    /// request. It is not known whether this policy would have denied it, too. Nothing was taken.
    NotAsked,
    /// It would have been denied, or would have had to wait, if the policy were
    /// [enforced](crate::Mode::Enforce).
    ShadowDenied,
    /// No store was asked, and nothing is counted: limiting or the policy is off, or the subject is
    /// on the allow list.
    Unlimited,
    /// The subject is on the deny list.
    Refused,
    /// The store gave no answer and the policy's failure mode lets the request pass uncounted; or
    /// the store could not carry out a check in [shadow](crate::store::Check::is_shadow), which does not
    /// affect the request.
    FailedOpen(StoreErrorKind),
    /// The store gave no answer and the policy's failure mode refuses the request.
    FailedClosed(StoreErrorKind),
}

impl Decision {
    /// Whether the request may pass, as far as this policy is concerned; true also if the policy
    /// was [not asked](Outcome::NotAsked).
    ///
    /// If several policies decide a request and one denies, no permits of the others are taken.
    pub fn is_allowed(&self) -> bool {
        matches!(
            self.outcome,
            Outcome::Allowed
                | Outcome::NotAsked
                | Outcome::ShadowDenied
                | Outcome::Unlimited
                | Outcome::FailedOpen(_)
        )
    }

    /// The outcome, in full.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The permits that the policy gives in each [`window`](Self::window), or at the same time. For
    /// a limit of [several rates](crate::Limit::and), those of one rate: the one that denies for
    /// longest or, if none denies, the one with the fewest permits left.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The time in which [`limit`](Self::limit) permits are given; zero for a
    /// [concurrency](crate::Limit::concurrency) limit and for one that
    /// [admits nothing](crate::Limit::nothing), which have none.
    pub fn window(&self) -> Duration {
        self.window.to_duration()
    }

    /// The permits that could be taken right now, after this decision; 0 if the failure mode
    /// decided, or the store was not asked, and [`limit`](Self::limit) if nothing is counted
    /// ([`Outcome::Unlimited`]).
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long to wait until the same request would be allowed, if nobody else asks. `None` if it
    /// was allowed, if it [never fits](Outcome::NeverFits) and if it is
    /// [refused](Outcome::Refused). For a policy in shadow, which [allows](Self::is_allowed) it,
    /// the wait [that there would be](Outcome::ShadowDenied) if the policy were enforced.
    ///
    /// Exact to the microsecond: earlier it is denied, then it is allowed. Under a
    /// [concurrency](crate::Limit::concurrency) limit, it is the time until enough leases lapse
    /// unless they are renewed: requests that end shorten it, requests that go on prolong it. After
    /// a store failure it is a guess of one second. A [remembered](Self::is_remembered) one is as
    /// exact as [`DenyCache`](crate::store::DenyCache#what-is-exact) describes.
    pub fn retry_after(&self) -> Option<Duration> {
        let helps = match self.outcome {
            Outcome::Denied | Outcome::Banned | Outcome::FailedClosed(_) => true,
            // No wait is known for a cost that would never fit.
            Outcome::ShadowDenied => !self.retry_after.is_zero(),
            _ => false,
        };
        helps.then(|| self.retry_after.to_duration())
    }

    /// How long to wait before going on. For a denial of a caller who was ready to wait, but not
    /// that long: how long the wait would have been. Zero for all others, and if another policy
    /// denies the same request.
    ///
    /// The layer and [`Limiter::acquire`](crate::Limiter::acquire) wait for you. A caller of
    /// [`check`](crate::Limiter::check) on a leaky bucket that is a queue has to wait itself.
    pub fn delay(&self) -> Duration {
        self.delay.to_duration()
    }

    /// How long the subject is banned for too many denials, from now; `None` if it is not. Told
    /// even if the operation only looks and is allowed.
    pub fn banned_for(&self) -> Option<Duration> {
        (!self.ban.is_zero()).then(|| self.ban.to_duration())
    }

    /// Identifies what this decision has taken, to give it back: see
    /// [`Action::Refund`](crate::store::Action::Refund). For a limit of several rates, what it
    /// has taken under the first.
    pub fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// How long until the key is as if it had never been used, if nobody asks; except for the
    /// denials that a [`Penalty`](crate::Penalty) remembers. It may be less if this decision allows
    /// what another policy denies, and the length of the window has just been changed: it is told
    /// as if permits had been taken.
    pub fn reset_after(&self) -> Duration {
        self.reset_after.to_duration()
    }

    /// How long until there is a permit, if nobody asks; zero while there is one. After a
    /// decision that took the last one, and after a denial that left none, a request that costs one
    /// permit is denied earlier, and allowed then: exact to the microsecond, as
    /// [`retry_after`](Self::retry_after).
    ///
    /// Under a [concurrency](crate::Limit::concurrency) limit, it is the time until all leases have
    /// lapsed: a permit is back as soon as a request ends. While the subject is
    /// [banned](Self::banned_for), it is no less than the rest of the ban.
    pub fn next_permit_after(&self) -> Duration {
        self.next_after().to_duration()
    }

    /// Whether the store was not asked because this process remembers a denial that still holds:
    /// see [`DenyCache`](crate::store::DenyCache). Nothing was taken then.
    pub fn is_remembered(&self) -> bool {
        self.is_remembered
    }

    /// Whether its permits come from a batch that this process had taken before, without a round
    /// trip: see [`Prefetch`](crate::Prefetch).
    pub fn is_prefetched(&self) -> bool {
        self.is_prefetched
    }

    /// A decision without asking the store, about a limit of this many permits in this window.
    pub(crate) fn unasked(outcome: Outcome, (limit, window): (u64, Micros)) -> Self {
        Self {
            outcome,
            is_near_limit: false,
            limit,
            window,
            remaining: if outcome == Outcome::Unlimited {
                limit
            } else {
                0
            },
            granted: 0,
            retry_after: Micros::ZERO,
            delay: Micros::ZERO,
            reset_after: Micros::ZERO,
            renews_after: Micros::ZERO,
            renews_whole: false,
            ban: Micros::ZERO,
            receipt: Receipt::default(),
            decided_locally: None,
            is_remembered: false,
            is_prefetched: false,
        }
    }

    /// A decision on permits of [`Limit::nothing`](crate::Limit::nothing).
    pub(crate) fn of_nothing(permits: u64) -> Self {
        let outcome = match permits {
            0 => Outcome::Allowed,
            _ => Outcome::NeverFits,
        };
        Self::unasked(outcome, (0, Micros::ZERO))
    }

    /// The same decision by a policy that only counts: nobody is denied or delayed.
    pub(crate) fn in_shadow(mut self) -> Self {
        self.outcome = match self.outcome {
            Outcome::Denied | Outcome::NeverFits | Outcome::Banned => Outcome::ShadowDenied,
            Outcome::FailedClosed(kind) => Outcome::FailedOpen(kind),
            other => other,
        };
        self.delay = Micros::ZERO;
        self
    }

    /// The same decision by a process that holds this many permits in advance, of a limit that never
    /// gives more than `capacity` at once.
    pub(crate) fn with_held(self, held: u64, capacity: u64) -> Self {
        let remaining = self.remaining.saturating_add(held).min(capacity);
        Self {
            is_near_limit: self.is_near_limit && is_near_limit(remaining, capacity),
            remaining,
            ..self
        }
    }

    /// The same decision, combined with that of the penalty that follows it.
    pub(crate) fn under(mut self, penalty: &Self) -> Self {
        // A ban that is in force, or that this denial has caused.
        let ban = penalty.ban;
        if ban.is_zero() {
            return self;
        }
        let is_denied = !self.is_allowed() || !penalty.is_allowed();
        if is_denied && self.outcome != Outcome::NeverFits {
            self.outcome = Outcome::Banned;
            // The local share bans even for a cost that is beyond it.
            self.decided_locally = penalty.decided_locally;
            self.retry_after = ban.max(self.retry_after);
        }
        self.renews_after = match self.outcome {
            Outcome::Banned => self.retry_after,
            // The limit may be used up for longer than the ban lasts.
            _ => ban.max(self.next_after()),
        };
        self.renews_whole = false;
        self.ban = ban;
        self.delay = Micros::ZERO;
        self.remaining = 0;
        self.reset_after = ban.max(self.reset_after);
        self
    }

    /// How long until there is a permit; zero if there is one.
    pub(crate) fn next_after(&self) -> Micros {
        match self.remaining {
            0 => self.renews_after,
            _ => Micros::ZERO,
        }
    }

    /// Why the store gave no answer, if it gave none.
    pub fn store_failure(&self) -> Option<StoreErrorKind> {
        match self.outcome {
            Outcome::FailedOpen(kind) | Outcome::FailedClosed(kind) => Some(kind),
            _ => self.decided_locally,
        }
    }

    /// Whether this process decided by its own share of the limit, as the store gave no answer: see
    /// `FailureMode::Local`. The limit and the remaining permits are then those of the share.
    pub fn is_local(&self) -> bool {
        self.decided_locally.is_some()
    }

    /// Whether a limit was decided at all, by the store or locally.
    pub(crate) fn is_evaluated(&self) -> bool {
        !matches!(
            self.outcome,
            Outcome::NotAsked | Outcome::FailedOpen(_) | Outcome::FailedClosed(_)
        )
    }
}

/// Relative to the capacity, not the limit: a small burst would always be near the limit.
pub(crate) fn is_near_limit(remaining: u64, capacity: u64) -> bool {
    remaining.saturating_mul(10) <= capacity
}

impl Decision {
    /// Why it denies, for clients.
    pub(crate) fn reason(&self) -> &'static str {
        match self.outcome {
            Outcome::NeverFits if self.limit == 0 => "the quota admits nothing",
            Outcome::NeverFits => "the request costs more than the quota can ever hold",
            Outcome::FailedClosed(_) => "the quota cannot be checked at the moment",
            Outcome::Banned => "the quota was exceeded too often",
            Outcome::Refused => "requests of this client are refused",
            _ if self.counts_in_time() => "the quota is used up",
            _ => "the limit of concurrent requests is reached",
        }
    }

    /// Whether permits come back with time, rather than when their holders end.
    pub(crate) fn counts_in_time(&self) -> bool {
        !self.window.is_zero()
    }
}
