//! `Evaluation`: all policies that apply, asked in one question.

use std::pin::Pin;
use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;

use super::Limiter;
use super::access_list::{AccessList, Found};
use super::charges::{Charges, RequestCharges};
use super::leases::lease_for;
use super::rules::{CompiledRules, EarlyRejection};
use crate::algorithm::{Acquire, Action, Wait};
use crate::decision::{Decisions, Outcome};
use crate::error::CheckError;
use crate::key::{Key, Subject};
use crate::mode::Mode;
use crate::policy::{CompiledPolicy, RateSet, RejectReason};
use crate::request::RequestHead;
use crate::store::{Check, FailureMode, PendingDecisions};

/// The policies that apply to a request or to keys, what was asked of the store about them, and the
/// place for its answer. Made where it is used, and filled there: moving it would move room for
/// several policies.
pub(crate) struct Evaluation {
    /// In a guard, as long as nothing is awaited: then the rules' reference count is not touched,
    /// on which all requests would contend.
    pub(super) rules: Guard<Arc<CompiledRules>>,
    pub(super) applied: Applied,
    /// What the store answers, and then what the policies decide.
    pub(super) decisions: Decisions,
    /// Made before asking, so that permits are given back even if the caller is gone by then.
    pub(super) charges: RequestCharges,
    /// The answer, until it is there.
    pub(super) in_flight: Option<Pin<Box<PendingDecisions>>>,
}

/// The policies that apply, in the order of their checks.
#[derive(Default)]
pub(super) struct Applied {
    pub(super) each: SmallVec<[AppliedPolicy; 4]>,
    /// The keys in words of those that show them, by their position in `each`.
    pub(super) shown: Vec<(usize, Box<str>)>,
    pub(super) has_several_checks: bool,
    pub(super) has_shadows: bool,
    /// Whether all that is needed for a decision is known, and no store is asked.
    pub(super) is_denied: bool,
    /// Whether some are decided without the store.
    has_unasked: bool,
    may_give_back: bool,
    /// Clients are not told of policies in shadow.
    pub(super) hides_shadows: bool,
    /// Whether the store alone is asked anew, by a caller who has a place in the local share: if it
    /// gives no answer, nothing is decided.
    pub(super) asks_anew: bool,
    /// How many checks of a penalty were moved in front of the limit's.
    pub(super) penalties_ahead: usize,
}

/// One policy that applies.
#[derive(Clone, Copy)]
pub(super) struct AppliedPolicy {
    pub(super) position: usize,
    pub(super) subject: Subject,
    pub(super) mode: Mode,
    pub(super) decided_by: DecidedBy,
    /// The permits that are asked for.
    pub(super) cost: u64,
    /// Whether it only looks, which decides nothing and is not reported.
    pub(super) is_look: bool,
}

/// Who decides for a policy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DecidedBy {
    Store,
    /// The limit admits nothing. It has no checks.
    LimitOfNothing,
    /// Nothing is counted: limiting or the policy is off, or the key is on the allow list.
    Nobody,
    DenyList,
}

/// What is asked for under one policy, outside of HTTP.
pub(super) struct KeyedCost<'a> {
    pub(super) policy: &'a str,
    pub(super) key: &'a Key,
    /// The policy's own by default.
    pub(super) cost: Option<u64>,
}

/// How permits of keys are asked for, outside of HTTP.
#[derive(Clone, Copy)]
pub(super) struct AskedAs {
    /// Whether they may be given back.
    pub(super) is_permit: bool,
    /// By default the policy's own.
    pub(super) wait: Option<Wait>,
    /// Whether fewer will do, if not all fit now.
    pub(super) or_fewer: bool,
    /// Whether they are asked for until they are granted, so that no penalty counts a denial.
    pub(super) until_granted: bool,
    /// Whether the store alone may grant them, not what the failure mode says: the caller has a
    /// place in the local share. A second one there would be given back at once, or stay taken if
    /// somebody came in between.
    pub(super) of_store_alone: bool,
}

type Checks<'a> = SmallVec<[Check<'a>; 8]>;

