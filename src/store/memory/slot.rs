//! One key's slot in the table, and the number it is found by.

use crate::algorithm::{Action, State};
use crate::decision::{Decision, Outcome};
use crate::random::KeyedHash;
use crate::store::Check;
use crate::time::Micros;

/// How many times the hand spares a used key before evicting it.
const MOST_CHANCES: u8 = 3;

/// How far the clock may step back before a state that was already over is missed.
const GRACE: Micros = Micros::new(1_000_000);

/// The number that a key is found by: the hash of the subject, the policy's name and the
/// algorithm's number, [scattered](KeyedHash) by the store. The highest bits choose the shard, the
/// next ones the bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Fingerprint(u128);

impl Fingerprint {
    pub(super) fn of(check: &Check<'_>, keyed_hash: &KeyedHash) -> Self {
        Self(keyed_hash.of(check.fingerprint()))
    }

    /// Its shard, below 2^`bits`.
    pub(super) fn shard(self, bits: u32) -> usize {
        (self.0 >> (u128::BITS - bits)) as usize
    }

    /// Its hash within the shard, without the lowest bits: see [`KeyedHash::of`].
    pub(super) fn hash(self) -> u64 {
        (self.0 >> 48) as u64
    }
}

/// A key's state, and what the clock's hand needs to know of it. One cache line, so that a look
/// costs one memory access.
#[repr(align(64))]
pub(super) struct Slot {
    pub(super) fingerprint: Fingerprint,
    pub(super) state: State,
    kept_until: Micros,
    /// The cost that would be denied until then, times 256, and the chances: no cost is that large,
    /// and a word for each would be more than the line has room for.
    kept_cost_and_chances: u64,
}

impl Slot {
    /// A new key has no chances: it gains them when it is used again.
    pub(super) fn new(fingerprint: Fingerprint, state: State) -> Self {
        Self {
            fingerprint,
            state,
            kept_until: Micros::ZERO,
            kept_cost_and_chances: 0,
        }
    }

    /// Decides the only check of a question, and carries it out if it fits.
    #[inline]
    pub(super) fn ask(&mut self, check: &Check<'_>, now: Micros) -> Decision {
        self.used();
        check.algorithm.ask(&mut self.state, now, &check.action)
    }

    /// Notes that the key was used. A denied request uses it, too.
    pub(super) fn used(&mut self) {
        self.set_chances(MOST_CHANCES.min(self.chances() + 1));
    }

    fn chances(&self) -> u8 {
        self.kept_cost_and_chances as u8
    }

    fn set_chances(&mut self, chances: u8) {
        self.kept_cost_and_chances = self.kept_cost() << 8 | u64::from(chances);
    }

    fn kept_cost(&self) -> u64 {
        self.kept_cost_and_chances >> 8
    }

    fn keep_for(&mut self, cost: u64) {
        self.kept_cost_and_chances = cost << 8 | u64::from(self.chances());
    }

    /// Notes until when the key must not be evicted. Returns whether that is sooner than before.
    ///
    /// A key is kept while its subject is denied, or would be if it asked the same again, and while
    /// permits are held, which are counted nowhere else. A key that is asked in shadow is not kept.
    ///
    /// Decided anew each time: permits may have been given back, and the limit may have changed.
    #[inline]
    pub(super) fn note(&mut self, check: &Check<'_>, decision: &Decision, now: Micros) -> bool {
        let before = self.kept_until;
        self.kept_until = if check.is_shadow {
            match check.action {
                Action::Acquire(_) => Micros::ZERO,
                // The request began before the policy was enforced. Others may hold permits now.
                _ => before,
            }
        } else if check.algorithm.lease().is_some() {
            self.state.expires_at()
        } else {
            self.denied_until(check, decision, now)
        };
        self.kept_until < before
    }

    /// Until when the subject is denied, or would be if it asked the same again. A key kept for a
    /// cost stays kept through smaller ones, until that cost would be allowed.
    #[inline]
    fn denied_until(&mut self, check: &Check<'_>, decision: &Decision, now: Micros) -> Micros {
        // A charge asks for nothing, and no wait helps a cost that never fits.
        let asked = match check.action {
            Action::Acquire(_) if decision.outcome != Outcome::NeverFits => {
                check.action.acquires().max(1)
            }
            _ => 1,
        };
        let cost = match self.kept_until(now) {
            Some(_) => asked.max(self.kept_cost()),
            None => asked,
        };
        let is_denied = !decision.retry_after.is_zero();
        if !is_denied && cost <= decision.remaining && decision.ban.is_zero() {
            return Micros::ZERO;
        }
        self.keep_for(cost);
        // A caller that is ready to wait is denied for less time than one that is not.
        if is_denied && cost == asked && decision.delay.is_zero() {
            return now.saturating_add(decision.retry_after);
        }
        self.denied_again_until(check, decision, now)
    }

    /// The same, for the cost that the key is kept for.
    fn denied_again_until(&self, check: &Check<'_>, decision: &Decision, now: Micros) -> Micros {
        // More may have been borrowed, or the limit lowered: no more than the capacity ever fits.
        let again = Action::acquire(self.kept_cost().min(check.algorithm.capacity()));
        let reading = check.algorithm.read(&self.state, now, &again);
        let mut wait = decision.retry_after;
        if !reading.fits {
            wait = wait.max(reading.wait);
        }
        if wait.is_zero() {
            return Micros::ZERO;
        }
        now.saturating_add(wait)
    }

