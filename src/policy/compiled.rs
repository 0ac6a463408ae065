//! `CompiledPolicy`: a validated policy, and the checks that it asks.

use std::time::Duration;

use smallvec::SmallVec;

use super::mistakes::Mistakes;
use super::rates::{ExtraRate, RateSet, least_capacity};
use super::{Cost, Policy, SettledCost};
use crate::algorithm::{Action, Algorithm, Penalty, Wait};
use crate::decision::Decision;
use crate::key::{Key, Subject};
use crate::limit::Limit;
use crate::mode::{AtomicMode, Mode, Percent};
use crate::response::{BodyEnd, ResponseHead};
#[cfg(feature = "redis")]
use crate::store::RecordId;
use crate::store::{Check, FailureMode, PolicyId};
use crate::task::catch_panic;
use crate::time::Micros;

/// Stores promise a decision for each check.
const ANSWERED: &str = "every check is answered";

/// A validated policy.
pub(crate) struct CompiledPolicy {
    pub(crate) id: PolicyId,
    /// The policy's own limit; `None` if it admits nothing.
    pub(crate) rates: Option<RateSet>,
    pub(super) extra_rates: Box<[ExtraRate]>,
    /// The id under which the end of a hold is stored.
    pub(super) hold: PolicyId,
    /// What to do with a request that does not fit yet.
    pub(crate) wait: Wait,
    pub(crate) penalty: Option<Algorithm>,
    pub(crate) on_store_failure: FailureMode,
    /// The mode in force.
    pub(super) mode: AtomicMode,
    pub(super) mistakes: Mistakes,
    /// How long a decision may take.
    pub(super) timeout: Duration,
    pub(super) policy: Policy,
}

impl CompiledPolicy {
    /// The policy's own limit, as it was given.
    pub(crate) fn limit(&self) -> &Limit {
        &self.policy.limit
    }

    /// The policy's penalty, as it was given.
    pub(crate) fn own_penalty(&self) -> Option<&Penalty> {
        self.policy.penalty.as_ref()
    }

    /// The algorithm of the policy's own limit, or of the first of its rates; `None` if it admits
    /// nothing.
    pub(crate) fn algorithm(&self) -> Option<&Algorithm> {
        self.rates.as_ref().map(|rates| &rates.first)
    }

    /// How many rates its limit has. Each is a check.
    pub(crate) fn count_rates(&self) -> usize {
        1 + self.extra_rates.len()
    }

    /// How many checks it asks about each request.
    pub(crate) fn count_checks(&self) -> usize {
        self.count_rates() + usize::from(self.penalty.is_some())
    }

    /// The most permits that there ever are at once.
    pub(crate) fn capacity(&self) -> u64 {
        let first = self.algorithm();
        first.map_or(0, |first| least_capacity(first, &self.extra_rates))
    }

    /// The permits of its own limit, or of the first of its rates, and the window.
    pub(crate) fn quota(&self) -> (u64, Micros) {
        let first = self.algorithm();
        first.map_or((0, Micros::ZERO), Algorithm::quota)
    }

    /// What identifies its states in the record of its group, one for each rate and algorithm.
    #[cfg(feature = "redis")]
    pub(crate) fn record_ids(&self) -> impl Iterator<Item = RecordId> {
        let further = self.extra_rates.iter().map(ExtraRate::id);
        let each = std::iter::once(&self.id).chain(further);
        each.flat_map(PolicyId::record_ids).flatten().copied()
    }

