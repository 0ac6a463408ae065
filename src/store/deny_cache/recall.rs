//! Which questions remembered denials answer.

use std::ops::Range;

use smallvec::SmallVec;

use super::table::{Denials, Moment, Recalled};
use super::ticket::CacheTicket;
use crate::algorithm::{Action, Reading};
use crate::decision::{Decision, Decisions};
use crate::sharded::ShardedArc;
use crate::store::check::{OwnedCheck, of_each};
use crate::store::{Answer, Check, Store};

impl Denials {
    /// Answers from memory, or asks the store and remembers its denials.
    pub(in crate::store) fn ask(
        this: &ShardedArc<Self>,
        checks: &[Check<'_>],
        store: &impl Store,
    ) -> Answer {
        Self::recall_or(this, checks, |asked| {
            let Some(asked) = asked else {
                return store.ask(checks);
            };
            match store.ask(checks) {
                Answer::Ready(answer) => {
                    asked.answered(&of_each(checks, OwnedCheck::of), &answer);
                    Answer::Ready(answer)
                }
                Answer::Pending(answer) => {
                    let checks = of_each(checks, OwnedCheck::of);
                    Answer::Pending(Box::pin(async move {
                        let answer = answer.await;
                        asked.answered(&checks, &answer);
                        answer
                    }))
                }
            }
        })
    }

    /// The answer from memory, or else that of `ask`. `ask` gets the ticket to report the store's
    /// answer with, if that may be remembered or changes a key.
    #[inline]
    pub(in crate::store) fn recall_or(
        this: &ShardedArc<Self>,
        checks: &[Check<'_>],
        ask: impl FnOnce(Option<CacheTicket>) -> Answer,
    ) -> Answer {
        // A question may have hundreds of leases, and nothing about leases is remembered.
        let is_for_lease = |action| matches!(action, Action::Renew(_) | Action::Release(_));
        if checks.iter().all(|check| is_for_lease(check.action)) {
            return ask(None);
        }
        let at = Moment {
            now: this.now(),
            may_ask: true,
        };
        match checks {
            [check] => {
                if let Some(decision) = this.recall_alone(check, at) {
                    return Answer::Ready(Ok(decision.into()));
                }
            }
            checks => {
                if let Some(decisions) = this.recall_together(checks, at) {
                    return Answer::Ready(Ok(decisions));
                }
            }
        }
        ask(Some(CacheTicket::new(this, checks, at.now)))
    }

    /// The answer from memory, after the store gave none.
    #[inline(never)]
    pub(in crate::store) fn recall(&self, checks: &[Check<'_>]) -> Option<Decisions> {
        let at = Moment {
            now: self.now(),
            may_ask: false,
        };
        match checks {
            [check] => self.recall_alone(check, at).map(Decisions::from),
            checks => self.recall_together(checks, at),
        }
    }

    /// The decision on the only check of a question, if it is known to be denied.
    #[inline]
    fn recall_alone(&self, check: &Check<'_>, at: Moment) -> Option<Decision> {
        let reading = self.recall_one(check, at)??;
        (!reading.fits).then(|| {
            self.table.hit();
            decision_from_memory(check, &reading)
        })
    }

    /// The decisions on a question that is known to change nothing.
    ///
    /// One denied enforced check denies the question, and then no shadow check is carried out
    /// either. If all checks are in shadow, a rate of each limit must be denied. In both cases every
    /// [penalty] among these checks must be known to ban, since otherwise it may have to count the
    /// denial. If the store cannot be asked, nothing counts, and the known denials decide.
    ///
    /// A cost that never fits takes precedence over every wait, so the rejection should report it. But
    /// only a few questions are sent to the store for that. Otherwise a client could get past the
    /// remembered denials of other checks with such a cost.
    ///
    /// [penalty]: crate::algorithm::Penalty
    // Out of line: most questions have one check.
    #[inline(never)]
    fn recall_together(&self, checks: &[Check<'_>], at: Moment) -> Option<Decisions> {
        let all_in_shadow = checks.iter().all(|check| check.is_shadow);
        let is_deciding = |check: &Check<'_>| !check.is_shadow || all_in_shadow;
        let mut readings: SmallVec<[Option<Reading>; 8]> = SmallVec::new();
        for check in checks {
            readings.push(match self.recall_one(check, at) {
                None if !is_deciding(check) => None,
                recalled => recalled?,
            });
        }
        let is_denied = |position: usize| matches!(readings[position], Some(known) if !known.fits);
        let is_penalty = |check: &Check<'_>| check.algorithm.is_penalty();
        let deciding = (0..checks.len()).filter(|&position| is_deciding(&checks[position]));
        let denied = deciding.clone().filter(|&position| is_denied(position));
        let first_denied = denied.clone().next()?;
        let changes_nothing = |position: usize| {
            let mut limit = limit_of(position, checks);
            let is_guarded = checks.get(limit.end).is_some_and(is_penalty);
            let may_count = is_penalty(&checks[position]) && (at.may_ask || all_in_shadow);
            let has_to_be_denied = may_count || (all_in_shadow && !is_guarded);
            !has_to_be_denied || limit.any(is_denied)
        };
        if !deciding.clone().all(changes_nothing) {
            return None;
        }
        let mut bans = denied.filter(|&position| is_penalty(&checks[position]));
        if bans.any(|ban| self.try_take_turn_for_guarded(ban, checks, &readings, at)) {
            return None;
        }
        let is_unknown_cost =
            |position: usize| readings[position].is_none() && never_fits(&checks[position]);
        if deciding.clone().any(is_unknown_cost)
            && self.try_take_turn_beside(&checks[first_denied], at)
        {
            return None;
        }
        self.table.hit();
        let each = readings.iter().zip(checks);
        let decide = |(reading, check): (&Option<Reading>, &Check<'_>)| match reading {
            Some(reading) => decision_from_memory(check, reading),
            None => Decision {
                is_remembered: true,
                ..check.not_asked()
            },
        };
        Some(each.map(decide).collect())
    }

    /// Takes the turn to ask the store how long the limit behind the ban at this position denies, if
    /// this question may. The longer wait of both is reported, since a client that returns too soon is
    /// banned again.
    ///
    /// Each ban grants few turns, or a client could load the store by varying the cost. There is
    /// none for concurrency limits, which are never remembered.
    fn try_take_turn_for_guarded(
        &self,
        ban: usize,
        checks: &[Check<'_>],
        readings: &[Option<Reading>],
        at: Moment,
    ) -> bool {
        let is_unknown =
            |at: usize| readings[at].is_none() && checks[at].algorithm.lease().is_none();
        let Some(guarded) = ban.checked_sub(1) else {
            return false;
        };
        limit_of(guarded, checks).any(is_unknown) && self.try_take_turn_beside(&checks[ban], at)
    }

    /// Takes the turn to ask the store about another check of the same question, although this one
    /// is denied, if this question may. Each denial grants few turns.
    fn try_take_turn_beside(&self, denied: &Check<'_>, at: Moment) -> bool {
        let Action::Acquire(acquire) = &denied.action else {
            return false;
        };
        let (key, algorithm) = (denied.stored_fingerprint(), &denied.algorithm);
        at.may_ask
            && self
                .table
                .try_take_turn_beside(key, algorithm, &acquire.least(), at.now)
    }

    /// The remembered reading of one check; `Some(None)` if there is none. `None` if the store must be
    /// asked, whatever is remembered of the others.
    #[inline]
    fn recall_one(&self, check: &Check<'_>, at: Moment) -> Option<Option<Reading>> {
        let Action::Acquire(acquire) = &check.action else {
            return None;
        };
        let (key, algorithm) = (check.stored_fingerprint(), &check.algorithm);
        match self.table.recall(key, algorithm, &acquire.least(), at) {
            Recalled::Nothing => Some(None),
            Recalled::TimeToAsk => None,
            Recalled::Reading(reading) => Some(Some(reading)),
        }
    }
}

/// The positions of the checks of one limit, for all its rates.
fn limit_of(position: usize, checks: &[Check<'_>]) -> Range<usize> {
    let is_further = |&at: &usize| {
        let check = checks.get(at);
        check.is_some_and(|check| check.policy.extra_rate().is_some())
    };
    let before = (1..=position).rev().take_while(is_further).count();
    let behind = (position + 1..).take_while(is_further).count();
    position - before..position + 1 + behind
}

fn decision_from_memory(check: &Check<'_>, reading: &Reading) -> Decision {
    check.algorithm.decision_from_memory(reading, &check.action)
}

fn never_fits(check: &Check<'_>) -> bool {
    matches!(&check.action, Action::Acquire(acquire) if check.algorithm.never_fits(acquire))
}
