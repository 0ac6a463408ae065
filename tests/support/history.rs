//! Histories: what three policies are asked, and when.

use std::time::Duration;

use tower_throttle::store::{Acquire, Action, Algorithm, LeaseId, Wait};
use tower_throttle::store::{Check, Decisions, PolicyId, Receipt};
use tower_throttle::{
    Clock as _, Decision, HOUR, Key, Limit, ManualClock, Micros, Penalty, Subject,
};

pub const POLICIES: usize = 3;

#[derive(Clone, Debug)]
pub struct History {
    pub limits: [Limit; POLICIES],
    /// A further rate of each policy's limit, if it has one; of any algorithm, as the store does
    /// not mind.
    pub extra_rates: [Option<Limit>; POLICIES],
    /// Each policy's penalty, if it has one.
    pub penalties: [Option<Penalty>; POLICIES],
    /// The policies that are in a group.
    pub in_group: [bool; POLICIES],
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub struct Step {
    pub time: Time,
    /// Limits that are replaced before the step: of first rates, and from [`POLICIES`] on of further
    /// ones.
    pub changes: Vec<(usize, Limit)>,
    /// Whom each policy is asked about.
    pub keys: [u8; POLICIES],
    /// The action on each policy that is asked.
    pub acts: [Option<Act>; POLICIES],
    /// The policies that are asked in shadow.
    pub shadows: [bool; POLICIES],
}

/// An action on a policy's permits.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    Acquire {
        cost: u64,
        wait: Wait,
        lease: Option<LeaseId>,
        is_final: bool,
        /// Whether fewer will do. Only of a policy that is asked alone.
        takes_fewer: bool,
    },
    Charge(u64),
    Credit {
        permits: u64,
        /// Whether the time at which they were taken is given: that of the last take.
        known: bool,
    },
    /// Of the last take.
    Refund(u64),
    Cancel(u64),
    Withdraw(u64),
    Hold {
        time: Micros,
        permits: u64,
    },
    Reset,
    Renew(LeaseId),
    Release(LeaseId),
}

/// How the clock moves before a step.
#[derive(Clone, Copy, Debug)]
pub enum Time {
    Stands,
    On(Duration),
    Back(Duration),
    /// To the announced end of the last wait, or this much before.
    ToRetry {
        early_us: u64,
    },
    /// To the announced reset of the last step, or this much before.
    ToReset {
        early_us: u64,
    },
}

impl History {
    /// Whether several states may share a key.
    pub fn shares_keys(&self) -> bool {
        self.in_group.contains(&true) || self.extra_rates.iter().any(Option::is_some)
    }
}

/// A history while it runs.
pub struct Course<'a> {
    history: &'a History,
    policies: [PolicyId; POLICIES],
    extra_rates: [PolicyId; POLICIES],
    /// Of the first rates, then of the further ones.
    limits: [Option<Limit>; 2 * POLICIES],
    /// Of the same.
    receipts: [Receipt; 2 * POLICIES],
}

impl<'a> Course<'a> {
    pub fn of(history: &'a History) -> Self {
        let policy = |at: usize| {
            let policy = PolicyId::new(NAMES[at]);
            match history.in_group[at] {
                true => policy.in_group("g"),
                false => policy,
            }
        };
        Self {
            history,
            policies: std::array::from_fn(policy),
            extra_rates: std::array::from_fn(|at| policy(at).with_extra_rate(HOUR.into())),
            limits: std::array::from_fn(|rate| match rate.checked_sub(POLICIES) {
                None => Some(history.limits[rate]),
                Some(policy) => history.extra_rates[policy],
            }),
            receipts: [Receipt::default(); 2 * POLICIES],
        }
    }

    pub fn change(&mut self, step: &Step) {
        for (rate, limit) in &step.changes {
            self.limits[*rate] = Some(*limit);
        }
    }

