//! `LogThrottles`: which policies the log has warned of, and when.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::mode::Mode;
use crate::trace;

/// When the log last warned that the server does not provide what a policy needs. As many as the
/// operator names, each once for every mode: to enforce it changes what happens to requests.
#[derive(Default)]
pub(super) struct LogThrottles(Mutex<HashMap<(Option<String>, Mode), trace::LogThrottle>>);

impl LogThrottles {
    /// Notes a warning of this policy, or of a list, if one is due. Returns whether it is.
    pub(super) fn try_warn(&self, policy: Option<&str>, mode: Mode) -> bool {
        let of = (policy.map(str::to_owned), mode);
        // No step under the lock leaves anything half done.
        let mut log_throttle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log_throttle.entry(of).or_default().try_warn()
    }
}
