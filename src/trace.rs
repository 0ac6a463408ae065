//! Logs and spans with the feature `tracing`; without it, nothing, at no cost.
//!
//! No event and no span shows a subject, at most its hash, unless its policy asks for it.

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

/// The shortest time between two log lines about a lasting failure.
const WARN_PAUSE: Duration = Duration::from_secs(60);

/// When the log last warned of something.
#[derive(Clone, Copy, Default)]
pub(crate) struct LogThrottle(Option<Instant>);

impl LogThrottle {
    /// Notes a warning, if one is due. Returns whether it is.
    pub(crate) fn try_warn(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.0.is_none_or(|last| now >= last + WARN_PAUSE);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// The same for all threads that serve requests. None waits for another: whoever comes while one
/// is here would find that nothing is due.
#[derive(Default)]
pub(crate) struct SharedLogThrottle(Mutex<LogThrottle>);

impl SharedLogThrottle {
    pub(crate) fn try_warn(&self) -> bool {
        let log_throttle = self.0.try_lock();
        log_throttle.is_ok_and(|mut log_throttle| log_throttle.try_warn())
    }

    /// Takes the place of another one, and its pause.
    pub(crate) fn succeed(&self, before: &Self) {
        if let (Ok(mut log_throttle), Ok(before)) = (self.0.lock(), before.0.lock()) {
            *log_throttle = *before;
        }
    }
}

/// The time in which a store is asked about a request, until its answer is read.
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

/// When the log last warned that the server does not provide what a policy needs. As many as the
/// operator names, each once for every mode: to enforce it changes what happens to requests.
#[derive(Default)]
pub(crate) struct LogThrottles(Mutex<HashMap<(Option<String>, Mode), LogThrottle>>);

impl LogThrottles {
    /// Notes a warning of this policy, or of a list, if one is due. Returns whether it is.
    pub(crate) fn try_warn(&self, policy: Option<&str>, mode: Mode) -> bool {
        let of = (policy.map(str::to_owned), mode);
        // No step under the lock leaves anything half done.
        let mut log_throttle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log_throttle.entry(of).or_default().try_warn()
    }
}
