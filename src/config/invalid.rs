//! Turns errors of the library's own checks into errors at a place of the file, in the file's
//! words.

use super::FileError;
use super::fields::{Field, Fields};
use crate::error::ConfigError;

pub(super) const COUNT_STATUS: &str = "count_status";
pub(super) const COUNT_GRPC_STATUS: &str = "count_grpc_status";
pub(super) const SETTLE: &str = "settle";

/// The library's options that these three fields set.
const SETTLING: [&str; 3] = ["settle_at_end", "count_if_at_end", "count_if"];

/// An error about a policy.
pub(super) fn policy(fields: &Fields<'_>, error: ConfigError) -> FileError {
    let error = match error {
        ConfigError::InPolicy { source, .. } => *source,
        error => error,
    };
    // Names that differ in the file.
    let (name, problem) = match &error {
        ConfigError::OutOfRange {
            field, expected, ..
        } => {
            let (name, expected) = in_the_files_words(field, expected);
            return out_of_range(fields, name, &expected, &error);
        }
        ConfigError::NotForThisAlgorithm { field, belongs_to } => {
            let algorithms = belongs_to.replace('_', "-");
            (*field, format!("is an option of {algorithms}"))
        }
        // An error about one of several rates.
        ConfigError::Malformed {
            field: "and",
            given,
            reason,
        } => ("limit", format!("{given}: {reason}")),
        ConfigError::Malformed { field, reason, .. } if SETTLING.contains(field) => {
            (settling(fields), format!("{reason}, leave it out"))
        }
        ConfigError::Malformed {
            field: "prefetch",
            reason,
            ..
        } => {
            let option = SETTLING.into_iter().find(|option| reason.contains(option));
            let option = option.unwrap_or(SETTLE);
            ("prefetch", reason.replace(option, settling(fields)))
        }
        ConfigError::Malformed { field, .. } => return fields.refuse_at(field, error),
        _ => return fields.refuse_at("name", error),
    };
    match fields.get(name) {
        Some(field) => field.refuse(problem),
        None => fields.refuse(error),
    }
}

/// Which field of the file makes the response settle the cost: the first that is there.
fn settling(fields: &Fields<'_>) -> &'static str {
    let mut names = [COUNT_STATUS, COUNT_GRPC_STATUS, SETTLE].into_iter();
    names
        .find(|name| fields.get(name).is_some())
        .unwrap_or(SETTLE)
}

/// An error about one value: one of several rates, or a field of the whole file.
pub(super) fn value(field: &Field<'_>, error: ConfigError) -> FileError {
    match error {
        ConfigError::OutOfRange {
            field: name,
            expected,
            ..
        } => field.expected(in_the_files_words(name, expected).1),
        error => field.refuse(error),
    }
}

fn in_the_files_words(field: &'static str, expected: &str) -> (&'static str, String) {
    let expected = expected.replace("`Limit::nothing()`", "limit = \"0/s\"");
    match field {
        length @ ("period" | "window") => ("limit", format!("a {length} of {expected}")),
        "limit" => ("limit", format!("{expected} permits")),
        // The library's method that adds a rate.
        "and" => ("limit", expected),
        field => (field, expected),
    }
}

/// An error about a policy's field that is a table, such as `penalty`. Names both.
pub(super) fn table(fields: &Fields<'_>, error: ConfigError) -> FileError {
    let ConfigError::OutOfRange {
        field, expected, ..
    } = &error
    else {
        return fields.refuse(error);
    };
    let (_, name) = field.split_once('.').unwrap_or(("", field));
    out_of_range(fields, name, expected, &error)
}

/// Shows what the file says: the library's error has it in other words, such as a time as a
/// `Duration`.
fn out_of_range(
    fields: &Fields<'_>,
    name: &'static str,
    expected: &str,
    error: &ConfigError,
) -> FileError {
    match fields.get(name) {
        Some(field) => field.expected(expected),
        None => fields.refuse(error),
    }
}