    /// The checks of a step about the subjects that have this in front of their keys.
    pub fn checks(&self, step: &Step, whose: impl Into<Key>) -> Vec<Check<'_>> {
        let whose = whose.into();
        let mut checks = Vec::new();
        for (policy, act) in step.acts.iter().enumerate() {
            let Some(act) = act else { continue };
            let key = Key::all([whose.clone(), Key::from(step.keys[policy])]);
            let rates = [policy, POLICIES + policy];
            let act = match rates.iter().any(|rate| self.has_places(*rate)) {
                true => act.in_full(),
                false => *act,
            };
            let check_by = |rate: usize, id| {
                let limit = self.limits[rate].as_ref()?;
                let algorithm = Algorithm::try_from(limit).unwrap();
                let action = act.action(self.receipts[rate]);
                let check = Check::new(id, Subject::from(&key), algorithm, action);
                Some(check.in_shadow(step.shadows[policy]))
            };
            let check = check_by(policy, &self.policies[policy]).unwrap();
            checks.push(check);
            checks.extend(check_by(POLICIES + policy, &self.extra_rates[policy]));
            let guards = matches!(check.action, Action::Acquire(_) | Action::Reset);
            let penalty = self.history.penalties[policy].as_ref();
            if let Some(penalty) = penalty.filter(|_| guards) {
                let mut check = check;
                check.algorithm = Algorithm::try_from(penalty).unwrap();
                checks.push(check);
            }
        }
        checks
    }

    fn has_places(&self, rate: usize) -> bool {
        let algorithm = self.limits[rate].as_ref().map(Algorithm::try_from);
        algorithm.is_some_and(|algorithm| algorithm.unwrap().lease().is_some())
    }

    /// Notes what was taken last.
    pub fn answered(&mut self, receipts: &[(usize, Receipt)]) {
        for (rate, receipt) in receipts {
            self.receipts[*rate] = *receipt;
        }
    }
}

/// What was taken under each rate of each policy, if anything was asked for.
pub fn receipts(checks: &[Check<'_>], decisions: &Decisions) -> Vec<(usize, Receipt)> {
    let each = checks.iter().zip(decisions.iter());
    let has_receipt = |action: &Action| match action {
        Action::Acquire(take) => take.cost > 0 && !take.is_final,
        action => action.acquires() > 0,
    };
    let taken = each.filter(|(check, _)| has_receipt(&check.action) && !is_penalty(check));
    taken
        .map(|(check, decision)| {
            let is_further = check.policy.extra_rate().is_some();
            let rate = policy_of(check) + if is_further { POLICIES } else { 0 };
            (rate, decision.receipt())
        })
        .collect()
}

pub fn is_penalty(check: &Check<'_>) -> bool {
    check.algorithm.name() == "penalty"
}

const NAMES: [&str; POLICIES] = ["a", "b", "c"];

pub fn policy_of(check: &Check<'_>) -> usize {
    let mut names = NAMES.iter();
    names.position(|name| *name == check.policy.name()).unwrap()
}

impl Act {
    /// The same, where fewer permits will not do.
    pub fn in_full(self) -> Self {
        match self {
            Self::Acquire {
                cost,
                wait,
                lease,
                is_final,
                ..
            } => Self::Acquire {
                cost,
                wait,
                lease,
                is_final,
                takes_fewer: false,
            },
            act => act,
        }
    }

    fn action(self, last: Receipt) -> Action {
        match self {
            Self::Acquire {
                cost,
                wait,
                lease,
                is_final,
                takes_fewer,
            } => {
                let mut take = Acquire::new(cost).with_wait(wait);
                take.lease = lease;
                take.is_final = is_final;
                take.takes_fewer = takes_fewer;
                Action::Acquire(take)
            }
            Self::Charge(permits) => Action::Charge(permits),
            Self::Credit { permits, known } => Action::Credit {
                permits,
                taken_at: known.then(|| last.taken_at().unwrap_or_default()),
            },
            Self::Refund(permits) => Action::Refund {
                permits,
                receipt: last,
            },
            Self::Cancel(permits) => Action::Cancel {
                permits,
                receipt: last,
            },
            Self::Withdraw(permits) => Action::Withdraw {
                permits,
                receipt: last,
            },
            Self::Hold { time, permits } => Action::Hold { time, permits },
            Self::Reset => Action::Reset,
            Self::Renew(lease) => Action::Renew(lease),
            Self::Release(lease) => Action::Release(lease),
        }
    }
}

impl Time {
    pub fn pass(self, clock: &ManualClock, last: Option<&Decisions>) {
        let longest = |wait: fn(&Decision) -> Option<Duration>| {
            last.and_then(|decisions| decisions.iter().filter_map(wait).max())
                .unwrap_or_default()
        };
        match self {
            Self::Stands => {}
            Self::On(span) => clock.advance(span),
            Self::Back(span) => clock.step_back(span),
            Self::ToRetry { early_us } => {
                let wait = longest(Decision::retry_after);
                clock.advance(wait.saturating_sub(Duration::from_micros(early_us)));
            }
            Self::ToReset { early_us } => {
                let reset = longest(|decision| Some(decision.reset_after()));
                clock.advance(reset.saturating_sub(Duration::from_micros(early_us)));
            }
        }
        // Within the years in which the crate is exact, and ahead of the server's clock.
        let (first, last) = (ManualClock::new().now(), Micros::new(5_200_000_000_000_000));
        clock.set(clock.now().clamp(first, last));
    }
}
