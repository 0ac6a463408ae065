//! `Asked`: the checks of a question for the composed script, without their keys.

use std::borrow::Cow;

use redis::Cmd;
use smallvec::SmallVec;

use crate::algorithm::{Acquire, Action, Algorithm, Ask, Reading, decide, decide_denied, granted};
use crate::decision::{Decision, Decisions};
use crate::store::redis::keys::{is_in_record, record_id};
use crate::store::redis::script::Composed;
use crate::store::{Check, RecordId};

/// The checks of a question, without their keys.
#[derive(PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) checks: SmallVec<[AskedCheck; 1]>,
    pub(super) is_denied_elsewhere: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct AskedCheck {
    pub(super) algorithm: Algorithm,
    pub(super) action: Action,
    pub(super) is_shadow: bool,
    pub(super) is_extra_rate: bool,
    /// Of its entry, if its key is a group's record.
    pub(super) id: Option<RecordId>,
}

impl Asked {
    pub(super) fn of(checks: &[Check<'_>], is_denied_elsewhere: bool) -> Self {
        let is_single = checks.len() == 1;
        let asked = checks.iter().map(|check| AskedCheck::of(check, is_single));
        Self {
            checks: asked.collect(),
            is_denied_elsewhere,
        }
    }

    pub(super) fn is_of(&self, checks: &[Check<'_>], is_denied_elsewhere: bool) -> bool {
        let is_single = checks.len() == 1;
        let mut each = self.checks.iter().zip(checks);
        self.is_denied_elsewhere == is_denied_elsewhere
            && self.checks.len() == checks.len()
            && each.all(|(asked, check)| *asked == AskedCheck::of(check, is_single))
    }

    /// Whether the script evaluates it as a single check.
    pub(super) fn single(&self) -> Option<&AskedCheck> {
        match &*self.checks {
            [check]
                if !check.algorithm.is_penalty()
                    && !self.is_denied_elsewhere
                    && self.most() == 0 =>
            {
                Some(check)
            }
            _ => None,
        }
    }

    /// As many permits at most it takes as there are; zero for those that its checks cost.
    pub(super) fn most(&self) -> u64 {
        match &self.checks[0] {
            check if check.takes_fewer() => check.action.acquires(),
            _ => 0,
        }
    }

    /// Whether the script may sum up both.
    pub(super) fn differs_in_cost_alone(&self, other: &Self) -> bool {
        let both = self.single().zip(other.single());
        both.is_some_and(
            |(check, other)| match (check.acquires(), other.acquires()) {
                (Some(acquire), Some(others)) => {
                    let cost = acquire.cost;
                    let is_same = acquire == Acquire { cost, ..others };
                    is_same && check.algorithm == other.algorithm && check.id == other.id
                }
                _ => false,
            },
        )
    }

    pub(super) fn decide(&self, readings: &[Reading]) -> Decisions {
        let mut checks = Cow::Borrowed(&*self.checks);
        if let Some(granted) = granted(self.checks.iter().map(AskedCheck::ask), readings) {
            for check in checks.to_mut() {
                check.action = check.action.granting(granted);
            }
        }
        let asks = checks.iter().map(AskedCheck::ask);
        match self.is_denied_elsewhere {
            false => decide(asks, readings),
            true => decide_denied(asks, readings),
        }
    }

    /// The same of a single check. A penalty counts nothing, as no check before it is denied.
    pub(super) fn decide_single(&self, reading: &Reading) -> Decision {
        let check = &self.checks[0];
        let is_committed =
            reading.fits && !self.is_denied_elsewhere && !check.algorithm.is_penalty();
        check.algorithm.decide(reading, &check.action, is_committed)
    }

    pub(super) fn has_penalty(&self) -> bool {
        let mut checks = self.checks.iter();
        checks.any(|check| check.algorithm.is_penalty() && check.action != Action::Reset)
    }
}

impl AskedCheck {
    fn of(check: &Check<'_>, is_single: bool) -> Self {
        Self {
            algorithm: check.algorithm,
            action: check.action,
            // Without another check beside it, that makes no difference.
            is_shadow: check.is_shadow && !is_single,
            is_extra_rate: check.policy.extra_rate().is_some() && !is_single,
            id: is_in_record(check).then(|| record_id(check)),
        }
    }

    fn ask(&self) -> Ask<'_> {
        Ask {
            is_shadow: self.is_shadow,
            is_extra_rate: self.is_extra_rate,
            ..Ask::enforced(&self.algorithm, &self.action)
        }
    }

    /// What it acquires, if only the sum matters to the state.
    fn acquires(&self) -> Option<Acquire> {
        match self.action {
            Action::Acquire(acquire) => {
                let is_sum = acquire.cost > 0 && self.algorithm.lease().is_none();
                is_sum.then_some(acquire)
            }
            _ => None,
        }
    }

    fn takes_fewer(&self) -> bool {
        self.action.takes_fewer() && self.algorithm.lease().is_none()
    }

    pub(super) fn write_to(&self, command: &mut Cmd, script: &Composed) {
        let name = self.algorithm.name();
        match (self.is_shadow, self.is_extra_rate) {
            (false, false) => command.arg(name),
            (false, true) => command.arg(["+", name].concat()),
            (true, false) => command.arg(["~", name].concat()),
            (true, true) => command.arg(["~+", name].concat()),
        };
        let action = match self.takes_fewer() {
            true => self.action.least(),
            false => self.action,
        };
        command.arg(self.algorithm.verb(&action));
        for number in &self.algorithm.arguments(&action)[..script.numbers()] {
            command.arg(*number);
        }
        match &self.id {
            Some(id) => command.arg(u32::from_be_bytes(*id)),
            None => command.arg(""),
        };
    }
}
