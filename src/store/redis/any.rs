//! `Any`: the checks of a question of any kind.

use super::keys::Prefix;
use super::reply::Expected;
use super::script::Question;
use crate::key::Subject;
use crate::store::Check;
use crate::time::Micros;

/// Checks that the composed script judges; in a cluster, of one subject.
pub(super) struct Any {
    pub(super) question: Question,
    pub(super) expected: Expected,
    /// The subject of the first check.
    pub(super) subject: Subject,
}

impl Any {
    /// `None` if there are no checks.
    pub(super) fn of(
        checks: &[Check<'_>],
        prefix: &Prefix,
        now: Micros,
        is_denied_elsewhere: bool,
    ) -> Option<Self> {
        let subject = checks.first()?.subject;
        Some(Self {
            question: Question::new(checks, prefix, now, is_denied_elsewhere),
            expected: Expected::of(checks, is_denied_elsewhere),
            subject,
        })
    }
}
