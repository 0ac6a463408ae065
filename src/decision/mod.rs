//! `Decision`: the result of one check.

use std::time::Duration;

use crate::error::StoreErrorKind;
use crate::time::Micros;

mod combine;
mod decisions;

pub use self::decisions::{Decisions, Verdict};

/// The result of one check: whether the request is allowed and what remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "it may be denied, or the store may have failed"]
pub struct Decision {
    pub(crate) outcome: Outcome,
    /// Whether it was allowed with at most a tenth of the limit, burst or capacity remaining.
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
    /// The time until the next permit if none remains. For a fixed window, the time until the
    /// window ends in any case.
    pub(crate) renews_after: Micros,
    /// Whether all permits come back at that time, as with a fixed window, instead of one.
    pub(crate) renews_whole: bool,
    /// The remaining time of the ban; zero without a ban.
    pub(crate) ban: Micros,
    pub(crate) receipt: Receipt,
    /// Why the store failed, if the local share decided instead.
    pub(crate) decided_locally: Option<StoreErrorKind>,
    /// Whether the deny cache decided.
    pub(crate) is_remembered: bool,
    /// Whether its permits were prefetched.
    pub(crate) is_prefetched: bool,
}

/// Identifies charged permits, to refund them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// The time of the charge on the store's clock; zero if the store did not return it.
    pub(crate) at: Micros,
    /// For algorithms that support waiting: the state after the charge, which shows whether permits
    /// were charged since. For a fixed window: its end.
    pub(crate) mark: [u64; 2],
    pub(crate) taken_of: Origin,
}

/// Where the permits were charged.
// As wide as a word, so that there is no padding: `Option`, `Result` and `Poll` encode their
// variants in unused values of this field. With a one-byte field they would be copied in other
// pieces than they were written in, which stalls the processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Origin {
    /// In the store.
    #[default]
    Store,
    /// In the local share, so the store has no record of them.
    #[cfg(feature = "memory")]
    LocalShare,
}

impl Receipt {
    /// The time of the charge on the store's clock. `None` if the call can have no refund, such as
    /// [`Limiter::check`](crate::Limiter::check): the store does not return the time
    /// [then](crate::store::Acquire::is_final).
    pub fn taken_at(&self) -> Option<Micros> {
        (!self.at.is_zero()).then_some(self.at)
    }
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The request is within the limit.
    Allowed,
    /// The request exceeds the limit for now; [`Decision::retry_after`] returns the time to wait.
    Denied,
    /// The request costs more than the limit's capacity, or the limit [admits
    /// nothing](crate::Limit::nothing). Waiting does not help.
    NeverFits,
    /// The key was denied too often and is banned; [`Decision::banned_for`] returns the remaining
    /// time.
    Banned,
    /// The policy was not evaluated, because another policy denies the same request anyway. It is
    /// unknown whether this policy would have denied it. Nothing was charged.
    NotAsked,
    /// The request would have been denied or delayed if the policy were
    /// [enforced](crate::Mode::Enforce).
    ShadowDenied,
    /// Nothing was counted, and the store was not called: limiting is off, the policy is off, or
    /// the client is on the allow list.
    Unlimited,
    /// The client is on the deny list.
    Refused,
    /// The store failed, and the policy's failure mode allows the request without counting it. Or
    /// the store could not perform a check in [shadow mode](crate::store::Check::is_shadow), which
    /// does not affect the request.
    FailedOpen(StoreErrorKind),
    /// The store failed, and the policy's failure mode denies the request.
    FailedClosed(StoreErrorKind),
}

impl Decision {
    /// Whether this policy allows the request. Also true if the policy was [not
    /// evaluated](Outcome::NotAsked).
    ///
    /// If several policies decide a request and one denies it, none of them charges permits.
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

