//! The algorithms as pure arithmetic: the specification that `lua/` mirrors, and what the memory
//! store runs.
//!
//! Every algorithm decides in two steps, here as in its script: see the module
//! [`store`](crate::store).

mod action;
mod arithmetic;
mod calendar;
mod compile;
mod concurrency;
mod debt;
mod dispatch;
mod fixed_point;
mod fixed_window;
mod later;
mod penalty;
mod question;
mod reading;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod window;

pub use self::action::{Acquire, Action, LeaseId, Wait};
#[cfg(feature = "redis")]
pub(crate) use self::debt::fast_path::FastPath;
pub use self::dispatch::{Algorithm, State};
#[cfg(feature = "redis")]
pub(crate) use self::fixed_point::FixedMicros;
pub(crate) use self::later::LaterVerdict;
pub use self::penalty::Penalty;
#[cfg(feature = "redis")]
pub(crate) use self::question::decide_denied;
pub use self::question::{Ask, committed, decide, granted};
#[cfg(feature = "memory")]
pub(crate) use self::question::{all_enforced_fit, committed_if};
#[cfg(any(feature = "redis", test))]
pub(crate) use self::reading::MOST_ARGUMENTS;
pub use self::reading::Reading;

#[cfg(test)]
mod tests;
