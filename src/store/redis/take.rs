//! `Take`: a question that may share a trip with others, and `Together`: those that do.

use super::keys::{Prefix, field};
use super::plain_batch::PlainBatch;
use super::queue::Queue;
use crate::algorithm::{Action, PlainTake, Reading, decide_alone};
use crate::decision::Decision;
use crate::error::StoreError;
use crate::store::Check;
use crate::store::deny_cache::asked::Asked as Noted;
use crate::store::owned::OwnedCheck;
use crate::time::Micros;

/// A take by one enforced check. It is handed from who asks to who goes on the trip, and may come
/// back: so it stays in one place.
pub(super) struct Take {
    /// What its key is known by in this process.
    pub(super) fingerprint: u128,
    check: OwnedCheck,
    /// What it is where one integer tells all.
    pub(super) plain: Option<PlainTake>,
    /// Zero asks the server's clock.
    pub(super) now: Micros,
    /// Who is to be told of its answer, for the memory of denials.
    pub(super) noted: Option<Noted>,
}

impl Take {
    /// `None` when the checks ask for something else.
    pub(super) fn of(checks: &[Check<'_>], now: Micros) -> Option<Box<Self>> {
        let [check] = checks else { return None };
        let Action::Take(take) = &check.action else {
            return None;
        };
        let may_share = take.cost > 0
            && take.lease.is_none()
            && check.algorithm.lease().is_none()
            && !check.algorithm.is_penalty()
            && !check.is_shadow;
        may_share.then(|| {
            let plain = PlainTake::of(&check.algorithm, &check.action);
            Box::new(Self {
                // Another algorithm has another key.
                fingerprint: check.fingerprint() ^ u128::from(check.algorithm.number()),
                check: OwnedCheck::of(check),
                plain: plain.filter(|_| field(check).is_empty()),
                now,
                noted: None,
            })
        })
    }

    /// What it asks.
    pub(super) fn check(&self) -> Check<'_> {
        self.check.check()
    }

    /// The decision, when this was read.
    pub(super) fn decided(self: Box<Self>, reading: Reading) -> Decision {
        let decision = decide_alone(self.check().ask(), &reading);
        if let Some(noted) = self.noted {
            noted.decided(&[decision]);
        }
        decision
    }
}

/// What was read of each of some takes; `None` of one whose key has another form, and of one that failed
/// alone, why.
pub(super) type Readings = Vec<Result<Option<Reading>, StoreError>>;

/// Takes that share a trip.
pub(super) enum Together {
    Plain(PlainBatch),
    /// Of one key.
    Any(Queue),
}

impl Together {
    /// By the leanest script that can. `None` of no takes.
    pub(super) fn of(takes: &[&Take], prefix: &Prefix) -> Option<Self> {
        let plain = takes.iter().map(|take| Some((*take, take.plain?)));
        match plain.collect::<Option<Vec<_>>>() {
            Some(plain) => PlainBatch::of(&plain, prefix).map(Self::Plain),
            None => Queue::of(takes, prefix).map(Self::Any),
        }
    }
}
