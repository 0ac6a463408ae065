//! `Conclusion`: what an evaluation comes to once the store has answered.

use std::mem;
use std::sync::Arc;

use smallvec::SmallVec;

use super::Limiter;
use super::charges::RequestCharges;
use super::evaluate::{AppliedPolicy, DecidedBy, Evaluation};
use super::passes::CountedBy;
use super::permit::{Denied, Permit};
use crate::decision::{Decision, Decisions, Verdict};
use crate::mode::Mode;
use crate::policy::CompiledPolicy;
use crate::request::RequestHead;
use crate::time::Micros;

/// The decisions about a request or about keys, one for each policy, and what was charged.
pub(crate) struct Conclusion<'a> {
    policies: &'a [Arc<CompiledPolicy>],
    /// Empty if nobody was asked.
    each: &'a [AppliedPolicy],
    decisions: &'a Decisions,
    charges: RequestCharges,
}

impl Evaluation {
    /// Turns the answers of the store into the decisions of the policies, and reports them.
    #[inline]
    pub(crate) fn conclude(&mut self, limiter: &Limiter) -> Conclusion<'_> {
        let answers = match self.applied.are_decisions() {
            true => None,
            false => Some(self.decide_each()),
        };
        self.decisions.drop_vain_waits();
        if let Some(charges) = &mut self.charges {
            charges.answered(of_rates(
                &self.rules.policies,
                &self.applied.each,
                &self.decisions,
                answers.as_ref().unwrap_or(&self.decisions),
            ));
        }
        let each = self.applied.each.iter().zip(self.decisions.iter());
        for (nth, (of, decision)) in each.enumerate() {
            let is_undecided = self.applied.asks_anew && decision.store_failure().is_some();
            if of.is_reported() && !is_undecided {
                let (policy, shown) = (self.policy(of), self.applied.shown(nth));
                limiter.report(policy, of.mode, of.subject, shown, decision);
            }
        }
        if self.applied.has_shadows && self.applied.hides_shadows {
            self.hide_shadows();
        }
        Conclusion {
            policies: &self.rules.policies,
            each: &self.applied.each,
            decisions: &self.decisions,
            charges: self.charges.take(),
        }
    }

    // Out of line: most answers are the decisions.
    #[inline(never)]
    fn hide_shadows(&mut self) {
        let each = self.applied.each.iter().zip(self.decisions.iter());
        let (each, enforced): (SmallVec<[_; 4]>, Vec<_>) = each
            .filter(|(of, _)| of.mode != Mode::Shadow)
            .map(|(of, decision)| (*of, *decision))
            .unzip();
        self.applied.each = each;
        self.decisions = enforced.into_iter().collect();
    }

    /// Puts one decision for each policy, according to its mode, in place of the answers, and returns
    /// those.
    #[inline(never)]
    fn decide_each(&mut self) -> Decisions {
        self.decisions.rotate_left(self.applied.penalties_ahead);
        let mut answers = self.decisions.iter();
        let policies = self.applied.each.iter();
        let decisions = policies.map(|of| {
            let policy = self.policy(of);
            let decision = match of.decided_by {
                DecidedBy::Store => policy.decision(&mut answers),
                DecidedBy::LimitOfNothing => Decision::of_nothing(of.cost),
                unasked => Decision::unasked(unasked.outcome(), policy.quota()),
            };
            match of.mode {
                Mode::Shadow => decision.in_shadow(),
                _ => decision,
            }
        });
        let decisions = decisions.collect();
        mem::replace(&mut self.decisions, decisions)
    }
}

/// For each rate of each policy that was asked, the policy's decision and the rate's own.
fn of_rates<'a>(
    policies: &'a [Arc<CompiledPolicy>],
    each: &'a [AppliedPolicy],
    decisions: &'a Decisions,
    answers: &'a Decisions,
) -> impl Iterator<Item = (&'a Decision, &'a Decision)> + Clone {
    let mut next = 0;
    let asked = each.iter().zip(decisions.iter());
    let asked = asked.filter(|(of, _)| of.decided_by == DecidedBy::Store);
    asked.flat_map(move |(of, decision)| {
        let policy = &policies[of.position];
        let rates = &answers[next..next + policy.count_rates()];
        next += policy.count_checks();
        rates.iter().map(move |rate| (decision, rate))
    })
}

impl AppliedPolicy {
    /// A key on a list is no decision of the policy.
    fn is_reported(&self) -> bool {
        let is_by_policy = !matches!(self.decided_by, DecidedBy::Nobody | DecidedBy::DenyList);
        is_by_policy && !self.is_look
    }
}

impl<'a> Conclusion<'a> {
    pub(crate) fn is_admitted(&self) -> bool {
        self.decisions.all_allow()
    }

    /// How long the request is held up.
    pub(crate) fn delay(&self) -> Micros {
        let delays = self.decisions.iter().map(|decision| decision.delay);
        delays.max().unwrap_or_default()
    }

    /// What was charged and may have to be given back.
    pub(crate) fn take_charges(&mut self) -> RequestCharges {
        self.charges.take()
    }

    /// Each policy's name and decision.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'a str, &'a Decision)> + Clone {
        let names = self.policies().map(|policy| policy.id.name());
        names.zip(self.decisions.iter())
    }

    /// The decision that explains a denial.
    #[inline]
    pub(crate) fn denied_by(&self) -> Option<&'a Decision> {
        self.decisions.get(self.decisions.denied_by()?)
    }

    /// The decisions of the policies whose cost stays, whatever the response is.
    pub(crate) fn each_for_good(&self) -> impl Iterator<Item = &'a Decision> {
        let each = self.policies().zip(self.decisions.iter());
        each.filter_map(|(policy, decision)| (!policy.settles()).then_some(decision))
    }

    /// The only decision about one key.
    #[inline]
    pub(super) fn decision(&self) -> Decision {
        self.decisions[0]
    }

    /// What to put into the extensions of a request that is followed, when it goes on to the service.
    #[inline]
    pub(crate) fn follow(&self, limiter: &Limiter, request: &RequestHead<'_>) -> Option<CountedBy> {
        let shared = &limiter.0;
        match shared.passes.is_over() {
            true => None,
            false => shared.passes.follow(
                Arc::as_ptr(shared).addr(),
                self.names(),
                request.extensions.get(),
            ),
        }
    }

    /// The verdict to pass on to the service, after the decisions of outer layers.
    pub(crate) fn verdict(&self, outer: Option<&Verdict>) -> Verdict {
        Verdict::new(outer, self.names().zip(self.decisions.iter().copied()))
    }

    /// A permit if all of them admit.
    pub(super) fn into_permit(mut self) -> Result<Permit, Denied> {
        let verdict = self.verdict(None);
        match self.decisions.denied_by() {
            None => Ok(Permit::new(verdict, self.granted(), self.take_charges())),
            Some(worst) => Err(Denied::by(verdict, worst)),
        }
    }

    /// The permits that each policy has granted. One in shadow grants what was asked for, and so does
    /// one that counts nothing.
    fn granted(&self) -> SmallVec<[u64; 2]> {
        let each = self.each.iter().zip(self.decisions.iter());
        each.map(|(of, decision)| match decision.granted {
            1.. if of.mode != Mode::Shadow => decision.granted,
            _ => of.cost,
        })
        .collect()
    }

    fn names(&self) -> impl Iterator<Item = Arc<str>> {
        self.policies().map(|policy| policy.id.shared_name())
    }

    fn policies(&self) -> impl Iterator<Item = &'a CompiledPolicy> + Clone + use<'a> {
        let policies = self.policies;
        self.each.iter().map(|of| &*policies[of.position])
    }
}
