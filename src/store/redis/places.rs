//! `Places`: how many questions may be under way at once, those that wait for a trip among them.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{ConfigError, StoreError, StoreErrorKind};

/// The most that may be said: as many questions have room in memory, and get their answers within a
/// deadline of any use.
const MOST: usize = 65_536;

/// Beyond so many questions under way a further one fails at once: nothing waits in a queue
/// without bound.
pub(super) struct Places {
    most: usize,
    taken: AtomicUsize,
}

/// One of them; given back when dropped.
pub(super) struct Place<'a>(&'a Places);

impl Places {
    /// So many unless said.
    pub(super) const USUAL: usize = 1_024;

    /// # Errors
    ///
    /// Says how many there may be.
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
