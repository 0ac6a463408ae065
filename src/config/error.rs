//! `FileError`: what is wrong with a configuration file, and where.

use std::error::Error;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::error::debug_as_display;
use crate::one_line::OneLine;

/// A configuration that cannot be read, or that is invalid.
///
/// Its text names the file, the line, the policy, the field and what to write instead:
/// `limits.toml: line 9: policy "client": limit: got "9/minute", ...`. The text is one line, also as
/// `Debug`, and includes every cause, so there is no [`source`](Error::source).
pub struct FileError {
    path: Option<PathBuf>,
    line: Option<usize>,
    problem: Problem,
}

enum Problem {
    Unreadable(io::Error),
    Wrong(String),
}

impl FileError {
    pub(super) fn unreadable(path: &Path, source: io::Error) -> Self {
        Self {
            path: Some(path.to_owned()),
            line: None,
            problem: Problem::Unreadable(source),
        }
    }

    pub(super) fn at(line: usize, problem: impl fmt::Display) -> Self {
        Self {
            path: None,
            line: Some(line),
            problem: Problem::Wrong(problem.to_string()),
        }
    }

    /// For values that are valid by themselves but not together.
    pub(super) fn without_place(problem: impl fmt::Display) -> Self {
        Self {
            path: None,
            line: None,
            problem: Problem::Wrong(problem.to_string()),
        }
    }

    pub(super) fn in_file(mut self, path: &Path) -> Self {
        self.path = Some(path.to_owned());
        self
    }

    /// For a text that the user never saw: its line numbers mean nothing.
    pub(super) fn without_line(self) -> Self {
        Self { line: None, ..self }
    }

    /// The I/O error, if the file could not be read.
    pub fn io_error(&self) -> Option<&io::Error> {
        match &self.problem {
            Problem::Unreadable(error) => Some(error),
            Problem::Wrong(_) => None,
        }
    }

    /// The path of the file, if the configuration came from one.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The line of the error, counted from 1. `None` if the file could not be read, or if the
    /// configuration was [deserialised](super::Config#impl-Deserialize<'de>-for-Config).
    pub fn line(&self) -> Option<usize> {
        self.line
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", OneLine(path.display()))?;
        }
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        match &self.problem {
            Problem::Unreadable(error) => {
                write!(f, "the file cannot be read: {}", OneLine(error))
            }
            Problem::Wrong(problem) => OneLine(problem).fmt(f),
        }
    }
}

debug_as_display!(FileError);

impl Error for FileError {}

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
