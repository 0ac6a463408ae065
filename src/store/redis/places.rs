//! `Places`: how many questions may be under way at once, those that wait for a trip among them.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{StoreError, StoreErrorKind};

/// Beyond so many questions under way a further one fails at once: nothing waits in a queue
/// without bound.
pub(super) const MOST_IN_FLIGHT: usize = 1_024;

#[derive(Default)]
pub(super) struct Places {
    taken: AtomicUsize,
}

/// One of them; given back when dropped.
pub(super) struct Place<'a>(&'a Places);

impl Places {
    pub(super) fn take(&self) -> Result<Place<'_>, StoreError> {
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(self);
        if before >= MOST_IN_FLIGHT {
            return Err(StoreError::new(StoreErrorKind::Overloaded));
        }
        Ok(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
