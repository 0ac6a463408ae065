//! The hash of a key, for whoever has only that: an operator who found it in a log, a metric or a
//! stored key.

use super::Limiter;
use crate::key::{Key, Subject};

impl Limiter {
    /// What a key is known by in the store, in logs and to observers.
    pub fn subject_of(&self, key: impl Into<Key>) -> Subject {
        self.subject(&key.into())
    }
}
