//! Prefetch: a `Store` around a store with round trips that takes permits of busy subjects in batches
//! and hands them out from memory.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use self::account::Acquired;
use self::pool::{Pool, ResetGuard, is_reset};
use super::{Answer, Check, GivenBack, Prefetch, Recovered, Store};
use crate::algorithm::{Action, Wait};
use crate::decision::Decisions;
use crate::task::InFlightWork;
use crate::time::{Clock, SinceStart};

mod account;
mod planner;
mod pool;
mod refill;
mod table;

/// Answers from batches where they suffice, and from the inner store otherwise.
pub(crate) struct Prefetching<S: Store>(Arc<Pool<S>>);

impl<S: Store> Prefetching<S> {
    /// Prefetches from a store. A batch that takes longer than `deadline` is abandoned.
    pub(crate) fn new(inner: S, deadline: Duration, in_flight: InFlightWork) -> Self {
        Self::with_clock(inner, deadline, in_flight, SinceStart::new())
    }

    fn with_clock(
        inner: S,
        deadline: Duration,
        in_flight: InFlightWork,
        clock: impl Clock,
    ) -> Self {
        Self(Pool::new(inner, deadline, in_flight, clock))
    }

    /// Gives back all permits held in advance, and those in flight when they arrive. Later requests
    /// may take new batches.
    pub(crate) fn give_back_all(&self) {
        self.0.give_back_held();
    }

    // Out of line: policies without prefetch never need it.
    #[inline(never)]
    fn ask_prefetching(&self, checks: &[Check<'_>]) -> Answer {
        if let [check] = checks
            && let Some(prefetch) = check.policy.prefetch()
            && is_for_batch(check)
        {
            return self.acquire(check, prefetch);
        }
        self.forward(checks)
    }

    fn acquire(&self, check: &Check<'_>, prefetch: Prefetch) -> Answer {
        let pool = &self.0;
        let (key, now) = (check.policy_fingerprint(), pool.clock.now());
        let mut entry = pool.table.entry(key);
        let refill_until = (!entry.is_being_reset()).then(|| now.saturating_add(pool.patience));
        let acquired = entry
            .account_or_open(check, prefetch)
            .map(|account| account.acquire(check, prefetch, now, refill_until));
        drop(entry);
        let Some(Acquired {
            decision,
            held,
            refill,
            refunds,
        }) = acquired
        else {
            return pool.inner.ask(&[*check]);
        };
        let (answer, takes_trips) = match decision {
            Some(decision) => (Answer::Ready(Ok(decision.into())), true),
            None => {
                let answer = pool.inner.ask(&[*check]);
                let takes_trips = matches!(answer, Answer::Pending(_));
                (with_held(answer, held, check), takes_trips)
            }
        };
        if !refunds.is_empty() {
            pool.give_back(refunds);
        }
        match refill {
            Some(refill) if takes_trips => Pool::refill(pool, check, refill),
            // The store answered at once: either it needs no batches, or the denial was
            // remembered. A batch that is taken and given back may lose permits if others
            // acquire some in between.
            Some(refill) => pool.missed(key, &refill),
            None => {}
        }
        answer
    }

    fn forward(&self, checks: &[Check<'_>]) -> Answer {
        let pool = &self.0;
        let mut refunds = Vec::new();
        let resets: SmallVec<[ResetGuard<S>; 1]> = checks
            .iter()
            .filter_map(|check| ResetGuard::begin(pool, check, &mut refunds))
            .collect();
        let checks: SmallVec<[Check<'_>; 4]> = checks.iter().map(without_refund).collect();
        let answer = if refunds.is_empty() {
            pool.inner.ask(&checks)
        } else {
            Answer::Pending(Pool::ask_after(pool, refunds, &checks))
        };
        match (answer, &checks[..]) {
            (Answer::Pending(answer), _) if !resets.is_empty() => {
                Answer::Pending(Box::pin(async move {
                    let answer = answer.await;
                    drop(resets);
                    answer
                }))
            }
            (answer, [check]) if leaves_what_is_held(check) => {
                let now = pool.clock.now();
                let mut entry = pool.table.entry(check.policy_fingerprint());
                let held = entry
                    .account()
                    .map_or(0, |account| account.look(check, now));
                with_held(answer, held, check)
            }
            (answer, _) => answer,
        }
    }
}

impl<S: Store> Store for Prefetching<S> {
    #[inline]
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        if checks
            .iter()
            .any(|check| has_prefetch(check) || is_reset(check))
        {
            return self.ask_prefetching(checks);
        }
        self.0.inner.ask(checks)
    }

    fn recovered(&self, within: Duration) -> Option<Recovered> {
        self.0.inner.recovered(within)
    }

    fn remembered(&self, checks: &[Check<'_>]) -> Option<Decisions> {
        self.0.inner.remembered(checks)
    }

    fn given_back(&self) -> Option<GivenBack> {
        self.0.inner.given_back()
    }

    fn fails_in_parts(&self) -> bool {
        self.0.inner.fails_in_parts()
    }

    fn name(&self) -> String {
        self.0.inner.name()
    }

    fn runtime(&self) -> Option<Handle> {
        self.0.inner.runtime()
    }
}

#[inline]
fn has_prefetch(check: &Check<'_>) -> bool {
    check.policy.prefetch().is_some()
}

/// Whether a batch may answer this check, if it is the only one of its question.
fn is_for_batch(check: &Check<'_>) -> bool {
    let Action::Acquire(acquire) = check.action else {
        return false;
    };
    acquire.cost > 0
        && acquire.wait == Wait::None
        && !acquire.takes_fewer
        && !check.is_shadow
        && check.algorithm.can_be_late()
}

/// The same check, without a refund of permits of a policy with prefetch.
/// `PrefetchedPermits::give_back` has the reason.
fn without_refund<'a>(check: &Check<'a>) -> Check<'a> {
    let action = match check.action {
        Action::Refund { permits, receipt } | Action::Withdraw { permits, receipt }
            if has_prefetch(check) =>
        {
            Action::Cancel { permits, receipt }
        }
        action => action,
    };
    Check { action, ..*check }
}

/// Whether the check is a look or a charge, which does not change the permits held here.
fn leaves_what_is_held(check: &Check<'_>) -> bool {
    match check.action {
        Action::Acquire(acquire) => acquire.cost == 0,
        Action::Charge(_) => true,
        _ => false,
    }
}

/// The same answer, with the permits held here among what remains.
fn with_held(answer: Answer, held: u64, check: &Check<'_>) -> Answer {
    if held == 0 {
        return answer;
    }
    let capacity = check.algorithm.capacity();
    let add_held = move |decisions: Decisions| -> Decisions {
        let each = decisions.iter();
        each.map(|decision| decision.with_held(held, capacity))
            .collect()
    };
    match answer {
        Answer::Ready(answer) => Answer::Ready(answer.map(add_held)),
        Answer::Pending(answer) => {
            Answer::Pending(Box::pin(async move { answer.await.map(add_held) }))
        }
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;
