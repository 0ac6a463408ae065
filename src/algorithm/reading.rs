//! `Reading`: the result of reading a state. Also what several algorithms share: the arguments of
//! scripts, the counting of permits against a limit, and the share of a limit.

use super::action::Action;
use crate::limit::MOST_PERMITS;
use crate::time::Micros;

/// The result of reading a state for an action: the five integers that a script replies for each
/// check, and the instant, which it replies once for all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// Whether the action fits.
    pub fits: bool,
    /// If the action does not fit, how long until it does; if it fits, how long to delay it. For a
    /// [`Penalty`](crate::Penalty), the rest of the ban in both cases.
    pub wait: Micros,
    /// Two integers that summarise the state, before permits are acquired or after they are given
    /// back. The header of the algorithm's script describes them.
    pub level: [u64; 2],
    /// How long until a permit comes back, if an acquire or a charge leaves none: after it is carried
    /// out, or now if it does not fit. Zero otherwise, and if the level contains it.
    pub next: Micros,
    /// The instant of the reading.
    pub at: Micros,
}

/// The arguments of one check in a script, after the algorithm's name and the action's verb: see
/// the script's header. Those that an algorithm does not have are zero and not sent.
pub(crate) type Arguments = [u64; MOST_ARGUMENTS];

/// The most arguments that a script takes for one check.
pub(crate) const MOST_ARGUMENTS: usize = 8;

impl Reading {
    /// A reading that a store has made elsewhere, as a script does: the values of its reply in order,
    /// and the instant.
    pub const fn new(fits: bool, wait: Micros, level: [u64; 2], next: Micros, at: Micros) -> Self {
        Self {
            fits,
            wait,
            level,
            next,
            at,
        }
    }
}

/// Whether a cost fits into a limit of which `used` permits are used. A cost of 0 always fits.
#[inline]
pub(super) fn fits(used: u64, cost: u64, limit: u64) -> bool {
    cost == 0 || used.saturating_add(cost) <= limit
}

/// The remaining permits of a limit, which may have been lowered below what is used.
#[inline]
pub(super) fn remaining(limit: u64, used: u64) -> u64 {
    limit.saturating_sub(used)
}

/// How many of the used permits have to come back until there is one again; zero if there is one.
#[inline]
pub(super) fn too_many(limit: u64, used: u64) -> u64 {
    (used + 1).saturating_sub(limit)
}

/// A count with this many permits more. A charge can exceed the limit, and is counted up to the
/// largest possible limit, as [`Limiter::charge`](crate::Limiter::charge) documents.
#[inline]
pub(super) fn added(used: u64, permits: u64) -> u64 {
    used.saturating_add(permits).min(MOST_PERMITS)
}

/// A window's reading for a caller that acquires nothing: everything comes back when the state
/// expires, by the window that it was charged with.
#[inline]
pub(super) fn until_forgotten(reading: Reading, expires: Micros) -> Reading {
    let [used, empty_in] = reading.level;
    let expires_in = expires.saturating_sub(reading.at);
    Reading {
        level: [used, empty_in.min(expires_in.get())],
        ..reading
    }
}

/// The arguments of an algorithm with just a limit and a window.
#[inline]
pub(super) fn window_arguments(limit: u64, window: Micros, action: &Action) -> Arguments {
    padded([action.permits(), limit, window.get(), action.taken_us()])
}

/// These arguments, padded with zeros.
#[inline]
pub(super) fn padded<const N: usize>(arguments: [u64; N]) -> Arguments {
    const { assert!(N <= MOST_ARGUMENTS) };
    let mut padded = [0; MOST_ARGUMENTS];
    padded[..N].copy_from_slice(&arguments);
    padded
}

/// A fraction of every number of permits, for a process that decides without the store.
#[derive(Clone, Copy)]
pub(super) struct Share(pub(super) f64);

impl Share {
    /// This share of the permits, rounded down, but at least 1. So shares that add up to 1 do not
    /// exceed the limit.
    pub(super) fn of(self, permits: u64) -> u64 {
        // In whole numbers: the product has more digits than a float.
        const ONE: u128 = 1 << 72;
        // The cast rounds down, saturates, and turns NaN into 0.
        let share = ((self.0 * ONE as f64) as u128).min(ONE);
        // As a float, 0.29 is slightly less than 0.29, but 29 of 100 are meant. The slack is too
        // small to matter to a share that means less.
        let meant = share + (share >> 52);
        let part = u128::from(permits) * meant / ONE;
        (part as u64).clamp(1, permits.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::MOST_PERMITS;

    #[test]
    fn a_share_is_what_it_looks_like_rounded_down_to_one_at_least() {
        for (share, permits, part) in [
            (0.29, 100, 29),
            (0.1, 30, 3),
            (1.0 / 3.0, 3, 1),
            (0.25, 10, 2),
            (0.001, 10, 1),
            (1.0, 1, 1),
            (1.0, MOST_PERMITS, MOST_PERMITS),
            (0.5, MOST_PERMITS, MOST_PERMITS / 2),
            (0.29, 10_u64.pow(14), 29 * 10_u64.pow(12)),
        ] {
            assert_eq!(Share(share).of(permits), part, "{share} of {permits}");
        }
    }

    #[test]
    fn shares_that_make_up_the_whole_never_give_more() {
        for processes in 1..=200_u64 {
            let share = 1.0 / processes as f64;
            for permits in (processes..2_000).chain(MOST_PERMITS - 200..=MOST_PERMITS) {
                let together = processes * Share(share).of(permits);
                assert!(together <= permits, "{processes} of {permits}");
            }
        }
    }

    #[test]
    fn a_share_out_of_range_gives_between_one_and_all() {
        for share in [f64::NAN, -1.0, 0.0, 2.0, f64::INFINITY] {
            let part = Share(share).of(10);
            assert!((1..=10).contains(&part), "{share} gave {part}");
        }
    }
}
