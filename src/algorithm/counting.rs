//! Counting permits against a limit: the rules that several algorithms share.

use super::action::Action;
use super::reading::{Arguments, MOST_ARGUMENTS, Reading};
use crate::limit::MOST_PERMITS;
use crate::time::Micros;

/// Whether a limit of which `used` permits are taken has room for a cost. A cost of 0 always fits.
#[inline]
pub(super) fn fits(used: u64, cost: u64, limit: u64) -> bool {
    cost == 0 || used.saturating_add(cost) <= limit
}

/// What is left of a limit, which may have been lowered below what was used.
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

/// What a window shows a caller that takes nothing: everything comes back when the state is
/// forgotten, which is by the window that it was charged with.
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
