//! `Take`: a question that may share a trip with others, and `Together`: those that do.

use super::keys::Prefix;
use super::plain::{Plain, PlainQueue};
use super::queue::{Queue, Single, decision};
use crate::algorithm::{Algorithm, Reading};
use crate::decision::Decisions;
use crate::store::Check;
use crate::store::deny_cache::asked::Asked as Noted;
use crate::time::Micros;

/// A take, and who is to be told of its answer for the memory of denials.
pub(super) struct Take {
    pub(super) asking: Asking,
    pub(super) noted: Option<Noted>,
}

/// What a take asks.
#[expect(
    clippy::large_enum_variant,
    reason = "a plain take is what most questions are, and a box an allocation"
)]
pub(super) enum Asking {
    Plain(Plain),
    Single(Box<Single>),
}

impl Take {
    /// The decision, when this was read.
    pub(super) fn decided(self, reading: Reading) -> Decisions {
        let decisions = decision(&self.asking.check(), reading);
        if let Some(noted) = self.noted {
            noted.decided(&decisions);
        }
        decisions
    }
}

impl Asking {
    /// What its key is known by in this process.
    pub(super) fn fingerprint(&self) -> u128 {
        self.check().fingerprint()
    }

    pub(super) fn algorithm(&self) -> Algorithm {
        match self {
            Self::Plain(plain) => plain.algorithm(),
            Self::Single(single) => single.algorithm(),
        }
    }

    fn now(&self) -> Micros {
        match self {
            Self::Plain(plain) => plain.now(),
            Self::Single(single) => single.now(),
        }
    }

    /// What it asks.
    pub(super) fn check(&self) -> Check<'_> {
        match self {
            Self::Plain(plain) => plain.check(),
            Self::Single(single) => single.check(),
        }
    }
}

/// Takes that share a trip.
pub(super) enum Together {
    Plain(PlainQueue),
    Any(Queue),
}

impl Together {
    /// By the leanest script that can. `None` of no takes.
    pub(super) fn of<'a>(
        asking: impl Iterator<Item = &'a Asking> + Clone,
        prefix: &Prefix,
    ) -> Option<Self> {
        let plain = asking.clone().map(|asking| match asking {
            Asking::Plain(plain) => Some(&plain.asked),
            Asking::Single(_) => None,
        });
        if plain.clone().all(|plain| plain.is_some()) {
            return PlainQueue::of(plain.flatten()).map(Self::Plain);
        }
        let now = asking.clone().map(Asking::now).max()?;
        Queue::of(asking.map(Asking::check), prefix, now).map(Self::Any)
    }
}
