//! `Places`: bounds the number of questions in flight, including those that wait for a trip.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{ConfigError, StoreError, StoreErrorKind};

/// The largest bound that may be set. Memory has room for that many questions, and they can be
/// answered within a reasonable deadline.
const MOST: usize = 65_536;

/// Bounds the questions in flight. A further one fails at once, so no queue grows without bound.
pub(super) struct Places {
    most: usize,
    taken: AtomicUsize,
}

/// A place of a question; given back when dropped.
pub(super) struct Place<'a>(&'a Places);

impl Places {
    /// The default number of places.
    pub(super) const USUAL: usize = 1_024;

    /// # Errors
    ///
    /// Says which numbers are allowed.
    pub(super) fn new(most: usize) -> Result<Self, ConfigError> {
        if !(1..=MOST).contains(&most) {
            return Err(ConfigError::out_of_range(
                "max_in_flight",
                most,
                "1 to 65536",
            ));
        }
        Ok(Self::of(most))
    }

    fn of(most: usize) -> Self {
        Self {
            most,
            taken: AtomicUsize::new(0),
        }
    }

    pub(super) fn take(&self) -> Result<Place<'_>, StoreError> {
        let before = self.taken.fetch_add(1, Ordering::Relaxed);
        let place = Place(self);
        if before >= self.most {
            return Err(StoreError::new(StoreErrorKind::Overloaded));
        }
        Ok(place)
    }
}

impl Default for Places {
    fn default() -> Self {
        Self::of(Self::USUAL)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}
