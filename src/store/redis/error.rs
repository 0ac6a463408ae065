//! What an error of the client or the server means for a decision.

use redis::{ErrorKind, RedisError};

use crate::error::{StoreError, StoreErrorKind};

/// The codes that servers answer with and what they mean, first match first. Redis 6.2 and its
/// forks wrap a script's error in a text of their own, so the codes are looked for in there too.
const CODES: [(&str, StoreErrorKind); 20] = [
    ("foreign value", StoreErrorKind::ForeignValue),
    ("WRONGTYPE", StoreErrorKind::ForeignValue),
    ("OOM", StoreErrorKind::Full),
    ("max number of clients", StoreErrorKind::Unreachable),
    ("NOAUTH", StoreErrorKind::Configuration),
    ("WRONGPASS", StoreErrorKind::Configuration),
    ("NOPERM", StoreErrorKind::Configuration),
    ("MOVED", StoreErrorKind::Configuration),
    ("ASK", StoreErrorKind::Configuration),
    ("CROSSSLOT", StoreErrorKind::Configuration),
    ("unknown command", StoreErrorKind::Configuration),
    ("BUSY", StoreErrorKind::Busy),
    ("LOADING", StoreErrorKind::Busy),
    ("CLUSTERDOWN", StoreErrorKind::Busy),
    ("TRYAGAIN", StoreErrorKind::Busy),
    ("MISCONF", StoreErrorKind::Busy),
    ("NOREPLICAS", StoreErrorKind::Busy),
    ("READONLY", StoreErrorKind::Busy),
    ("MASTERDOWN", StoreErrorKind::Busy),
    ("UNKILLABLE", StoreErrorKind::Busy),
];

/// An error answered to a question, or met on the way.
pub(super) fn of_question(error: RedisError) -> StoreError {
    StoreError::with_source(kind(&error), error)
}

/// An error met while connecting: nothing was asked yet.
pub(super) fn of_connecting(error: RedisError) -> StoreError {
    let kind = match kind(&error) {
        StoreErrorKind::Interrupted | StoreErrorKind::TimedOut => StoreErrorKind::Unreachable,
        kind => kind,
    };
    StoreError::with_source(kind, error)
}

/// Whether the server does not know the script: it has not run.
pub(super) fn is_no_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Whether the connection is of no more use, because it broke or because it leads to a server that
/// was demoted.
pub(super) fn is_connection_lost(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.kind() == ErrorKind::Parse
        || matches!(error.code(), Some("READONLY" | "MASTERDOWN"))
}

fn kind(error: &RedisError) -> StoreErrorKind {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreErrorKind::TimedOut,
        ErrorKind::Io if error.is_connection_refusal() => StoreErrorKind::Unreachable,
        ErrorKind::Io => StoreErrorKind::Interrupted,
        ErrorKind::AuthenticationFailed
        | ErrorKind::InvalidClientConfig
        | ErrorKind::RESP3NotSupported => StoreErrorKind::Configuration,
        ErrorKind::Server(_) | ErrorKind::Extension => of_server(error),
        _ => StoreErrorKind::BadReply,
    }
}

fn of_server(error: &RedisError) -> StoreErrorKind {
    let code = error.code().unwrap_or_default();
    let detail = error.detail().unwrap_or_default();
    CODES
        .iter()
        .find(|(text, _)| code == *text || detail.contains(text))
        .map_or(StoreErrorKind::BadReply, |(_, kind)| *kind)
}
