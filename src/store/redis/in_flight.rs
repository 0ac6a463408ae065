//! `InFlight`: bounds the number of questions in flight, including those that wait to be sent.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{ConfigError, StoreError, StoreErrorKind};

/// The largest bound that may be set. Memory has room for that many questions, and they can be
/// answered within a reasonable deadline.
const MOST: usize = 65_536;

/// Bounds the questions in flight. A further one fails at once, so no queue grows without bound.
pub(super) struct InFlight {
    most: usize,
    count: AtomicUsize,
}

/// Counts a question as in flight until it is dropped.
pub(super) struct InFlightQuestion<'a>(&'a InFlight);

impl InFlight {
    /// The default bound.
    pub(super) const USUAL: usize = 1_024;

    /// # Errors
    ///
    /// Says which numbers are allowed.
    pub(super) fn checked(most: usize) -> Result<usize, ConfigError> {
        if !(1..=MOST).contains(&most) {
            return Err(ConfigError::out_of_range(
                "max_in_flight",
                most,
                "1 to 65536",
            ));
        }
        Ok(most)
    }

    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            count: AtomicUsize::new(0),
        }
    }

    pub(super) fn begin(&self) -> Result<InFlightQuestion<'_>, StoreError> {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        let question = InFlightQuestion(self);
        if before >= self.most {
            return Err(StoreError::new(StoreErrorKind::Overloaded));
        }
        Ok(question)
    }
}

impl Drop for InFlightQuestion<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::Relaxed);
    }
}
