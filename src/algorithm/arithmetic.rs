//! `Arithmetic`: what each algorithm's file implements, and how [`Algorithm`](super::Algorithm)
//! calls it.

use super::action::{Acquire, Action, Wait};
use super::reading::{Arguments, Reading, Share};
use crate::decision::{Decision, Origin, Outcome, Receipt, is_near_limit};
use crate::time::Micros;

/// What one algorithm's file implements: the Rust counterpart of its script. Methods that
/// [`Algorithm`](super::Algorithm) documents under the same name are not documented again.
pub(super) trait Arithmetic: Sized {
    type State: Default;
    const CAN_WAIT: bool = false;
    const IS_PENALTY: bool = false;

    /// Reads whether permits fit. A cost of 0 always fits.
    fn read(&self, state: &Self::State, now: Micros, acquire: &Acquire) -> Reading;
    /// Reads for a charge of this many permits, which always fits.
    #[inline]
    fn read_to_charge(&self, state: &Self::State, now: Micros, permits: u64) -> Reading {
        let _ = permits;
        self.read(state, now, &Acquire::look())
    }
    /// Repairs a state that was written while the clock was ahead: all that begins after `now` in it
    /// begins now instead. `None` unless something begins more than a window after `now`. Up to a
    /// window, time stands still until the clock has caught up: that frees no permits if the clock is
    /// corrected, and a denied client waits for at most two windows. Not for actions that give back,
    /// which find permits by the time when they were acquired.
    #[inline]
    fn repaired(&self, state: &Self::State, now: Micros, action: &Action) -> Option<Self::State> {
        let _ = (state, now, action);
        None
    }
    /// Decides the only check of a question, and carries it out if it fits.
    #[cfg(feature = "memory")]
    fn ask(&self, state: &mut Self::State, now: Micros, action: &Action) -> Decision {
        ask(self, state, now, action)
    }
    /// Turns the reading into the answer; `committed` says whether the action was carried out.
    fn decide(&self, reading: &Reading, action: &Action, committed: bool) -> Decision {
        decide(self, reading, action, committed)
    }
    /// Carries out an action.
    #[inline]
    fn apply(&self, state: &mut Self::State, now: Micros, action: &Action) {
        match action {
            Action::Acquire(Acquire { cost: 0, .. }) | Action::Charge(0) => {}
            Action::Acquire(acquire) => self.take(state, now, acquire),
            Action::Charge(permits) => self.charge(state, now, *permits),
            Action::Reset => *state = Self::State::default(),
            action => self.adjust(state, now, action),
        }
    }
    /// Takes permits unconditionally.
    fn charge(&self, state: &mut Self::State, now: Micros, permits: u64);
    /// Acquires permits that fit.
    fn take(&self, state: &mut Self::State, now: Micros, acquire: &Acquire) {
        self.charge(state, now, acquire.cost);
    }
    /// Carries out an action that gives back, renews or resets. Does nothing if the algorithm does
    /// not support it.
    fn adjust(&self, state: &mut Self::State, now: Micros, action: &Action);
    fn expires_at(state: &Self::State) -> Micros;
    #[inline]
    fn capacity(&self) -> u64 {
        self.quota().0
    }
    fn queues(&self) -> bool {
        false
    }
    /// Scales its permits to a share.
    fn scale(&mut self, share: Share);
    fn quota(&self) -> (u64, Micros);
    /// The same for the window of a reading, if windows differ in their lengths.
    #[inline]
    fn quota_of(&self, reading: &Reading) -> (u64, Micros) {
        let _ = reading;
        self.quota()
    }
    /// The remaining permits after `charged` were acquired since the reading.
    fn left(&self, reading: &Reading, charged: u64) -> Left;
    fn arguments(&self, action: &Action) -> Arguments;
    /// The reading after this many more permits were acquired at its instant.
    #[cfg(feature = "redis")]
    fn behind(&self, reading: &Reading, permits: u64) -> Reading {
        let [used, back_in] = reading.level;
        Reading {
            level: [used.saturating_add(permits), back_in],
            next: Micros::ZERO,
            ..*reading
        }
    }
    /// The level that was read, reconstructed from a decision that has acquired nothing.
    fn level(&self, decision: &Decision) -> [u64; 2] {
        let (limit, _) = self.quota();
        let used = limit.saturating_sub(decision.remaining);
        [used, decision.reset_after.get()]
    }
    /// The reading for `acquire` after `elapsed`, computed from this reading, which was for `cost`, if
    /// the key has not changed. `None` if it cannot be computed. If `acquire` costs more than `cost`,
    /// its real wait may be longer.
    fn later(
        &self,
        reading: &Reading,
        cost: u64,
        elapsed: Micros,
        acquire: &Acquire,
    ) -> Option<Reading> {
        let is_known = match reading.fits {
            true => acquire.cost == cost,
            // The reading knows when `cost` permits are back, and that no more come back before.
            false => acquire.cost >= cost && reading.wait > elapsed,
        };
        if !is_known {
            return None;
        }
        let [used, back_in] = reading.level;
        Some(Reading {
            fits: reading.fits,
            wait: reading.wait.saturating_sub(elapsed),
            level: [used, back_in.saturating_sub(elapsed.get())],
            next: reading.next.saturating_sub(elapsed),
            at: reading.at.saturating_add(elapsed),
        })
    }
}

/// The remaining permits of a key.
pub(super) struct Left {
    pub(super) remaining: u64,
    /// How long until all are back.
    pub(super) reset_after: Micros,
    /// How long until a permit is back at the latest, if none is left. For a window whose permits
    /// all come back together, the time until then in any case.
    pub(super) renews_after: Micros,
    /// Whether all are back then.
    pub(super) renews_whole: bool,
    /// The mark of the acquire that left this; see [`Receipt`].
    pub(super) mark: [u64; 2],
}

