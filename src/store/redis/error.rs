//! What an error of the client or the server means for a decision.

use redis::{ErrorKind, RedisError};

use crate::error::{StoreError, StoreErrorKind};

/// The codes that servers answer with and what they mean, first match first. Redis 6.2 and its
/// forks wrap a script's error in a text of their own, so the codes are looked for in there too.
const CODES: [(&str, StoreErrorKind); 21] = [
    ("foreign value", StoreErrorKind::ForeignValue),
    ("WRONGTYPE", StoreErrorKind::ForeignValue),
    ("OOM", StoreErrorKind::Full),
    ("max number of clients", StoreErrorKind::Unreachable),
    ("NOAUTH", StoreErrorKind::Configuration),
    ("WRONGPASS", StoreErrorKind::Configuration),
    ("NOPERM", StoreErrorKind::Configuration),
    // The same within a script, which has no code of its own on Redis 7.0.
    (
        "The user executing the script",
        StoreErrorKind::Configuration,
    ),
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
        || says(error, "READONLY")
        || says(error, "MASTERDOWN")
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
    CODES
        .iter()
        .find(|(text, _)| says(error, text))
        .map_or(StoreErrorKind::BadReply, |(_, kind)| *kind)
}

fn says(error: &RedisError, text: &str) -> bool {
    error.code() == Some(text) || error.detail().is_some_and(|detail| detail.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> RedisError {
        let reply = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        reply.extract_error().unwrap_err()
    }

    #[test]
    fn a_demoted_server_is_let_go_of_also_where_the_script_s_error_is_wrapped() {
        for line in [
            "READONLY You can't write against a read only replica.",
            "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
            "ERR Error running script (call to f_0123): @user_script:61: @user_script: 61: \
             -READONLY You can't write against a read only replica. ",
        ] {
            let error = answered(line);
            assert!(is_connection_lost(&error), "{line}");
            assert_eq!(kind(&error), StoreErrorKind::Busy, "{line}");
        }
        let busy = answered("BUSY Redis is busy running a script.");
        assert!(!is_connection_lost(&busy));
    }
}
