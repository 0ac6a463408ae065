//! From a reading to a decision. Generic over the algorithm, so that none pays for what others can
//! do.

use super::{Action, Arithmetic, Left, Patience, Reading, Take};
#[cfg(feature = "memory")]
use super::{commit, read};
use crate::decision::{Decision, Origin, Outcome, Receipt, is_near_limit};
use crate::time::Micros;

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
        reading = algorithm.read(&T::State::default(), reading.at, &Take::look());
    }
    let taken = if committed { action.takes() } else { 0 };
    let Left {
        remaining,
        reset_after,
        renews_after,
        renews_whole,
        mark,
    } = algorithm.left(&reading, taken);
    let mut receipt = Receipt {
        at: reading.at,
        mark,
        taken_of: Origin::Store,
    };
    if action.is_final() {
        // Nobody gives the permits back, and a plain take is judged without the instant, so all
        // answers give none.
        receipt.at = Micros::ZERO;
        receipt.mark[0] = mark[0].saturating_sub(reading.at.get());
    }
    let (limit, window) = algorithm.quota();
    let mut decision = Decision {
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

/// Says why it is denied, and for how long.
fn deny<T: Arithmetic>(algorithm: &T, decision: &mut Decision, reading: &Reading, action: &Action) {
    if matches!(action, Action::Take(take) if never_fits(algorithm, take)) {
        decision.outcome = Outcome::NeverFits;
        return;
    }
    decision.retry_after = reading.wait;
    if action.patience() != Patience::None {
        if algorithm.queues() {
            // A full queue also denies requests that it would not have held up for too long.
            decision.delay = algorithm.left(reading, 0).reset_after;
        } else if T::CAN_WAIT {
            decision.delay = reading.wait.saturating_add(action.patience().longest());
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

/// Whether waiting does not help, whatever the state.
pub(super) fn never_fits<T: Arithmetic>(algorithm: &T, take: &Take) -> bool {
    let borrows = T::CAN_WAIT && matches!(take.patience, Patience::UntilPaid(_));
    take.cost > algorithm.capacity() && !borrows
}