impl Left {
    /// `next` is the time until a permit is back if none is left. If it is zero, that is not known,
    /// and the time until all are back stands in.
    pub(super) fn new(remaining: u64, next: Micros, reset_after: Micros) -> Self {
        Self {
            remaining,
            reset_after,
            renews_after: match remaining {
                0 if next.is_zero() => reset_after,
                0 => next,
                _ => Micros::ZERO,
            },
            renews_whole: false,
            mark: [0; 2],
        }
    }
}

#[inline]
pub(super) fn read<T: Arithmetic>(
    algorithm: &T,
    state: &T::State,
    now: Micros,
    action: &Action,
) -> Reading {
    let repaired = repaired(algorithm, state, now, action);
    let state = repaired.as_ref().unwrap_or(state);
    match action {
        Action::Acquire(acquire) => algorithm.read(state, now, acquire),
        Action::Charge(permits @ 1..) => algorithm.read_to_charge(state, now, *permits),
        _ => algorithm.read(state, now, &Acquire::look()),
    }
}

#[inline]
fn repaired<T: Arithmetic>(
    algorithm: &T,
    state: &T::State,
    now: Micros,
    action: &Action,
) -> Option<T::State> {
    if action.gives_back() {
        return None;
    }
    algorithm.repaired(state, now, action)
}

#[inline]
pub(super) fn commit<T: Arithmetic>(
    algorithm: &T,
    state: &mut T::State,
    now: Micros,
    action: &Action,
    reading: Reading,
) -> Reading {
    if let Some(repaired) = repaired(algorithm, state, now, action) {
        *state = repaired;
    }
    if !reading.fits {
        return reading;
    }
    algorithm.apply(state, now, action);
    match action {
        Action::Acquire(_) | Action::Charge(_) => reading,
        // A script that gives permits back does not compute when the next one comes.
        action if action.gives_back() => Reading {
            next: Micros::ZERO,
            ..read(algorithm, state, now, action)
        },
        action => read(algorithm, state, now, action),
    }
}

/// Decides the only check of a question, and carries it out if it fits.
#[cfg(feature = "memory")]
pub(super) fn ask<T: Arithmetic>(
    algorithm: &T,
    state: &mut T::State,
    now: Micros,
    action: &Action,
) -> Decision {
    let mut reading = read(algorithm, state, now, action);
    // No check before it was denied, so a penalty has nothing to count.
    let is_carried_out = reading.fits && (!T::IS_PENALTY || *action == Action::Reset);
    if is_carried_out || !reading.fits {
        reading = commit(algorithm, state, now, action, reading);
    }
    decide(algorithm, &reading, action, is_carried_out)
}

/// Turns the reading into the answer; `committed` says whether the action was carried out.
pub(super) fn decide<T: Arithmetic>(
    algorithm: &T,
    reading: &Reading,
    action: &Action,
    committed: bool,
) -> Decision {
    let mut reading = *reading;
    if *action == Action::Reset {
        // A script forgets a key without reading it.
        reading = algorithm.read(&T::State::default(), reading.at, &Acquire::look());
    }
    let acquired = if committed { action.acquires() } else { 0 };
    let Left {
        remaining,
        reset_after,
        renews_after,
        renews_whole,
        mark,
    } = algorithm.left(&reading, acquired);
    let mut receipt = Receipt {
        at: reading.at,
        mark,
        taken_of: Origin::Store,
    };
    if action.is_final() {
        // The permits are never given back, and the fast path decides without the instant, so no
        // answer contains one.
        receipt.at = Micros::ZERO;
        receipt.mark[0] = mark[0].saturating_sub(reading.at.get());
    }
    let (limit, window) = algorithm.quota_of(&reading);
    let mut decision = Decision {
        granted: if action.takes_fewer() { acquired } else { 0 },
        remaining,
        reset_after,
        renews_after,
        renews_whole,
        receipt,
        ..Decision::unasked(Outcome::Allowed, (limit, window))
    };
    if T::IS_PENALTY {
        // The reset of a penalty is the end of its ban.
        decision.ban = reset_after;
    }
    if reading.fits {
        decision.is_near_limit = is_near_limit(remaining, algorithm.capacity());
        if T::CAN_WAIT {
            decision.delay = reading.wait;
        }
    } else {
        deny(algorithm, &mut decision, &reading, action);
    }
    decision
}

/// Sets the reason and the wait of a denial.
fn deny<T: Arithmetic>(algorithm: &T, decision: &mut Decision, reading: &Reading, action: &Action) {
    if matches!(action, Action::Acquire(acquire) if never_fits(algorithm, acquire)) {
        decision.outcome = Outcome::NeverFits;
        return;
    }
    decision.retry_after = reading.wait;
    if action.wait() != Wait::None {
        if algorithm.queues() {
            // A full queue also denies requests whose delay would not be too long.
            decision.delay = algorithm.left(reading, 0).reset_after;
        } else if T::CAN_WAIT {
            decision.delay = reading.wait.saturating_add(action.wait().longest());
        }
    }
    if T::IS_PENALTY {
        decision.outcome = Outcome::Banned;
    } else {
        decision.outcome = Outcome::Denied;
        // After this wait the whole cost fits, and so does a single permit.
        decision.renews_after = decision.renews_after.min(reading.wait);
    }
}

/// Whether the cost does not fit in any state.
pub(super) fn never_fits<T: Arithmetic>(algorithm: &T, acquire: &Acquire) -> bool {
    let borrows = T::CAN_WAIT && matches!(acquire.wait, Wait::Burst(_));
    acquire.least().cost > algorithm.capacity() && !borrows
}
