//! `FailedHolds`: the holds that the store failed to take.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::key::Subject;

/// Until when the requests of a policy and a subject are to be held, as the store does not know.
///
/// While nothing is limited, an upstream may refuse thousands of requests. So of their holds only the
/// one that ends last is repeated.
#[derive(Default)]
pub(super) struct FailedHolds(Mutex<HashMap<(Arc<str>, Subject), Instant>>);

impl FailedHolds {
    /// Notes a hold. Returns whether none of the same requests ends later.
    pub(super) fn is_last(&self, policy: &Arc<str>, subject: Subject, end: Instant) -> bool {
        let mut ends = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        ends.retain(|_, end| *end > now);
        let last = ends.entry((Arc::clone(policy), subject)).or_insert(end);
        *last = end.max(*last);
        *last == end
    }
}
