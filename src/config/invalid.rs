//! Turns errors of the library's own checks into errors at a place of the file, in the file's
//! words.

use super::FileError;
use super::fields::{Field, Fields};
use crate::error::ConfigError;

pub(super) const COUNT_STATUS: &str = "count_status";
pub(super) const COUNT_GRPC_STATUS: &str = "count_grpc_status";

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
        ConfigError::Malformed {
            field: "count_if",
            reason,
            ..
        } => (count_if(fields), format!("{reason}, leave it out")),
        ConfigError::Malformed {
            field: "prefetch",
            reason,
            ..
        } => ("prefetch", reason.replace("count_if", count_if(fields))),
        ConfigError::Malformed { field, .. } => return fields.refuse_at(field, error),
        _ => return fields.refuse_at("name", error),
    };
    match fields.get(name) {
        Some(field) => field.refuse(problem),
        None => fields.refuse(error),
    }
}

/// What the file calls `count_if`: the first of the two fields that is there.
fn count_if(fields: &Fields<'_>) -> &'static str {
    let is_said = |name: &&'static str| fields.get(name).is_some();
    let names = [COUNT_STATUS, COUNT_GRPC_STATUS];
    names.into_iter().find(is_said).unwrap_or(COUNT_STATUS)
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
