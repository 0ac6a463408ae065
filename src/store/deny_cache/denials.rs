//! `Denials`: the denials that a process remembers.

use std::sync::Arc;
use std::time::Duration;

use super::table::Table;
use crate::time::{Clock, Micros, SinceStart};

/// How long a denial is remembered by default.
const DEFAULT_MAX_AGE: Duration = Duration::from_secs(1);

/// The denials that a process remembers.
pub(in crate::store) struct Denials {
    pub(super) table: Table,
    clock: Arc<dyn Clock>,
}

impl Denials {
    /// Measures time by the store's clock if that is one for tests, else by its own.
    pub(in crate::store) fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        let clock = clock.unwrap_or_else(|| Arc::new(SinceStart::new()));
        Self::empty(clock, DEFAULT_MAX_AGE.into())
    }

    /// An empty copy with another maximum age.
    pub(in crate::store) fn with_max_age(&self, age: Duration) -> Self {
        Self::empty(Arc::clone(&self.clock), age.into())
    }

    /// An empty copy on another clock.
    #[cfg(any(test, feature = "test-util"))]
    pub(super) fn with_clock(&self, clock: impl Clock) -> Self {
        Self::empty(Arc::new(clock), self.table.max_age)
    }

    fn empty(clock: Arc<dyn Clock>, max_age: Micros) -> Self {
        Self {
            table: Table::new(max_age),
            clock,
        }
    }

    pub(in crate::store) fn hits(&self) -> u64 {
        self.table.hits()
    }

    pub(super) fn now(&self) -> Micros {
        self.clock.now()
    }
}
