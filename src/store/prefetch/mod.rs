//! Quota leases: the permits of a subject that is asked for often are taken in batches and handed
//! out from memory. A `Store` around a store that takes round trips.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::runtime::Handle;

use self::account::{Account, Spent};
use self::pool::{Change, Shared, is_change};
use super::{Answer, Check, GivenBack, QuotaLease, Recovered, Store, UnderWay};
use crate::algorithm::{Action, Patience};
use crate::decision::{Decision, Decisions};
use crate::time::{Clock, SinceStart};

mod account;
mod planner;
mod pool;
mod refill;
mod table;

/// Answers from batches where they suffice, and hands everything else on.
pub(crate) struct Leased<S: Store>(Arc<Shared<S>>);

impl<S: Store> Leased<S> {
    /// Puts quota leases around a store. A batch that takes longer than `deadline` is abandoned.
    pub(crate) fn new(inner: S, deadline: Duration, under_way: UnderWay) -> Self {
        Self::with_clock(inner, deadline, under_way, SinceStart::new())
    }

    fn with_clock(inner: S, deadline: Duration, under_way: UnderWay, clock: impl Clock) -> Self {
        Self(Shared::new(inner, deadline, under_way, clock))
    }

    /// Gives back all permits held in advance, and those in flight when they arrive. Later requests
    /// may take new batches.
    pub(crate) fn give_back_all(&self) {
        self.0.give_back_held();
    }

    // Out of line: policies without leases never need it.
    #[inline(never)]
    fn ask_leased(&self, checks: &[Check<'_>]) -> Answer {
        match checks {
            [check] if is_for_batch(check) => match check.policy.quota_lease() {
                Some(lease) => self.take(check, lease),
                None => self.0.inner.ask(checks),
            },
            checks => self.hand_on(checks),
        }
    }

    fn take(&self, check: &Check<'_>, lease: QuotaLease) -> Answer {
        let shared = &self.0;
        let (key, now) = (check.policy_fingerprint(), shared.clock.now());
        let open = |is_changing| Account::open(key, check, lease, is_changing);
        let spend = |account: &mut Account| account.spend(check, lease, now, shared.patience);
        let Some(Spent {
            decision,
            held,
            refill,
            returned,
        }) = shared.table.find_or_open(key, open, spend)
        else {
            return shared.inner.ask(&[*check]);
        };
        let (answer, takes_trips) = match decision {
            Some(decision) => (Answer::Ready(Ok(decision.into())), true),
            None => {
                let answer = shared.inner.ask(&[*check]);
                let takes_trips = matches!(answer, Answer::Pending(_));
                (with_held(answer, held, check), takes_trips)
            }
        };
        if !returned.is_empty() {
            shared.give_back(returned);
        }
        match refill {
            Some(refill) if takes_trips => Shared::refill(shared, check, refill),
            // The store answered at once: it either needs no batches, or is known to deny the
            // subject. Each batch taken and given back would lose its permits if somebody else
            // takes some in between.
            Some(refill) => shared.missed(key, &refill),
            None => {}
        }
        answer
    }

    fn hand_on(&self, checks: &[Check<'_>]) -> Answer {
        let shared = &self.0;
        let mut returned = Vec::new();
        let begin = |check| Change::begin(shared, check, &mut returned);
        let changes: SmallVec<[Change<S>; 1]> = checks.iter().filter_map(begin).collect();
        let checks: SmallVec<[Check<'_>; 4]> = checks.iter().map(without_refund).collect();
        let answer = if returned.is_empty() {
            shared.inner.ask(&checks)
        } else {
            Answer::Pending(Shared::ask_after(shared, returned, &checks))
        };
        match (answer, &checks[..]) {
            (Answer::Pending(answer), _) if !changes.is_empty() => {
                Answer::Pending(Box::pin(async move {
                    let answer = answer.await;
                    drop(changes);
                    answer
                }))
            }
            (answer, [check]) if leaves_what_is_held(check) => {
                let now = shared.clock.now();
                let held = shared.table.find(check.policy_fingerprint(), |account| {
                    account.look(check, now)
                });
                with_held(answer, held.unwrap_or(0), check)
            }
            (answer, _) => answer,
        }
    }
}

impl<S: Store> Store for Leased<S> {
    #[inline]
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        if checks
            .iter()
            .any(|check| has_quota_lease(check) || is_change(check))
        {
            return self.ask_leased(checks);
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
fn has_quota_lease(check: &Check<'_>) -> bool {
    check.policy.quota_lease().is_some()
}

/// Whether a batch may answer this check, if it is the only one of its question.
fn is_for_batch(check: &Check<'_>) -> bool {
    let Action::Take(take) = check.action else {
        return false;
    };
    take.cost > 0
        && take.patience == Patience::None
        && !check.is_shadow
        && check.algorithm.can_be_late()
}

/// The same check, without a refund of what was taken under a quota lease. `Batch::give_back` has
/// the reason.
fn without_refund<'a>(check: &Check<'a>) -> Check<'a> {
    let action = match check.action {
        Action::Refund { permits, receipt } | Action::Withdraw { permits, receipt }
            if has_quota_lease(check) =>
        {
            Action::Cancel { permits, receipt }
        }
        action => action,
    };
    Check { action, ..*check }
}

/// Whether the check, a look or a charge, changes nothing of what is held here.
fn leaves_what_is_held(check: &Check<'_>) -> bool {
    match check.action {
        Action::Take(take) => take.cost == 0,
        Action::Charge(_) => true,
        _ => false,
    }
}

/// The same answer, with the permits held here among what remains.
fn with_held(answer: Answer, held: u32, check: &Check<'_>) -> Answer {
    if held == 0 {
        return answer;
    }
    let capacity = check.algorithm.capacity();
    let tell = move |decisions: Decisions| -> Decisions {
        let tell = |decision: &Decision| decision.with_held(held, capacity);
        decisions.iter().map(tell).collect()
    };
    match answer {
        Answer::Ready(answer) => Answer::Ready(answer.map(tell)),
        Answer::Pending(answer) => Answer::Pending(Box::pin(async move { answer.await.map(tell) })),
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;
