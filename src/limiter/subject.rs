//! Looking and forgetting by the hash of a key, for whoever has only that: an operator who found it
//! in a log, a metric or a stored key.

use super::Limiter;
use crate::algorithm::Action;
use crate::decision::Decision;
use crate::error::CheckError;
use crate::key::{Key, Subject};

impl Limiter {
    /// What a key is known by in the store, in logs and to observers.
    pub fn subject_of(&self, key: impl Into<Key>) -> Subject {
        self.subject(&key.into())
    }

    /// As [`peek`](Self::peek), of a subject.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub async fn peek_subject(
        &self,
        policy: &str,
        subject: Subject,
    ) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        Ok(self.carry_out(&policy, subject, Action::look()).await)
    }

    /// As [`reset`](Self::reset), of a subject.
    ///
    /// # Errors
    ///
    /// When there is no policy of this name.
    pub async fn reset_subject(
        &self,
        policy: &str,
        subject: Subject,
    ) -> Result<Decision, CheckError> {
        let policy = self.named(policy)?;
        Ok(self.carry_out(&policy, subject, Action::Reset).await)
    }
}