impl AskedAs {
    /// For good.
    pub(super) const CHECK: Self = Self {
        is_permit: false,
        wait: Some(Wait::None),
        or_fewer: false,
        until_granted: false,
        of_store_alone: false,
    };

    /// To be held or settled.
    pub(super) const PERMIT: Self = Self {
        is_permit: true,
        wait: None,
        ..Self::CHECK
    };

    /// The same, as many as there are now.
    pub(super) const UP_TO: Self = Self {
        is_permit: true,
        or_fewer: true,
        ..Self::CHECK
    };
}

impl Limiter {
    /// An evaluation under the rules in force.
    #[inline]
    pub(crate) fn evaluation(&self) -> Evaluation {
        Evaluation::under(self.0.rules.load())
    }

    /// Asks all policies that apply to this request at once. The answer is there, unless the
    /// evaluation is [in flight](Evaluation::is_in_flight).
    ///
    /// `is_exempt`: whether the caller exempts the request, besides the rules.
    #[inline]
    pub(crate) fn evaluate(
        &self,
        evaluation: &mut Evaluation,
        request: &RequestHead<'_>,
        is_exempt: bool,
    ) -> Result<(), EarlyRejection> {
        let evaluated = self.evaluate_request(evaluation, request, is_exempt);
        if let Err(refusal) = &evaluated {
            self.report_refusal(refusal);
        }
        evaluated
    }

    fn evaluate_request(
        &self,
        evaluation: &mut Evaluation,
        request: &RequestHead<'_>,
        is_exempt: bool,
    ) -> Result<(), EarlyRejection> {
        let (rules, applied) = (&evaluation.rules, &mut evaluation.applied);
        if !self.is_on() {
            return Ok(());
        }
        match is_on_list(rules.denied.all(), request)? {
            Found::Listed => return Err(EarlyRejection::of_nobody(RejectReason::Listed)),
            // Otherwise a listed client would only have to send an unreadable address.
            Found::Unreadable => return Err(EarlyRejection::of_nobody(RejectReason::BadAddress)),
            Found::NotListed => {}
        }
        if is_exempt || rules.is_exempt(request) {
            return Ok(());
        }
        if is_on_list(&rules.allowed, request)? == Found::Listed {
            return rules
                .refuses_key_of(request, &self.0.subjects)
                .map_or(Ok(()), Err);
        }
        applied.hides_shadows = true;
        let mut checks = Checks::new();
        let mut resolved = None;
        for (position, policy) in rules.policies.iter().enumerate() {
            let mode = policy.mode();
            if mode == Mode::Off || !policy.applies(request) {
                continue;
            }
            let read = match rules.read(position, request, &self.0.subjects, &mut resolved) {
                Ok(Some(read)) => read,
                Ok(None) => continue,
                // In shadow a policy refuses nobody. But the list is not the policy's.
                Err(reason) if mode == Mode::Shadow && !reason.is_by_list() => {
                    self.report_shadow_refusal(&EarlyRejection::by(policy, reason));
                    continue;
                }
                Err(reason) => return Err(EarlyRejection::by(policy, reason)),
            };
            if let Some(shown) = read.shown {
                applied.shown.push((applied.each.len(), shown));
            }
            let of = AppliedPolicy {
                position,
                subject: read.subject,
                mode: policy.mode_for(read.subject, mode),
                decided_by: DecidedBy::Store,
                cost: read.cost,
                is_look: false,
            };
            match &read.rate_set {
                Some(rates) => {
                    let acquire = Acquire {
                        cost: read.cost,
                        wait: policy.wait(request, &rates.first),
                        lease: lease_for(&rates.first, read.cost),
                        is_final: true,
                        takes_fewer: false,
                    };
                    applied.ask(policy, of, rates, acquire, &mut checks);
                }
                None => applied.admit_nothing(AppliedPolicy { cost: 1, ..of }),
            }
        }
        if !checks.is_empty() {
            let may_give_back = applied.may_give_back && !applied.is_denied;
            let charges = may_give_back.then(|| self.charges(rules, applied, &mut checks));
            evaluation.charges = charges;
            evaluation.in_flight = self.ask(applied, &checks, &mut evaluation.decisions);
        }
        Ok(())
    }

