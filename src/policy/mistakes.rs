//! `Mistakes`: detects a policy that is set up wrongly and logs a warning. Requests are not
//! affected.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::trace::{self, SharedLogThrottle};

/// Warns after this many requests without a key, if none had a key.
const SUSPICIOUS: u32 = 100;

/// The detected mistakes of a policy, and when the log last warned of each.
#[derive(Default)]
pub(super) struct Mistakes {
    /// Whether any request had a key. Read by each request, written once.
    has_found_key: AtomicBool,
    /// The number of requests without a key before the first one with a key.
    without_key: AtomicU32,
    warned_of_keys: SharedLogThrottle,
    warned_of_setup: SharedLogThrottle,
}

impl Mistakes {
    pub(super) fn found_key(&self) {
        if !self.has_found_key.load(Ordering::Relaxed) {
            self.has_found_key.store(true, Ordering::Relaxed);
        }
    }

    #[cold]
    pub(super) fn found_no_key(&self, policy: &str) {
        if self.has_found_key.load(Ordering::Relaxed) {
            return;
        }
        let before = self.without_key.fetch_add(1, Ordering::Relaxed);
        if before >= SUSPICIOUS - 1 && self.warned_of_keys.try_warn() {
            trace::warn!(
                policy = policy,
                explanation = "check what the policy's key reads: the header's name, or the middleware \
                               that sets what is read, which must be outside of this layer; until \
                               then on_missing_key applies to every request",
                "no request has had a key so far"
            );
        }
    }

    /// An extractor's [`diagnose`](crate::KeyExtractor::diagnose).
    #[cold]
    pub(super) fn diagnosed(&self, policy: &str, explanation: &'static str) {
        if self.warned_of_setup.try_warn() {
            trace::warn!(
                policy = policy,
                explanation = explanation,
                "the policy seems to be set up wrongly"
            );
        }
    }

    /// Continues the pauses of the policy of the same name that this one replaces, so that repeated
    /// reloads do not flood the log.
    pub(super) fn succeed(&self, before: &Self) {
        self.warned_of_keys.succeed(&before.warned_of_keys);
        self.warned_of_setup.succeed(&before.warned_of_setup);
    }
}
