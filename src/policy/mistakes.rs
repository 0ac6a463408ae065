//! `Mistakes`: what requests show of a policy that is set up wrongly. They go on, and the log warns.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::trace::{self, SharedLogThrottle};

/// After so many requests without a key, and none with one, something is wrong.
const SUSPICIOUS: u32 = 100;

/// What is known of a policy's mistakes, and when the log last warned of each.
#[derive(Default)]
pub(super) struct Mistakes {
    /// Whether a request has had a key. Read with each request, and written once.
    has_found_key: AtomicBool,
    /// How many requests have had none before that.
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
                explanation = "look at what the policy's key reads: is the header's name right, \
                               does something outside of the rate limit leave what is read? Until \
                               then on_missing_key decides about every request",
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

    /// Takes the place of what was known of a policy of the same name: its extractor may be another
    /// one, but the log is not to be filled by a file that is read again and again.
    pub(super) fn succeed(&self, before: &Self) {
        self.warned_of_keys.succeed(&before.warned_of_keys);
        self.warned_of_setup.succeed(&before.warned_of_setup);
    }
}