    /// Asks for permits of these keys at once, under rules that have their policies.
    // Inlined, as most of what it may be asked for does not concern a check.
    #[inline(always)]
    pub(super) fn evaluate_keys(
        &self,
        evaluation: &mut Evaluation,
        asked: &[KeyedCost<'_>],
        asked_as: AskedAs,
    ) -> Result<(), CheckError> {
        let (rules, applied) = (&evaluation.rules, &mut evaluation.applied);
        let mut checks = Checks::new();
        for KeyedCost { policy, key, cost } in asked {
            let (position, policy) = rules.find(policy)?;
            let own = policy.rates.as_ref();
            if asked_as.or_fewer && own.is_some_and(|rates| rates.first.lease().is_some()) {
                return Err(CheckError::CannotGrantPart {
                    name: policy.id.name().to_owned(),
                });
            }
            let cost = cost.unwrap_or_else(|| policy.default_cost());
            let subject = self.subject(key);
            // Read once: it may change at any time.
            let mode = policy.mode_for(subject, policy.mode());
            let mut of = AppliedPolicy {
                position,
                subject,
                mode,
                decided_by: DecidedBy::Store,
                cost,
                is_look: cost == 0,
            };
            let mut before = applied.each.iter();
            if before.any(|before| (before.position, before.subject) == (position, of.subject)) {
                return Err(CheckError::AskedTwice {
                    name: policy.id.name().to_owned(),
                });
            }
            // A look shows the counts, whatever the mode.
            if cost > 0
                && let Some(decided_by) = self.decided_without_store(rules, key, mode)
            {
                of.decided_by = decided_by;
                applied.decide_without_store(of);
                if decided_by == DecidedBy::DenyList {
                    self.report_refusal(&EarlyRejection::by(policy, RejectReason::Listed));
                }
                continue;
            }
            if let Some(shown) = policy.shown(key) {
                applied.shown.push((applied.each.len(), shown));
            }
            let Some(rates) = &policy.rates else {
                applied.admit_nothing(of);
                continue;
            };
            let acquire = Acquire {
                cost,
                wait: match asked_as.or_fewer {
                    true => rates.first.without_delay(),
                    false => asked_as.wait.unwrap_or(policy.wait),
                },
                // Without a permit nobody would end it, and a credit finds only what has none.
                lease: match asked_as.is_permit {
                    true => lease_for(&rates.first, cost),
                    false => None,
                },
                is_final: true,
                takes_fewer: asked_as.or_fewer,
            };
            applied.ask(policy, of, rates, acquire, &mut checks);
            if asked_as.until_granted && mode != Mode::Shadow {
                // In front of the limit, a penalty denies while it bans but counts no denial.
                applied.penalties_ahead = policy.count_checks() - policy.count_rates();
            }
        }
        if checks.is_empty() {
            return Ok(());
        }
        applied.asks_anew = asked_as.of_store_alone;
        if asked_as.of_store_alone {
            for check in &mut checks {
                check.on_store_failure = FailureMode::Deny;
            }
        }
        if asked_as.is_permit && !applied.is_denied {
            evaluation.charges = Some(self.charges(rules, applied, &mut checks));
        }
        if applied.penalties_ahead > 0 {
            checks.rotate_right(applied.penalties_ahead);
        }
        evaluation.in_flight = self.ask(applied, &checks, &mut evaluation.decisions);
        Ok(())
    }

    /// Asks the store, unless it is known already that the answer does not matter.
    #[inline]
    fn ask(
        &self,
        applied: &Applied,
        checks: &[Check<'_>],
        decisions: &mut Decisions,
    ) -> Option<Pin<Box<PendingDecisions>>> {
        if applied.is_denied {
            *decisions = checks.iter().map(Check::not_asked).collect();
            return None;
        }
        self.0.store.decide(checks, decisions)
    }

    // Out of line: most requests never give anything back.
    #[inline(never)]
    fn charges(
        &self,
        rules: &CompiledRules,
        applied: &Applied,
        checks: &mut [Check<'_>],
    ) -> Box<Charges> {
        // A request dropped while one policy holds it up gives back what all of them have granted.
        for check in &mut *checks {
            if let Action::Acquire(acquire) = &mut check.action {
                acquire.is_final = false;
            }
        }
        let mut charges = Box::new(Charges::asking(self.clone()));
        let mut own = checks.iter().filter(|check| !check.algorithm.is_penalty());
        for of in &applied.each {
            if of.decided_by == DecidedBy::Store {
                let policy = &rules.policies[of.position];
                charges.add(policy, own.by_ref().take(policy.count_rates()));
            }
        }
        charges
    }

    /// Who decides about a key that asks for permits, if the store need not be asked while the policy
    /// is in this mode.
    #[inline]
    pub(super) fn decided_without_store(
        &self,
        rules: &CompiledRules,
        key: &Key,
        mode: Mode,
    ) -> Option<DecidedBy> {
        if !self.is_on() || mode == Mode::Off {
            Some(DecidedBy::Nobody)
        } else if rules.denied.all().has_key(key, &self.0.subjects) {
            Some(DecidedBy::DenyList)
        } else if rules.allowed.has_key(key, &self.0.subjects) {
            Some(DecidedBy::Nobody)
        } else {
            None
        }
    }
}

#[inline]
fn is_on_list(list: &AccessList, request: &RequestHead<'_>) -> Result<Found, EarlyRejection> {
    let found = list.find_address_of(request);
    found.map_err(|text| EarlyRejection::of_nobody(RejectReason::Misconfigured(text)))
}

impl Evaluation {
    /// Nothing yet, under these rules.
    #[inline]
    pub(super) fn under(rules: Guard<Arc<CompiledRules>>) -> Self {
        Self {
            rules,
            applied: Applied::default(),
            decisions: Decisions::default(),
            charges: None,
            in_flight: None,
        }
    }

    /// Whether the store takes a round trip to answer.
    #[inline]
    pub(crate) fn is_in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The same, to be kept across an await: the guard becomes a reference count.
    pub(super) fn kept(self) -> Self {
        Self {
            rules: Guard::from_inner(Guard::into_inner(self.rules)),
            ..self
        }
    }

    #[inline]
    pub(super) fn policy(&self, of: &AppliedPolicy) -> &Arc<CompiledPolicy> {
        &self.rules.policies[of.position]
    }
}

impl Applied {
    /// Adds a policy, and the checks of its rates and its penalty to the question.
    #[inline(always)]
    fn ask<'p>(
        &mut self,
        policy: &'p CompiledPolicy,
        of: AppliedPolicy,
        rates: &RateSet,
        acquire: Acquire,
        checks: &mut Checks<'p>,
    ) {
        let action = Action::Acquire(acquire);
        if policy.count_checks() == 1 {
            let is_shadow = of.mode == Mode::Shadow;
            checks.push(policy.check(0, of.subject, &rates.first, action, is_shadow));
        } else {
            checks.extend(policy.checks(of.subject, rates, action, of.mode));
            self.has_several_checks = true;
        }
        self.may_give_back |= policy.may_give_back(&rates.first);
        self.has_shadows |= of.mode == Mode::Shadow;
        self.each.push(of);
    }

    fn admit_nothing(&mut self, mut of: AppliedPolicy) {
        of.decided_by = DecidedBy::LimitOfNothing;
        self.is_denied |= of.cost > 0 && of.mode != Mode::Shadow;
        self.has_shadows |= of.mode == Mode::Shadow;
        self.decide_without_store(of);
    }

    fn decide_without_store(&mut self, of: AppliedPolicy) {
        self.is_denied |= of.decided_by == DecidedBy::DenyList;
        self.has_unasked = true;
        self.each.push(of);
    }

    /// Whether the answers of the store are the decisions of the policies.
    #[inline]
    pub(super) fn are_decisions(&self) -> bool {
        !self.has_several_checks && !self.has_shadows && !self.has_unasked
    }

    pub(super) fn shown(&self, nth: usize) -> Option<&str> {
        let mut shown = self.shown.iter();
        shown.find_map(|(of, words)| (*of == nth).then_some(&**words))
    }
}

impl DecidedBy {
    /// The outcome, where nothing is asked and nothing counted.
    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::DenyList => Outcome::Refused,
            _ => Outcome::Unlimited,
        }
    }
}
