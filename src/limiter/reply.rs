//! `Reply`: what one policy decides, possibly after a round trip to the store.

use std::future::Future;
use std::pin::Pin;
use std::slice;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Limiter;
use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::error::CheckError;
use crate::key::Subject;
use crate::mode::Mode;
use crate::policy::ReadyPolicy;
use crate::store::{Check, PendingDecisions};

/// What one policy decides. A decision from memory is there before anything is awaited; the state
/// for waiting is made only for a round trip.
pub(super) enum Reply {
    Decided(Decision),
    Pending(Pending),
    /// There is no such policy, or it cannot do this.
    Failed(CheckError),
}

/// A policy's question in flight.
pub(super) struct Pending {
    limiter: Limiter,
    policy: Arc<ReadyPolicy>,
    terms: Terms,
    /// The key in words, if the policy shows it.
    shown: Option<Box<str>>,
    decisions: Pin<Box<PendingDecisions>>,
}

/// What is needed to read the answer to a question for permits.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) subject: Subject,
    /// 0 only looks.
    pub(super) cost: u32,
    pub(super) mode: Mode,
}

impl Future for Pending {
    type Output = Decision;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Decision> {
        let this = self.get_mut();
        let shown = this.shown.as_deref();
        let read = |decisions: &Decisions| {
            let limiter = &this.limiter;
            limiter.decided(&this.policy, this.terms, shown, decisions)
        };
        this.decisions.as_mut().poll_and_read(cx, read)
    }
}

impl Limiter {
    /// Asks for permits that are not given back. `shown` is the key in words, if the policy shows it.
    #[inline]
    pub(super) fn decide(
        &self,
        policy: &Arc<ReadyPolicy>,
        terms: Terms,
        shown: Option<&str>,
    ) -> Reply {
        let Some(algorithm) = policy.algorithm else {
            return Reply::Decided(self.decided_by_nothing(policy, terms, shown));
        };
        if policy.count_checks() > 1 {
            return self.decide_together(policy, terms, shown);
        }
        let is_shadow = terms.mode == Mode::Shadow;
        let action = Action::spend(terms.cost);
        let check = policy.check(0, terms.subject, algorithm, action, is_shadow);
        self.reply(policy, terms, shown, slice::from_ref(&check))
    }

    // Out of line: most policies ask one check.
    #[inline(never)]
    fn decide_together(
        &self,
        policy: &Arc<ReadyPolicy>,
        terms: Terms,
        shown: Option<&str>,
    ) -> Reply {
        let action = Action::spend(terms.cost);
        let checks = policy.own_checks(terms.subject, action, terms.mode);
        self.reply(policy, terms, shown, &checks)
    }

    // Always inlined, so that the decision is written where its caller wants it.
    #[inline(always)]
    fn reply(
        &self,
        policy: &Arc<ReadyPolicy>,
        terms: Terms,
        shown: Option<&str>,
        checks: &[Check<'_>],
    ) -> Reply {
        let read =
            |decisions: &Decisions| Reply::Decided(self.decided(policy, terms, shown, decisions));
        match self.0.store.ask_and_read(checks, read) {
            Ok(reply) => reply,
            Err(decisions) => self.asked(policy, terms, shown, decisions),
        }
    }

    // Out of line, so that a decision and its future do not share a stack frame.
    #[inline(never)]
    fn asked(
        &self,
        policy: &Arc<ReadyPolicy>,
        terms: Terms,
        shown: Option<&str>,
        decisions: Pin<Box<PendingDecisions>>,
    ) -> Reply {
        Reply::Pending(Pending {
            limiter: self.clone(),
            policy: Arc::clone(policy),
            terms,
            shown: shown.map(Box::from),
            decisions,
        })
    }

    /// The policy's decision, according to its mode.
    #[inline]
    pub(super) fn decided(
        &self,
        policy: &ReadyPolicy,
        terms: Terms,
        shown: Option<&str>,
        decisions: &Decisions,
    ) -> Decision {
        match &decisions[..] {
            [decision] if terms.mode != Mode::Shadow && policy.count_checks() == 1 => {
                self.report_if_taken(policy, terms, shown, decision);
                *decision
            }
            _ => self.decided_otherwise(policy, terms, shown, decisions),
        }
    }

    // Out of line: most policies are enforced and ask one check, whose decision is theirs.
    #[inline(never)]
    fn decided_otherwise(
        &self,
        policy: &ReadyPolicy,
        terms: Terms,
        shown: Option<&str>,
        decisions: &Decisions,
    ) -> Decision {
        let decision = by_mode(policy, terms, decisions);
        self.report_if_taken(policy, terms, shown, &decision);
        decision
    }

    /// The decision of a policy that admits nothing. No store is asked.
    #[inline(never)]
    pub(super) fn decided_by_nothing(
        &self,
        policy: &ReadyPolicy,
        terms: Terms,
        shown: Option<&str>,
    ) -> Decision {
        let decision = match terms.mode {
            Mode::Shadow => Decision::of_nothing(terms.cost).in_shadow(),
            _ => Decision::of_nothing(terms.cost),
        };
        self.report_if_taken(policy, terms, shown, &decision);
        decision
    }

    /// A look is not reported: it decides nothing.
    #[inline]
    pub(super) fn report_if_taken(
        &self,
        policy: &ReadyPolicy,
        terms: Terms,
        shown: Option<&str>,
        decision: &Decision,
    ) {
        if terms.cost > 0 {
            self.report(policy, terms.mode, terms.subject, shown, decision);
        }
    }
}

/// The policy's decision, according to its mode.
pub(super) fn by_mode(policy: &ReadyPolicy, terms: Terms, decisions: &Decisions) -> Decision {
    let decision = policy.decision(&mut decisions.iter());
    match terms.mode {
        Mode::Shadow if terms.cost > 0 => decision.in_shadow(),
        _ => decision,
    }
}
