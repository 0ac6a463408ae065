//! `Charges`: what a request was charged and may have to give back.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::budget::Budget;
use super::charge::{Charge, Counted};
use super::giving_back::Steps;
use super::meter::Meter;
use super::quota::Quota;
use super::{Limiter, failure};
use crate::algorithm::Action;
use crate::decision::{Decision, Outcome};
use crate::policy::CompiledPolicy;
use crate::response::KeptHead;
use crate::store::{Answer, Check, Store as _};

/// What a request was charged. Dropping it gives back what its phase says, without waiting for the
/// answer. What cannot be given back lapses.
pub(crate) struct Charges {
    pub(super) limiter: Limiter,
    pub(super) charges: SmallVec<[Charge; 1]>,
    phase: Phase,
    /// When the store was asked; nothing was taken before.
    asked: Instant,
    /// Where leases are renewed, and where permits are given back if this is dropped outside any
    /// runtime.
    runtime: Option<Handle>,
    /// What the end of the response settles by.
    pub(super) meter: Option<(Meter, Arc<Budget>)>,
    /// The response, until its end has settled the cost.
    pub(super) head: Option<KeptHead>,
}

/// What the layer keeps for a request. Most requests have nothing to give back.
pub(crate) type RequestCharges = Option<Box<Charges>>;

#[derive(Clone, Copy)]
enum Phase {
    /// The answer is in flight. A lease may have been taken and is released.
    Pending,
    /// The answer is there, but the client has left. Permits that others would wait behind are given
    /// back. All others stay taken: a client that always leaves before the answer has to be denied, too.
    Abandoned,
    /// The request is held up. Nothing was used yet, so everything is given back.
    Waiting,
    /// The request runs. Leases are released, everything else is used.
    InUse,
}

impl Charges {
    pub(super) fn asking(limiter: Limiter) -> Self {
        Self {
            limiter,
            charges: SmallVec::new(),
            phase: Phase::Pending,
            asked: Instant::now(),
            runtime: Handle::try_current().ok(),
            meter: None,
            head: None,
        }
    }

    /// Adds the checks of a policy's rates, which are about to be asked.
    pub(super) fn add<'a>(
        &mut self,
        policy: &Arc<CompiledPolicy>,
        rates: impl Iterator<Item = &'a Check<'a>>,
    ) {
        let charges = rates.enumerate();
        let charges = charges
            .map(|(rate, check)| Charge::asked(Quota::of(policy, rate, check), &check.action));
        self.charges.extend(charges);
    }

    /// Takes the answers: for each check that was added, the decision of its policy and its own.
    pub(super) fn answered<'a>(
        &mut self,
        answers: impl Iterator<Item = (&'a Decision, &'a Decision)> + Clone,
    ) {
        let all_allow = answers.clone().all(|(decision, _)| decision.is_allowed());
        let mut doubtful: SmallVec<[Charge; 1]> = SmallVec::new();
        let charges = std::mem::take(&mut self.charges);
        for (mut charge, (decision, own)) in charges.into_iter().zip(answers) {
            // The rate's own decision: if the penalty is known to ban, the policy's does not show what
            // the rate has counted.
            charge.counted = match own.store_failure() {
                None => Counted::Yes,
                Some(failure) if failure.may_have_counted() => Counted::Perhaps,
                Some(_) => Counted::No,
            };
            if all_allow && decision.outcome == Outcome::Allowed {
                charge.receipt = Some(own.receipt);
                if own.granted > 0 {
                    charge.cost = own.granted;
                }
                self.charges.push(charge);
            } else if charge.counted == Counted::Perhaps {
                doubtful.push(charge);
            }
        }
        self.give_back(&doubtful, Charge::release);
        self.phase = Phase::Waiting;
        // Without a runtime nothing is renewed, and the lease lapses.
        let home = self.limiter.0.store.home();
        if let Some(runtime) = home.as_ref().or(self.runtime.as_ref()) {
            for lease in self.charges.iter().filter_map(Charge::lease) {
                self.limiter.keep_alive(lease, self.asked, runtime);
            }
        }
    }

    /// The store was never asked, so there is nothing to give back.
    pub(super) fn was_not_asked(mut self) {
        self.charges.clear();
    }

    /// Nothing of it was used.
    pub(super) fn cancel(&mut self) {
        self.phase = Phase::Waiting;
    }

    /// Nobody waited for the answer.
    pub(super) fn abandon(mut self) {
        self.phase = Phase::Abandoned;
    }

    /// Whether the store answers about these permits' subject.
    pub(super) async fn does_store_answer(&self) -> bool {
        let charges = self.charges.iter();
        match self.ask(charges.map(|charge| charge.quota.check(Action::look()))) {
            Some(answer) => failure(answer).await.is_none(),
            None => false,
        }
    }

    /// The request is let through: from now on what it has taken is used.
    pub(crate) fn begin_use(&mut self) {
        self.phase = Phase::InUse;
    }

    /// Whether something is held for as long as the request runs.
    pub(crate) fn has_leases(&self) -> bool {
        self.charges.iter().any(|charge| charge.lease.is_some())
    }

    /// Whether a lease may have ended.
    pub(super) fn has_lapsed(&self) -> bool {
        let now = Instant::now();
        let mut leases = self.charges.iter().filter_map(Charge::lease);
        leases.any(|lease| {
            let until = self.limiter.0.leases.lives_until(lease.id);
            until.unwrap_or(self.asked + lease.life()) <= now
        })
    }

    /// Gives back what `action` says for each charge.
    fn give_back(&self, charges: &[Charge], action: impl Fn(&Charge) -> Option<Action>) {
        let steps = charges
            .iter()
            .filter_map(|charge| Some(charge.step(action(charge)?)));
        let is_in_doubt = |charge: &Charge| charge.counted == Counted::Perhaps;
        self.carry_out_later(steps.collect(), charges.iter().any(is_in_doubt));
    }

    pub(super) fn carry_out_later(&self, steps: Steps<'_>, is_in_doubt: bool) {
        let began = self.runtime.as_ref();
        self.limiter.carry_out_later(steps, is_in_doubt, began);
    }

    pub(super) fn runtime_to_go_on(&self) -> Option<Handle> {
        self.limiter.runtime_to_go_on(self.runtime.as_ref())
    }

    /// Asks, if there is anything to ask.
    fn ask<'a>(&self, checks: impl Iterator<Item = Check<'a>>) -> Option<Answer> {
        let checks: SmallVec<[Check<'_>; 4]> = checks.collect();
        let is_to_ask = !checks.is_empty();
        is_to_ask.then(|| self.limiter.0.store.ask(&checks))
    }
}

impl Drop for Charges {
    fn drop(&mut self) {
        for lease in self.charges.iter().filter_map(|charge| charge.lease) {
            self.limiter.stop_renewing(lease);
        }
        match self.phase {
            Phase::Pending => self.give_back(&self.charges, Charge::release),
            Phase::InUse => {
                self.settle_without_response();
                self.give_back(&self.charges, Charge::release);
            }
            Phase::Abandoned => self.give_back(&self.charges, Charge::abandon),
            Phase::Waiting => self.give_back(&self.charges, Charge::cancel),
        }
    }
}
