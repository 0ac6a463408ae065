//! What the crate's API calls differently from one revision to another. Where two revisions are
//! compared (`side-by-side`), each brings its own copy of this file; everything else here has to
//! compile against both.

use tower_throttle::{Policy, Prefetch};

/// Lets a policy take permits in advance.
pub fn with_prefetch(policy: Policy) -> Policy {
    policy.prefetch(Prefetch::new())
}
