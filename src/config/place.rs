//! Where something stands in the text: what every error begins with.

use std::fmt;
use std::ops::Range;

use super::FileError;

/// A byte of the text, and the policy and the table that it belongs to.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    text: &'t str,
    offset: usize,
    policy: Option<PolicyPlace<'t>>,
    /// The policy's field whose value is the table.
    table: Option<&'static str>,
}

/// The policy that a place belongs to.
#[derive(Clone, Copy)]
pub(super) enum PolicyPlace<'t> {
    Named(&'t str),
    /// Its number, counted from 1.
    Nameless(usize),
}

impl<'t> Place<'t> {
    /// The beginning of a file.
    pub(super) fn of_file(text: &'t str) -> Self {
        Self {
            text,
            offset: 0,
            policy: None,
            table: None,
        }
    }

    pub(super) fn at(self, span: Range<usize>) -> Self {
        Self {
            offset: span.start,
            ..self
        }
    }

    pub(super) fn in_policy(self, policy: PolicyPlace<'t>) -> Self {
        Self {
            policy: Some(policy),
            ..self
        }
    }

    pub(super) fn in_table(self, field: &'static str) -> Self {
        Self {
            table: Some(field),
            ..self
        }
    }

    pub(super) fn refuse(self, problem: impl fmt::Display) -> FileError {
        let line = line_of(self.text.as_bytes(), self.offset);
        match self.policy {
            Some(PolicyPlace::Named(name)) => {
                FileError::at(line, format_args!("policy {name:?}: {problem}"))
            }
            Some(PolicyPlace::Nameless(number)) => {
                FileError::at(line, format_args!("policy {number}: {problem}"))
            }
            None => FileError::at(line, problem),
        }
    }

    /// An error about a field of the table.
    pub(super) fn refuse_field(self, field: &str, problem: impl fmt::Display) -> FileError {
        match self.table {
            Some(table) => self.refuse(format_args!("{table}.{field}: {problem}")),
            None => self.refuse(format_args!("{field}: {problem}")),
        }
    }
}

/// The line of a byte of the text, counted from 1.
pub(super) fn line_of(text: &[u8], offset: usize) -> usize {
    let before = text.iter().take(offset);
    1 + before.filter(|byte| **byte == b'\n').count()
}