    /// The mode in force.
    pub(crate) fn mode(&self) -> Mode {
        self.mode.get()
    }

    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.set(mode);
    }

    /// The mode for this subject: `mode`, or shadow if the policy is not enforced for it.
    #[inline]
    pub(crate) fn mode_for(&self, subject: Subject, mode: Mode) -> Mode {
        self.mode.of(mode, subject)
    }

    /// The share of the subjects for whom it is enforced.
    pub(crate) fn enforced_for(&self) -> Percent {
        self.mode.enforced_for()
    }

    pub(crate) fn enforce_for(&self, share: Percent) {
        self.mode.enforce_for(share);
    }

    /// Takes the place of a policy of the same name, whose mode may have been set since.
    pub(crate) fn succeed(&self, before: &Self) {
        if self.policy.mode == before.policy.mode {
            self.set_mode(before.mode());
        }
        if self.policy.enforce_for == before.policy.enforce_for {
            self.enforce_for(before.enforced_for());
        }
        self.mistakes.succeed(&before.mistakes);
    }

    /// The key in words, if the policy shows it.
    #[inline]
    pub(crate) fn shown(&self, key: &Key) -> Option<Box<str>> {
        match self.policy.shows_subject {
            false => None,
            true => Some(key.in_words().into()),
        }
    }

    /// The cost outside of HTTP, where no request states one.
    pub(crate) fn default_cost(&self) -> u64 {
        match self.policy.cost {
            Cost::Fixed(cost) => cost,
            Cost::Read(_) => 1,
        }
    }

    /// Whether the response decides the cost.
    pub(crate) fn settles(&self) -> bool {
        self.policy.settle.is_some()
    }

    /// Whether what a request has taken under this limit may later be given back or settled.
    pub(crate) fn may_give_back(&self, algorithm: &Algorithm) -> bool {
        self.settles()
            || algorithm.lease().is_some()
            || algorithm.queues()
            || self.wait != Wait::None
    }

    /// The check that applies an action to permits taken under one of the rates, counted from 0.
    #[inline(always)]
    pub(crate) fn check(
        &self,
        rate: usize,
        subject: Subject,
        algorithm: &Algorithm,
        action: Action,
        is_shadow: bool,
    ) -> Check<'_> {
        let further = rate.checked_sub(1);
        let further = further.and_then(|rate| self.extra_rates.get(rate));
        let id = further.map_or(&self.id, ExtraRate::id);
        self.check_of(id, subject, algorithm, action, is_shadow)
    }

    /// In shadow no request waits, so one that would have to wait does not fit. If it were counted
    /// all the same, those who come once the policy is enforced would pay for it.
    #[inline]
    fn check_of<'a>(
        &self,
        policy: &'a PolicyId,
        subject: Subject,
        algorithm: &Algorithm,
        action: Action,
        is_shadow: bool,
    ) -> Check<'a> {
        let mut check = Check {
            policy,
            subject,
            algorithm: *algorithm,
            action,
            is_shadow,
            on_store_failure: self.on_store_failure,
        };
        if is_shadow {
            check.action = algorithm.without_waiting(check.action);
        }
        check
    }

    /// The checks that apply an action to the policy's permits in this mode: one for each rate,
    /// followed by that of the penalty if there is one.
    pub(crate) fn checks<'p>(
        &'p self,
        subject: Subject,
        rate_set: &RateSet,
        action: Action,
        mode: Mode,
    ) -> impl Iterator<Item = Check<'p>> {
        let is_shadow = mode == Mode::Shadow;
        let check = move |id, algorithm: &Algorithm, action| {
            self.check_of(id, subject, algorithm, action, is_shadow)
        };
        let rates = rate_set.each(&self.id, &self.extra_rates);
        // In shadow a request that would have waited is no denial, since the enforced policy would
        // not have denied it.
        let is_denial = !is_shadow || !rate_set.first.may_hold_up(&action);
        let penalty = self.penalty.map(|penalty| {
            let action = match action {
                Action::Reset => action,
                Action::Acquire(acquire) if is_denial => Action::acquire(acquire.cost.min(1)),
                _ => Action::look(),
            };
            check(&self.id, &penalty, action)
        });
        let rates = rates.map(move |(id, algorithm)| check(id, &algorithm, action));
        rates.chain(penalty)
    }

    /// The same for the policy's own limit, as one question. If that admits nothing, it is about all
    /// that the policy may have counted by other limits, and only for [`Action::Reset`].
    pub(crate) fn own_checks(
        &self,
        subject: Subject,
        action: Action,
        mode: Mode,
    ) -> SmallVec<[Check<'_>; 4]> {
        match &self.rates {
            Some(own) => self.checks(subject, own, action, mode).collect(),
            None => Algorithm::one_of_each_name()
                .chain(self.penalty)
                .map(|algorithm| self.check_of(&self.id, subject, &algorithm, action, false))
                .collect(),
        }
    }

    /// Whether requests can wait for its permits, and so be held.
    pub(crate) fn can_be_held(&self) -> bool {
        self.algorithm().is_some_and(Algorithm::can_wait)
    }

    /// The check that sets the end of a hold, or reads it. It counts no permits.
    pub(crate) fn check_of_hold(&self, subject: Subject, action: Action) -> Check<'_> {
        self.check_of(&self.hold, subject, &Algorithm::of_holds(), action, false)
    }

    /// The policy's decision, from the decisions on its checks, which come next in `each`.
    #[inline]
    pub(crate) fn decision<'a>(&self, each: &mut impl Iterator<Item = &'a Decision>) -> Decision {
        let first = each.next().expect(ANSWERED);
        if self.count_checks() == 1 {
            return *first;
        }
        self.decision_of_several(first, each)
    }

    // Out of line: most policies ask one check.
    #[inline(never)]
    fn decision_of_several<'a>(
        &self,
        first: &Decision,
        each: &mut impl Iterator<Item = &'a Decision>,
    ) -> Decision {
        let further = self.extra_rates.iter();
        let mut next = || each.next().expect(ANSWERED);
        let decision = further.fold(*first, |all, _| all.and_under(next()));
        match self.penalty.and_then(|_| each.next()) {
            Some(penalty) => decision.under(penalty),
            None => decision,
        }
    }

    /// Whether the end of the response's body decides the cost.
    pub(crate) fn settles_at_end(&self) -> bool {
        let settle = self.policy.settle.as_ref();
        settle.is_some_and(|settle| matches!(settle.cost, SettledCost::AtEnd(_)))
    }

    /// The actual cost of a request that was charged this much, if the head of its response tells.
    pub(crate) fn cost_at_head(&self, response: &ResponseHead<'_>, charged: u64) -> Option<u64> {
        match &self.policy.settle.as_ref()?.cost {
            SettledCost::AtHead(cost) => Some(cost(response, charged)),
            SettledCost::AtEnd(_) => None,
        }
    }

    /// The actual cost of a request, if the end of its body tells. A panic of the user's code, which
    /// may run while something is dropped, leaves what was charged.
    pub(crate) fn cost_at_end(&self, end: &BodyEnd<'_>) -> Option<u64> {
        match &self.policy.settle.as_ref()?.cost {
            SettledCost::AtHead(_) => None,
            SettledCost::AtEnd(cost) => catch_panic(|| cost(end)),
        }
    }
}
