//! `Column`: what is printed of a policy under one of the files.

use tower_throttle::{Mode, PolicySummary, Subject};

use crate::limits::{Limits, left_out};
use crate::tally::{Counts, Decided};

/// A policy under one of the files.
pub(crate) struct Column<'a> {
    pub(crate) file: &'a str,
    pub(crate) policy: Option<&'a PolicySummary>,
    pub(crate) decided: Option<&'a Decided>,
}

impl<'a> Column<'a> {
    pub(crate) fn of(policy: &str, limits: &'a Limits, counts: &'a Counts) -> Self {
        Self {
            file: &limits.file,
            policy: limits.policies.iter().find(|each| each.name == policy),
            decided: counts.policies.get(policy),
        }
    }

    pub(crate) fn mode(&self) -> &'static str {
        match self.policy {
            None => "not in this file",
            Some(policy) => left_out(policy).unwrap_or(match policy.mode {
                Mode::Shadow => "shadow: denied means would be denied",
                _ => "enforced",
            }),
        }
    }

    pub(crate) fn limit(&self) -> String {
        self.policy
            .map_or_else(String::new, |policy| policy.limit.clone())
    }

    pub(crate) fn denials_of(&self, subject: Subject) -> String {
        let denied = self
            .decided
            .and_then(|decided| decided.subjects.get(&subject));
        denied.map_or_else(String::new, |denied| denied.requests.to_string())
    }

    pub(crate) fn hour(&self, hour: u64) -> String {
        let bin = self
            .decided
            .and_then(|decided| decided.by_hour.bins.get(&hour));
        bin.map_or_else(String::new, |bin| {
            format!("{} of {}", bin.denied, bin.requests)
        })
    }
}

/// A cell for each column.
pub(crate) fn cells(columns: &[Column<'_>], cell: impl Fn(&Column<'_>) -> String) -> Vec<String> {
    columns.iter().map(cell).collect()
}