    /// The outcome.
    pub fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// The number of permits in each [`window`](Self::window), or at the same time. For a limit of
    /// [several rates](crate::Limit::and), that of one rate: the one that denies for longest or, if
    /// none denies, the one with the fewest permits remaining.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// The period of [`limit`](Self::limit). Zero for a [concurrency](crate::Limit::concurrency)
    /// limit and for one that [admits nothing](crate::Limit::nothing).
    pub fn window(&self) -> Duration {
        self.window.to_duration()
    }

    /// The permits that remain after this decision. 0 if the failure mode decided or the policy was
    /// not evaluated; [`limit`](Self::limit) if nothing is counted ([`Outcome::Unlimited`]).
    pub fn remaining(&self) -> u64 {
        self.remaining
    }

    /// The time until the same request would be allowed, if no other request arrives. `None` if it
    /// was allowed, [never fits](Outcome::NeverFits) or is on the [deny list](Outcome::Refused). In
    /// shadow mode, which [allows](Self::is_allowed) the request, the wait [if the policy were
    /// enforced](Outcome::ShadowDenied).
    ///
    /// Exact to the microsecond: a request is denied before that time and allowed at it. There are
    /// three exceptions. Under a [concurrency](crate::Limit::concurrency) limit, it is the time
    /// until enough leases would expire; requests that end shorten it, renewals extend it. After a
    /// store failure it is a guess of one second. For a [cached denial](Self::is_remembered), see
    /// [`DenyCache`](crate::store::DenyCache#what-is-exact).
    pub fn retry_after(&self) -> Option<Duration> {
        let helps = match self.outcome {
            Outcome::Denied | Outcome::Banned | Outcome::FailedClosed(_) => true,
            // No wait is known for a cost that would never fit.
            Outcome::ShadowDenied => !self.retry_after.is_zero(),
            _ => false,
        };
        helps.then(|| self.retry_after.to_duration())
    }

    /// How long the request must wait before it goes on. If it is denied because the wait would
    /// exceed the caller's limit, how long the wait would have been. Otherwise zero, also if
    /// another policy denies the same request.
    ///
    /// The layer and [`Limiter::acquire`](crate::Limiter::acquire) wait for you. If you call
    /// [`check`](crate::Limiter::check) on a leaky bucket that delays requests, wait this long
    /// yourself.
    pub fn delay(&self) -> Duration {
        self.delay.to_duration()
    }

    /// The remaining time of the ban; `None` without a ban. Also returned if the call only peeks
    /// and is allowed.
    pub fn banned_for(&self) -> Option<Duration> {
        (!self.ban.is_zero()).then(|| self.ban.to_duration())
    }

    /// Identifies the permits of this decision, to refund them: see
    /// [`Action::Refund`](crate::store::Action::Refund). For a limit of several rates, those of the
    /// first rate.
    pub fn receipt(&self) -> Receipt {
        self.receipt
    }

    /// The time until the key is as if it had never been used, if no other request arrives. Denials
    /// that a [`Penalty`](crate::Penalty) counts are not included. The time may be too short if
    /// this policy allows a request that another one denies and the window's length has just
    /// changed: it is computed as if permits had been charged.
    pub fn reset_after(&self) -> Duration {
        self.reset_after.to_duration()
    }

    /// The time until a permit is available, if no other request arrives; zero while one is. Exact
    /// to the microsecond, like [`retry_after`](Self::retry_after): after a decision that leaves no
    /// permit, a request of cost 1 is denied before that time and allowed at it.
    ///
    /// Under a [concurrency](crate::Limit::concurrency) limit, it is the time until all leases
    /// would expire; a permit is available earlier if a request ends. During a
    /// [ban](Self::banned_for), it is at least the rest of the ban.
    pub fn next_permit_after(&self) -> Duration {
        self.next_after().to_duration()
    }

    /// Whether this process denied the request from a cached denial, without a store call: see
    /// [`DenyCache`](crate::store::DenyCache). Nothing was charged.
    pub fn is_remembered(&self) -> bool {
        self.is_remembered
    }

