//! Background work: how it starts, its timeouts, its retries, and which task does it.

mod deadline;
mod in_flight;
mod leader;
mod retry;
mod spawn;

pub(crate) use self::deadline::{Deadline, within};
pub(crate) use self::in_flight::{InFlightGuard, InFlightWork};
pub(crate) use self::leader::{LeaderClaim, LeaderLock, Number, Turn};
pub(crate) use self::retry::{RENEWALS_IN_A_LIFE, TRIES_IN_A_LIFE, Tries};
pub(crate) use self::spawn::{catch_panic, spawn_polled};
#[cfg(feature = "redis")]
pub(crate) use self::spawn::{is_ending, poll_once};
