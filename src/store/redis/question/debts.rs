//! `DebtQuestion`: a question whose checks are fast-path acquires, and its decisions by the debts of its
//! keys before it.

use smallvec::SmallVec;

use crate::algorithm::{FastPath, FixedMicros};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Check;
use crate::store::check::OwnedCheck;
use crate::store::redis::keys::{fingerprint_of_key, fingerprint_of_state, is_in_record};
use crate::store::redis::reply::Decided;

/// A question of more checks makes up much of a batch, so the fast path gains nothing.
const MOST_ACQUIRES: usize = 64;

/// The checks of a question, each a fast-path acquire.
pub(in crate::store::redis) struct DebtQuestion {
    pub(super) keys: Keys,
    pub(super) acquires: SmallVec<[Acquire; 1]>,
}

/// The keys of a question's debts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    /// In one key, alone.
    One,
    /// Each in a key of its own.
    Several,
    /// In the record of a group.
    Group,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Acquire {
    pub(super) price: FastPath,
    /// Whether the question is denied when this does not fit. Shadow checks block nothing.
    pub(super) is_blocking: bool,
}

/// The debts of a question's keys before it.
pub(in crate::store::redis) struct OwedBefore {
    /// Before the first of the equal questions that share a row; `None` for a corrupt value.
    pub(super) debts: SmallVec<[Option<FixedMicros>; 1]>,
    /// How many of these came before it.
    pub(super) repeated: u64,
}

impl DebtQuestion {
    /// `None` if the checks ask for anything else.
    pub(super) fn of(checks: &[Check<'_>]) -> Option<Self> {
        let (first, others) = checks.split_first()?;
        if checks.len() > MOST_ACQUIRES {
            return None;
        }
        // The rates of a shadow limit depend on each other. If the question has no other checks, that
        // is the same as enforced.
        let are_of_one_limit = others
            .iter()
            .all(|check| check.is_shadow == first.is_shadow && is_same_limit(first, check));
        let mut acquires = SmallVec::with_capacity(checks.len());
        for check in checks {
            if check.is_shadow && check.policy.extra_rate().is_some() && !are_of_one_limit {
                return None;
            }
            acquires.push(Acquire {
                price: FastPath::of(&check.algorithm, &check.action)?,
                is_blocking: are_of_one_limit || !check.is_shadow,
            });
        }
        Some(Self {
            keys: Keys::of(first, others)?,
            acquires,
        })
    }

    pub(super) fn coalescing_key(&self, first: &Check<'_>) -> Option<u128> {
        match self.keys {
            Keys::One => Some(fingerprint_of_state(first)),
            Keys::Group => Some(fingerprint_of_key(first)),
            Keys::Several => None,
        }
    }

    /// The decisions about these checks.
    ///
    /// # Errors
    ///
    /// If the question depends on a corrupt value.
    pub(super) fn decide(
        &self,
        checks: &[OwnedCheck],
        owed: &OwedBefore,
    ) -> Result<Decided, StoreError> {
        let decided = |(check, acquire): (&OwnedCheck, &Acquire), debt, admitted, is_admitted| {
            let reading = acquire.price.read_after(debt, admitted);
            let is_committed = is_admitted && reading.fits;
            let OwnedCheck {
                algorithm, action, ..
            } = check;
            algorithm.decide(&reading, action, is_committed)
        };
        // Most questions have one check.
        if let ([acquire], [check], &[Some(debt)]) = (&*self.acquires, checks, &*owed.debts) {
            let admitted = acquire.price.fitting(debt, owed.repeated);
            let decision = decided((check, acquire), debt, admitted, true);
            return Ok(SmallVec::from_buf([decision]));
        }
        let mut admitted = owed.repeated;
        for (acquire, debt) in self.blocking(owed) {
            let debt = debt.ok_or_else(|| StoreError::new(StoreErrorKind::CorruptValue))?;
            admitted = admitted.min(acquire.price.fitting(debt, owed.repeated));
        }
        // The questions before it are equal, so if one of them was denied, it is.
        let mut is_admitted = true;
        for (acquire, debt) in self.blocking(owed) {
            let debt = debt.unwrap_or_default();
            is_admitted &= acquire.price.read_after(debt, admitted).fits;
        }
        let each = checks.iter().zip(&self.acquires).zip(&owed.debts);
        let each = each.map(|((check, acquire), debt)| match *debt {
            Some(debt) => {
                let before = acquire.price.fitting(debt, admitted);
                decided((check, acquire), debt, before, is_admitted)
            }
            None => check.check().failed(StoreErrorKind::CorruptValue),
        });
        Ok(each.collect())
    }

    fn blocking<'a>(
        &'a self,
        owed: &'a OwedBefore,
    ) -> impl Iterator<Item = (&'a Acquire, Option<FixedMicros>)> {
        let each = self.acquires.iter().zip(&owed.debts);
        let blocking = each.filter(|(acquire, _)| acquire.is_blocking);
        blocking.map(|(acquire, debt)| (acquire, *debt))
    }
}

/// Whether both are rates of one limit.
fn is_same_limit(one: &Check<'_>, other: &Check<'_>) -> bool {
    one.policy.name() == other.policy.name() && one.algorithm.name() == other.algorithm.name()
}

impl Keys {
    /// `None` for a mixture, which the composed script evaluates.
    fn of(first: &Check<'_>, others: &[Check<'_>]) -> Option<Self> {
        if is_in_record(first) {
            let key = fingerprint_of_key(first);
            let are_in_it = others.iter().all(|other| fingerprint_of_key(other) == key);
            return are_in_it.then_some(Self::Group);
        }
        if others.is_empty() {
            return Some(Self::One);
        }
        let mut known: SmallVec<[u128; 8]> = SmallVec::new();
        known.push(fingerprint_of_state(first));
        for other in others {
            let state = fingerprint_of_state(other);
            if is_in_record(other) || known.contains(&state) {
                return None;
            }
            known.push(state);
        }
        Some(Self::Several)
    }
}