    /// Whether its permits come from a batch that this process took earlier, without a round trip:
    /// see [`Prefetch`](crate::Prefetch).
    pub fn is_prefetched(&self) -> bool {
        self.is_prefetched
    }

    /// A decision without a store call, for a limit of this many permits in this window.
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

    /// A decision of [`Limit::nothing`](crate::Limit::nothing).
    pub(crate) fn of_nothing(permits: u64) -> Self {
        let outcome = match permits {
            0 => Outcome::Allowed,
            _ => Outcome::NeverFits,
        };
        Self::unasked(outcome, (0, Micros::ZERO))
    }

    /// The same decision in shadow mode: never denied, never delayed.
    pub(crate) fn in_shadow(mut self) -> Self {
        self.outcome = match self.outcome {
            Outcome::Denied | Outcome::NeverFits | Outcome::Banned => Outcome::ShadowDenied,
            Outcome::FailedClosed(kind) => Outcome::FailedOpen(kind),
            other => other,
        };
        self.delay = Micros::ZERO;
        self
    }

    /// The same decision plus the permits that this process has prefetched, up to `capacity`.
    pub(crate) fn with_held(self, held: u64, capacity: u64) -> Self {
        let remaining = self.remaining.saturating_add(held).min(capacity);
        Self {
            is_near_limit: self.is_near_limit && is_near_limit(remaining, capacity),
            remaining,
            ..self
        }
    }

    /// The same decision combined with the decision of the penalty.
    pub(crate) fn under(mut self, penalty: &Self) -> Self {
        // A ban that was in force or that this denial starts.
        let ban = penalty.ban;
        if ban.is_zero() {
            return self;
        }
        let is_denied = !self.is_allowed() || !penalty.is_allowed();
        if is_denied && self.outcome != Outcome::NeverFits {
            self.outcome = Outcome::Banned;
            // The local share bans even if the cost exceeds the share.
            self.decided_locally = penalty.decided_locally;
            self.retry_after = ban.max(self.retry_after);
        }
        self.renews_after = match self.outcome {
            Outcome::Banned => self.retry_after,
            // The limit may be exhausted for longer than the ban lasts.
            _ => ban.max(self.next_after()),
        };
        self.renews_whole = false;
        self.ban = ban;
        self.delay = Micros::ZERO;
        self.remaining = 0;
        self.reset_after = ban.max(self.reset_after);
        self
    }

    /// The time until a permit is available; zero if one is.
    pub(crate) fn next_after(&self) -> Micros {
        match self.remaining {
            0 => self.renews_after,
            _ => Micros::ZERO,
        }
    }

    /// Why the store failed, if it failed.
    pub fn store_failure(&self) -> Option<StoreErrorKind> {
        match self.outcome {
            Outcome::FailedOpen(kind) | Outcome::FailedClosed(kind) => Some(kind),
            _ => self.decided_locally,
        }
    }

    /// Whether this process decided by its local share of the limit, because the store failed: see
    /// `FailureMode::Local`. [`limit`](Self::limit) and [`remaining`](Self::remaining) are then
    /// those of the share.
    pub fn is_local(&self) -> bool {
        self.decided_locally.is_some()
    }

    /// Whether a limit was evaluated, by the store or locally.
    pub(crate) fn is_evaluated(&self) -> bool {
        !matches!(
            self.outcome,
            Outcome::NotAsked | Outcome::FailedOpen(_) | Outcome::FailedClosed(_)
        )
    }
}

/// Relative to the capacity, not to the limit: with a small burst every request would be near the
/// limit.
pub(crate) fn is_near_limit(remaining: u64, capacity: u64) -> bool {
    remaining.saturating_mul(10) <= capacity
}

impl Decision {
    /// The reason of the denial, for clients.
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

    /// Whether permits come back over time, rather than when requests end.
    pub(crate) fn counts_in_time(&self) -> bool {
        !self.window.is_zero()
    }
}
