//! One key's place in the table, and the number it is found by.

use crate::algorithm::{Action, State};
use crate::decision::{Decision, Outcome};
use crate::store::Check;
use crate::time::Micros;

/// How many times the hand passes over a key that has been used, before it may be evicted.
const MOST_CHANCES: u8 = 3;

/// How far a clock may step back without a state being missed that was over before.
const GRACE: Micros = Micros::new(1_000_000);

/// What a key is found by: the hash of the subject, the policy's name and the algorithm's number.
///
/// Uniformly distributed, because the subject is. It is taken apart rather than hashed again: the
/// highest bits choose the shard, the lowest the bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(u128);

impl Fingerprint {
    pub(super) fn of(check: &Check<'_>) -> Self {
        Self(check.state_fingerprint())
    }

    /// Its shard, below 2^`bits`.
    pub(super) fn shard(self, bits: u32) -> usize {
        (self.0 >> (u128::BITS - bits)) as usize
    }

    /// Its hash within the shard.
    pub(super) fn hash(self) -> u64 {
        self.0 as u64
    }
}

/// A key's state, and what the hand needs to know of it. One cache line: looking at it is one
/// access to memory.
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) fingerprint: Fingerprint,
    pub(super) state: State,
    kept_until: Micros,
    chances: u8,
}

impl Slot {
    /// A new key enters cold: only being used again gives it chances.
    pub(super) fn new(fingerprint: Fingerprint, state: State) -> Self {
        Self {
            fingerprint,
            state,
            kept_until: Micros::ZERO,
            chances: 0,
        }
    }

    /// Decides the only check of a question, and carries it out if it fits.
    #[inline]
    pub(super) fn ask(&mut self, check: &Check<'_>, now: Micros) -> Decision {
        let decision = check.algorithm.ask(&mut self.state, now, &check.action);
        self.used();
        self.note(check, &decision, now);
        decision
    }

    /// Notes that the key was used, which a denied request does too.
    pub(super) fn used(&mut self) {
        self.chances = MOST_CHANCES.min(self.chances + 1);
    }

    /// Notes until when the key must not be evicted.
    ///
    /// That is while the subject is denied, or would be if it asked the same again; and while
    /// anything is held, which is counted nowhere else. What only counts is kept from nobody.
    #[inline]
    pub(super) fn note(&mut self, check: &Check<'_>, decision: &Decision, now: Micros) {
        if check.is_shadow {
            self.kept_until = Micros::ZERO;
            return;
        }
        if check.algorithm.lease().is_some() {
            self.kept_until = self.state.expires_at();
            return;
        }
        let wait = match decision.outcome {
            Outcome::NeverFits => return,
            Outcome::Allowed => {
                let again = check.action.takes().max(1);
                if again <= decision.remaining && decision.ban.is_zero() {
                    return;
                }
                let again = Action::take(again);
                let reading = check.algorithm.read(&self.state, now, &again);
                if reading.fits {
                    return;
                }
                reading.wait
            }
            _ => decision.retry_after,
        };
        self.kept_until = self.kept_until.max(now.saturating_add(wait));
    }

    /// Whether the state equals the untouched one, so that nobody misses it; for a moment already,
    /// so that a clock that is corrected does not find a debt forgotten.
    pub(super) fn is_over(&self, now: Micros) -> bool {
        self.state.expires_at().saturating_add(GRACE) <= now
    }

    /// Until when the key must not be evicted, because its subject would get a fresh quota while
    /// it is denied or holds permits.
    pub(super) fn kept_until(&self, now: Micros) -> Option<Micros> {
        Some(self.kept_until).filter(|&until| now < until)
    }

    /// The chances left; the hand has passed and takes one.
    pub(super) fn take_chance(&mut self) -> u8 {
        let left = self.chances;
        self.chances = left.saturating_sub(1);
        left
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::algorithm::Algorithm;
    use crate::key::Key;
    use crate::limit::Limit;
    use crate::store::{FailureMode, PolicyId};
    use crate::time::MINUTE;

    pub(crate) const NOW: Micros = Micros::new(1_000_000);

    /// A key of no interest, which has used one permit of ten.
    pub(crate) fn slot(key: u64) -> Slot {
        let policy = PolicyId::new("api");
        let check = Check {
            policy: &policy,
            subject: Key::from(key).subject(None),
            algorithm: Algorithm::try_from(&Limit::gcra(10, MINUTE)).unwrap(),
            action: Action::take(1),
            is_shadow: false,
            on_store_failure: FailureMode::Deny,
        };
        let mut slot = Slot::new(Fingerprint::of(&check), check.algorithm.untouched());
        let reading = check.algorithm.read(&slot.state, NOW, &check.action);
        check
            .algorithm
            .commit(&mut slot.state, NOW, &check.action, reading);
        slot
    }

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }
}