    /// Whether the state has equalled the untouched one for at least [`GRACE`], so that nobody
    /// misses it: a clock that is set back within that time finds no debt forgotten.
    pub(super) fn is_over(&self, now: Micros) -> bool {
        self.state.expires_at().saturating_add(GRACE) <= now
    }

    /// Until when the key must not be evicted, because its subject would get a fresh quota while it
    /// is denied or holds permits.
    pub(super) fn kept_until(&self, now: Micros) -> Option<Micros> {
        Some(self.kept_until).filter(|&until| now < until)
    }

    /// Takes one chance as the hand passes. Returns how many there were.
    pub(super) fn take_chance(&mut self) -> u8 {
        let left = self.chances();
        self.set_chances(left.saturating_sub(1));
        left
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use super::*;
    use crate::algorithm::{Acquire, LeaseId, Wait};
    use crate::limit::Limit;
    use crate::store::PolicyId;
    use crate::time::{MINUTE, SECOND};

    pub(crate) const NOW: Micros = Micros::new(1_000_000);
    const LIMIT: Limit = Limit::gcra(10, MINUTE);

    /// A slot of some key that has used one permit of ten.
    pub(crate) fn slot(key: u64) -> Slot {
        let policy = PolicyId::new("api");
        let check = Check::of(&policy, key, &LIMIT, Action::acquire(1));
        let mut slot = Slot::new(
            Fingerprint(check.fingerprint()),
            check.algorithm.untouched(),
        );
        let _ = check.algorithm.ask(&mut slot.state, NOW, &check.action);
        slot
    }

    /// How long the slot is kept after one more action, at the same instant as all others.
    fn kept(slot: &mut Slot, limit: &Limit, action: Action) -> Option<Duration> {
        kept_in(slot, limit, action, false)
    }

    fn kept_in_shadow(slot: &mut Slot, limit: &Limit, action: Action) -> Option<Duration> {
        kept_in(slot, limit, action, true)
    }

    fn kept_in(
        slot: &mut Slot,
        limit: &Limit,
        action: Action,
        is_shadow: bool,
    ) -> Option<Duration> {
        let policy = PolicyId::new("api");
        let check = Check::of(&policy, 0, limit, action).in_shadow(is_shadow);
        let decision = slot.ask(&check, NOW);
        slot.note(&check, &decision, NOW);
        let until = slot.kept_until(NOW)?;
        Some(until.saturating_sub(NOW).to_duration())
    }

    #[test]
    fn a_slot_is_one_cache_line() {
        assert_eq!(size_of::<Slot>(), 64);
    }

    /// Nine of ten are used.
    #[test]
    fn a_smaller_cost_that_is_denied_shortens_nothing() {
        let mut slot = slot(0);
        assert_eq!(
            kept(&mut slot, &LIMIT, Action::acquire(8)),
            Some(42 * SECOND)
        );
        assert_eq!(
            kept(&mut slot, &LIMIT, Action::acquire(2)),
            Some(42 * SECOND)
        );
    }

    #[test]
    fn a_patient_denial_keeps_the_entry_as_long_as_an_impatient_one() {
        let mut slot = slot(0);
        let patient = Action::Acquire(Acquire {
            cost: 3,
            wait: Wait::Strict(Micros::from(5 * SECOND)),
            lease: None,
            is_final: true,
            takes_fewer: false,
        });
        for wait in [None, None, Some(18 * SECOND)] {
            assert_eq!(kept(&mut slot, &LIMIT, Action::acquire(3)), wait);
        }
        assert_eq!(kept(&mut slot, &LIMIT, patient), Some(18 * SECOND));
    }

    #[test]
    fn a_cost_that_never_fits_keeps_a_key_no_longer_than_others_do() {
        let mut slot = slot(0);
        assert_eq!(kept(&mut slot, &LIMIT, Action::acquire(11)), None);
        assert_eq!(
            kept(&mut slot, &LIMIT, Action::acquire(8)),
            Some(42 * SECOND)
        );
        assert_eq!(
            kept(&mut slot, &LIMIT, Action::acquire(11)),
            Some(42 * SECOND)
        );
    }

    /// Otherwise, after everything is given back, it would be kept for a cost that never fits.
    #[test]
    fn under_a_lowered_limit_a_key_is_kept_for_no_more_than_all_of_it() {
        let mut slot = slot(0);
        assert_eq!(
            kept(&mut slot, &LIMIT, Action::acquire(8)),
            Some(42 * SECOND)
        );
        let lowered = Limit::gcra(5, MINUTE);
        assert_eq!(
            kept(&mut slot, &lowered, Action::acquire(1)),
            Some(54 * SECOND)
        );
        assert_eq!(kept(&mut slot, &lowered, Action::Reset), None);
    }

    /// Two requests, of which the first one began before the policy was enforced.
    #[test]
    fn what_ends_or_goes_on_in_shadow_lets_no_key_go_that_is_kept() {
        let limit = Limit::concurrency(2).lease(MINUTE);
        let [first, second] = [LeaseId::new(), LeaseId::new()];
        let place = |lease| Action::Acquire(Acquire::new(1).with_lease(lease));
        let mut slot = slot(0);
        assert_eq!(kept_in_shadow(&mut slot, &limit, place(first)), None);
        assert_eq!(kept(&mut slot, &limit, place(second)), Some(MINUTE));
        for action in [Action::Renew(first), Action::Release(first)] {
            assert_eq!(kept_in_shadow(&mut slot, &limit, action), Some(MINUTE));
        }
        assert_eq!(kept_in_shadow(&mut slot, &limit, place(first)), None);
    }
}
