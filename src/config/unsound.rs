//! What the library's own checks refuse, in the place of the file that says it and in the file's
//! words.

use super::FileError;
use super::fields::Fields;
use crate::error::ConfigError;

/// What is refused of a policy.
pub(super) fn policy(fields: &Fields<'_>, error: ConfigError) -> FileError {
    let error = match error {
        ConfigError::InPolicy { source, .. } => *source,
        error => error,
    };
    // Where it is called otherwise in the file.
    let (name, problem) = match &error {
        ConfigError::NotForThisAlgorithm { field, belongs_to } => {
            let algorithms = belongs_to.replace('_', "-");
            (*field, format!("is an option of {algorithms}"))
        }
        ConfigError::Malformed {
            field: "count_if",
            reason,
            ..
        } => ("count_status", format!("{reason}, leave it out")),
        ConfigError::OutOfRange {
            field: "period" | "window",
            ..
        } => ("limit", error.to_string()),
        _ => return fields.refuse_at(field_of(&error).unwrap_or("name"), error),
    };
    match fields.get(name) {
        Some(field) => field.refuse(problem),
        None => fields.refuse(error),
    }
}

/// What is refused of a policy's penalty.
pub(super) fn penalty(fields: &Fields<'_>, error: ConfigError) -> FileError {
    let name = field_of(&error).and_then(|field| field.strip_prefix("penalty."));
    match name {
        Some(name) => fields.refuse_at(name, error),
        None => fields.refuse(error),
    }
}

fn field_of(error: &ConfigError) -> Option<&'static str> {
    match error {
        ConfigError::OutOfRange { field, .. }
        | ConfigError::NotForThisAlgorithm { field, .. }
        | ConfigError::Malformed { field, .. } => Some(field),
        _ => None,
    }
}
