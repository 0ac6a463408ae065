//! Logs and spans with the feature `tracing`; no-ops without it.
//!
//! Events and spans show a subject only as a hash, unless its policy shows it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::mode::Mode;

#[cfg(all(feature = "tracing", feature = "config"))]
pub(crate) use tracing::error;
#[cfg(feature = "tracing")]
pub(crate) use tracing::{debug, info, warn};

/// Accepts an event in `tracing`'s syntax and does nothing.
#[cfg(not(feature = "tracing"))]
macro_rules! silent {
    ($($field:ident = $(%)? $value:expr,)* $text:literal $(, $part:expr)*) => {{
        $(let _ = &$value;)*
        $(let _ = &$part;)*
    }};
}

#[cfg(all(not(feature = "tracing"), feature = "config"))]
pub(crate) use silent as error;
#[cfg(not(feature = "tracing"))]
pub(crate) use {silent as debug, silent as info, silent as warn};

/// The shortest time between two warnings about the same lasting failure.
const WARN_PAUSE: Duration = Duration::from_secs(60);

/// The time of the last warning.
#[derive(Clone, Copy, Default)]
pub(crate) struct LogThrottle(Option<Instant>);

impl LogThrottle {
    /// Whether a warning is due; if so, it counts as logged.
    pub(crate) fn try_warn(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.0.is_none_or(|last| now >= last + WARN_PAUSE);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// A throttle that all threads share. No thread waits for the lock: while another one holds it,
/// nothing is due.
#[derive(Default)]
pub(crate) struct SharedLogThrottle(Mutex<LogThrottle>);

impl SharedLogThrottle {
    pub(crate) fn try_warn(&self) -> bool {
        let log_throttle = self.0.try_lock();
        log_throttle.is_ok_and(|mut log_throttle| log_throttle.try_warn())
    }

    /// Continues the pause of the throttle that this one replaces.
    pub(crate) fn succeed(&self, before: &Self) {
        if let (Ok(mut log_throttle), Ok(before)) = (self.0.lock(), before.0.lock()) {
            *log_throttle = *before;
        }
    }
}

/// The span of a store call, until its answer is read.
pub(crate) struct Span {
    #[cfg(feature = "tracing")]
    span: tracing::Span,
}

#[cfg(feature = "tracing")]
impl Span {
    pub(crate) fn asking(policies: usize) -> Self {
        let allowed = tracing::field::Empty;
        Self {
            span: tracing::debug_span!("rate_limit", policies, allowed),
        }
    }

    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        self.span.in_scope(work)
    }

    pub(crate) fn answered(&self, is_allowed: bool) {
        self.span.record("allowed", is_allowed);
    }
}

#[cfg(not(feature = "tracing"))]
impl Span {
    pub(crate) fn asking(_policies: usize) -> Self {
        Self {}
    }

    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        work()
    }

    pub(crate) fn answered(&self, _is_allowed: bool) {}
}

/// One throttle for each policy and mode that warns of a misconfigured server. Switching to enforce
/// warns again, because it changes what happens to requests. Operators choose the names, so their
/// number is bounded.
#[derive(Default)]
pub(crate) struct LogThrottles(Mutex<HashMap<(Option<String>, Mode), LogThrottle>>);

impl LogThrottles {
    /// Whether a warning about this policy, or about a list, is due; if so, it counts as logged.
    pub(crate) fn try_warn(&self, policy: Option<&str>, mode: Mode) -> bool {
        let of = (policy.map(str::to_owned), mode);
        // A panic under the lock cannot leave inconsistent data.
        let mut log_throttle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log_throttle.entry(of).or_default().try_warn()
    }
}
