//! `PlainTakes`: several plain takes, carried out all or none, except for independent ones.

use smallvec::SmallVec;

use crate::algorithm::PlainTake;
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::key::Subject;
use crate::store::Check;
use crate::store::deny_cache::noted::Noted;
use crate::store::owned::OwnedCheck;
use crate::store::redis::server::{Server, told};
use crate::time::Micros;

/// The debt of each take's state.
pub(super) type Debts = SmallVec<[u64; 8]>;

/// The takes of a question.
pub(super) struct PlainTakes {
    /// Zero asks the server's clock.
    pub(super) now: Micros,
    takes: Vec<Take>,
    pub(super) noted: Option<Noted>,
}

/// The take of a check.
struct Take {
    check: OwnedCheck,
    plain: PlainTake,
    /// Whether no other take depends on it.
    is_by_itself: bool,
}

/// The reading of these takes.
pub(in crate::store::redis) struct Owed {
    /// The debts before the first of the equal questions that came together.
    pub(super) debts: Debts,
    /// How many of them came before this one.
    pub(super) behind: u32,
}

impl PlainTakes {
    /// Takes in shadow are independent. `None` if the checks ask for something else, such as a
    /// limit of several rates in shadow: these depend on each other, and on nothing else.
    pub(super) fn of(checks: &[Check<'_>], now: Micros) -> Option<Self> {
        let is_of_several_in_shadow =
            |check: &Check<'_>| check.is_shadow && check.policy.further_rate().is_some();
        if checks.iter().any(is_of_several_in_shadow) {
            return None;
        }
        Self::new(checks, now, |check| check.is_shadow)
    }

    /// None of the takes is independent. `None` if the checks ask for something else.
    pub(super) fn all_or_none(checks: &[Check<'_>], now: Micros) -> Option<Self> {
        Self::new(checks, now, |_| false)
    }

    fn new(
        checks: &[Check<'_>],
        now: Micros,
        is_by_itself: impl Fn(&Check<'_>) -> bool,
    ) -> Option<Self> {
        let mut takes = Vec::with_capacity(checks.len());
        for check in checks {
            let plain = PlainTake::of(&check.algorithm, &check.action);
            takes.push(Take {
                plain: plain?,
                check: OwnedCheck::of(check),
                is_by_itself: is_by_itself(check),
            });
        }
        Some(Self {
            now,
            takes,
            noted: None,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.takes.len()
    }

    pub(super) fn checks(&self) -> impl Iterator<Item = Check<'_>> {
        self.takes.iter().map(|take| take.check.check())
    }

    pub(super) fn first(&self) -> Check<'_> {
        self.takes[0].check.check()
    }

    pub(super) fn subject(&self) -> Subject {
        self.first().subject
    }

    /// The price of each.
    pub(super) fn prices(&self) -> impl Iterator<Item = PlainTake> {
        self.takes.iter().map(|take| take.plain)
    }

    /// For each, whether no other take depends on it.
    pub(super) fn by_themselves(&self) -> impl Iterator<Item = bool> {
        self.takes.iter().map(|take| take.is_by_itself)
    }

    /// Whether they cost the same as others, and depend on each other in the same way.
    pub(super) fn cost_as(&self, other: &Self) -> bool {
        self.prices().eq(other.prices()) && self.by_themselves().eq(other.by_themselves())
    }

    /// Whether they are also of the same policies as others.
    pub(super) fn ask_as(&self, other: &Self) -> bool {
        let is_same = |(one, other): (&Take, &Take)| {
            one.check.is_of_policy(&other.check)
                && one.check.is_in_group() == other.check.is_in_group()
        };
        self.cost_as(other) && self.takes.iter().zip(&other.takes).all(is_same)
    }

    /// Asks them by the composed script.
    pub(super) async fn ask_composed(&mut self, server: &Server) -> Result<Decisions, StoreError> {
        let checks: Vec<_> = self.checks().collect();
        let answer = server.ask_composed(&checks).await;
        told(self.noted.take(), answer)
    }

    /// The decisions by this reading, which the deny cache learns as well.
    pub(super) fn decided(&mut self, owed: Owed) -> Decisions {
        let each = || self.takes.iter().zip(&owed.debts);
        let holding_up = || each().filter(|(take, _)| !take.is_by_itself);
        let behind = owed.behind.into();
        let let_in = holding_up().map(|(take, debt)| take.plain.fitting(*debt, behind));
        let let_in = let_in.min().unwrap_or(behind);
        let is_let_in = holding_up().all(|(take, debt)| take.plain.read_after(*debt, let_in).fits);
        let decisions = each().map(|(take, debt)| {
            let Take { check, plain, .. } = take;
            // Of independent takes as many as fit, of those that were let in.
            let before = plain.fitting(*debt, let_in);
            let reading = plain.read_after(*debt, before);
            let is_taken = is_let_in && reading.fits;
            check.algorithm.decide(&reading, &check.action, is_taken)
        });
        let decisions: Decisions = decisions.collect();
        if let Some(noted) = self.noted.take() {
            noted.decided(&decisions);
        }
        decisions
    }
}
