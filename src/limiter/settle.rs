//! Settles what a request was charged: by the head of its response, by the end of its body, or by who
//! holds a permit.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use http::HeaderMap;
use smallvec::SmallVec;

use super::budget::{Budget, Charged};
use super::charges::Charges;
use super::giving_back::{Step, Steps};
use super::meter::Meter;
use crate::algorithm::Action;
use crate::policy::CompiledPolicy;
use crate::response::{Ending, KeptHead, ResponseHead};

/// What each charge has really cost, as far as it is known.
type ActualCosts = SmallVec<[Option<u64>; 2]>;

impl Charges {
    /// Whether the end of the response's body has a say in the cost.
    pub(crate) fn settles_at_end(&self) -> bool {
        let mut charges = self.charges.iter();
        charges.any(|charge| charge.quota.policy.settles_at_end())
    }

    /// Sets what counts for the request until its end, and may charge for it until then.
    pub(crate) fn meter_by(&mut self, meter: Meter) {
        let charges = self.charges.iter();
        let charged = charges.map(|charge| (charge.quota.clone(), charge.cost));
        let budget = Arc::new(Budget::new(self.limiter.clone(), charged));
        meter.add_budget(Arc::clone(&budget));
        self.meter = Some((meter, budget));
    }

    /// Settles what the head of the response says, and keeps it if its end has a say.
    pub(crate) fn settle_at_head(&mut self, response: &ResponseHead<'_>) {
        let actual = self.actual(|policy, charged| policy.cost_at_head(response, charged));
        self.settle_each(&actual);
        if self.settles_at_end() {
            self.head = Some(KeptHead::of(response));
        }
    }

    /// Whether the end of the body is still to be awaited.
    pub(crate) fn awaits_end(&self) -> bool {
        self.head.is_some()
    }

    /// Settles what the end of the body says. Once.
    pub(crate) fn settle_at_end(&mut self, how: Ending, trailers: Option<&HeaderMap>) {
        let Some(head) = self.head.take() else {
            return;
        };
        let Some((meter, budget)) = self.meter.take() else {
            return;
        };
        let taken = budget.close();
        let actual = self.actual(|policy, charged| {
            policy.cost_at_end(&head.end(how, trailers, &meter, charged))
        });
        self.settle_taken(&taken, &actual);
    }

    /// Settles a request that has ended before there was a response. It costs no less than it was
    /// charged when it arrived, or hanging up early would make it free.
    pub(super) fn settle_without_response(&mut self) {
        let Some((meter, budget)) = self.meter.take() else {
            return;
        };
        let taken = budget.close();
        if !meter.is_used() {
            return;
        }
        let head = KeptHead::default();
        let actual = self.actual(|policy, charged| {
            let cost = policy.cost_at_end(&head.end(Ending::Dropped, None, &meter, charged));
            cost.map(|cost| cost.max(charged))
        });
        self.settle_taken(&taken, &actual);
    }

    /// Settles what each has really cost, after this was taken of each. What was charged ahead belongs
    /// to the latest step: of the permits of the arrival, most may have come back since.
    fn settle_taken(&mut self, taken: &[Charged], actual: &[Option<u64>]) {
        let mut steps = Steps::new();
        for ((charge, taken), actual) in self.charges.iter_mut().zip(taken).zip(actual) {
            charge.cost = taken.permits;
            if let (Some(step), Some(actual)) = (&taken.step, actual) {
                let unused = taken.permits.saturating_sub(*actual).min(step.cost);
                charge.cost -= unused;
                steps.extend(step.give_back(unused).filter(|_| unused > 0));
            }
        }
        self.carry_out_later(steps, false);
        self.settle_each(actual);
    }

    /// Settles one policy.
    pub(super) fn settle(&mut self, policy: &str, actual: u64) {
        let each = self.charges.iter();
        let actual: ActualCosts = each
            .map(|charge| (charge.quota.policy.id.name() == policy).then_some(actual))
            .collect();
        self.settle_each(&actual);
    }

    /// Charges or gives back the difference between what each has really cost, where it is known, and
    /// what was charged for it: all in one question.
    fn settle_each(&mut self, actual: &[Option<u64>]) {
        let rules = self.limiter.0.rules.load();
        let mut steps = Steps::new();
        for (charge, actual) in self.charges.iter().zip(actual) {
            let (Some(actual), Some(receipt)) = (*actual, charge.receipt) else {
                continue;
            };
            let (quota, action) = match actual.cmp(&charge.cost) {
                Ordering::Greater => {
                    let action = Action::Charge(actual - charge.cost);
                    (charge.quota.in_force(&rules), action)
                }
                Ordering::Less => {
                    let action = charge.unused(charge.cost - actual, receipt);
                    (Cow::Borrowed(&charge.quota), action)
                }
                Ordering::Equal => continue,
            };
            steps.push(Step {
                quota,
                action,
                is_in_store: true,
            });
        }
        self.carry_out_later(steps, false);
        for (charge, actual) in self.charges.iter_mut().zip(actual) {
            if let (Some(actual), Some(receipt)) = (*actual, charge.receipt) {
                let algorithm = &charge.quota.algorithm;
                charge.receipt = Some(algorithm.settled(&receipt, charge.cost, actual));
                charge.cost = actual;
            }
        }
    }

    /// Whether a policy's permits are held by a lease.
    pub(super) fn are_places(&self, policy: &str) -> bool {
        let mut charges = self.charges.iter();
        charges.any(|charge| charge.lease.is_some() && charge.quota.policy.id.name() == policy)
    }

    /// What each charge has really cost. The cost of a policy is read once, for the first of its rates.
    fn actual(&self, read: impl Fn(&CompiledPolicy, u64) -> Option<u64>) -> ActualCosts {
        let mut actual = ActualCosts::new();
        for charge in &self.charges {
            actual.push(match charge.quota.rate {
                0 => read(&charge.quota.policy, charge.cost),
                _ => actual.last().copied().flatten(),
            });
        }
        actual
    }
}
