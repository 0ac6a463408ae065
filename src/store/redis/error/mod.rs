//! What an error of the client or the server means for a decision.

use std::error::Error;

use redis::{ErrorKind, RedisError};

use crate::error::{StoreError, StoreErrorKind};
use crate::one_line::OneLine;

mod advice;

/// The codes that servers answer with and what they mean, first match first. Redis 6.2 and its
/// forks wrap a script's error in a text of their own, so the codes are looked for in there too.
const CODES: [(&str, StoreErrorKind); 31] = [
    ("corrupt value", StoreErrorKind::CorruptValue),
    // Of a state to which a script adds.
    ("value is not an integer", StoreErrorKind::CorruptValue),
    ("WRONGTYPE", StoreErrorKind::CorruptValue),
    ("OOM", StoreErrorKind::Full),
    ("max number of clients", StoreErrorKind::Unreachable),
    ("NOAUTH", StoreErrorKind::Configuration),
    ("WRONGPASS", StoreErrorKind::Configuration),
    ("NOPERM", StoreErrorKind::Configuration),
    // The same within a script, which has no code of its own: up to Redis 7.0, and since.
    (
        "The user executing the script",
        StoreErrorKind::Configuration,
    ),
    ("no permissions to run", StoreErrorKind::Configuration),
    // For a database that may not be selected, the client drops the code.
    ("Authentication required", StoreErrorKind::Configuration),
    ("not allowed in cluster mode", StoreErrorKind::Configuration),
    ("busy running a script", StoreErrorKind::Busy),
    ("MOVED", StoreErrorKind::Configuration),
    ("ASK", StoreErrorKind::Configuration),
    ("CROSSSLOT", StoreErrorKind::Configuration),
    ("unknown command", StoreErrorKind::Configuration),
    ("command is not allowed", StoreErrorKind::Configuration),
    // The same error within a script.
    ("command called from", StoreErrorKind::Configuration),
    ("syntax error", StoreErrorKind::Configuration),
    ("cluster support disabled", StoreErrorKind::Configuration),
    ("DB index is out of range", StoreErrorKind::Configuration),
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

/// An error reply to a question, or an error of its round trip.
pub(super) fn of_question(error: RedisError) -> StoreError {
    advised(kind(&error), error)
}

/// An error while connecting: nothing was asked yet.
pub(super) fn of_connecting(error: RedisError) -> StoreError {
    match advice::for_connecting(&error) {
        Some(advice) => advice::given(of_nothing_asked(&error), advice, error),
        None => of_lost_connection(error),
    }
}

/// An error of a server that should be a Sentinel.
pub(super) fn of_sentinel(error: RedisError) -> StoreError {
    let error = without_arguments(error);
    match advice::for_sentinel(&error) {
        Some(advice) => advice::given(kind(&error), advice, error),
        None => of_connecting(error),
    }
}

/// The time is up without an answer of the server.
pub(super) fn of_time_out(error: impl Error + Send + Sync + 'static) -> StoreError {
    advice::given(StoreErrorKind::Unreachable, advice::SILENT, error)
}

/// The time is up without an answer to the script that is tried at start-up.
pub(super) fn of_script_not_run(error: impl Error + Send + Sync + 'static) -> StoreError {
    advice::given(StoreErrorKind::TimedOut, advice::RUNS_NOTHING, error)
}

/// The answer of a cluster's node that sends a question on to one whose name it does not know.
pub(super) fn of_nameless(error: RedisError) -> StoreError {
    advice::given(kind(&error), advice::NAMELESS, error)
}

/// The error reply of a server to CLUSTER SLOTS.
pub(super) fn of_unassigned_slots(error: RedisError) -> StoreError {
    let error = without_arguments(error);
    advice::given(kind(&error), advice::UNKNOWN_SLOTS, error)
}

/// Why a connection was lost, for callers that have asked nothing over it.
pub(super) fn of_lost_connection(error: RedisError) -> StoreError {
    advised(of_nothing_asked(&error), error)
}

fn of_nothing_asked(error: &RedisError) -> StoreErrorKind {
    match kind(error) {
        StoreErrorKind::Interrupted | StoreErrorKind::TimedOut => StoreErrorKind::Unreachable,
        kind => kind,
    }
}

fn advised(kind: StoreErrorKind, error: RedisError) -> StoreError {
    let error = without_arguments(error);
    match advice::for_answer(&error) {
        Some(advice) => advice::given(kind, advice, error),
        None => StoreError::with_source(kind, OneLine(error)),
    }
}

/// Removes arguments that the server repeats: those of `HELLO` include the password.
fn without_arguments(error: RedisError) -> RedisError {
    let detail = error.detail().unwrap_or_default();
    match detail.split_once(", with args beginning with") {
        Some((known, _)) => (error.kind(), "the server answered", known.to_owned()).into(),
        None => error,
    }
}

/// Whether the server does not know the script: it has not run.
pub(super) fn is_no_script(error: &RedisError) -> bool {
    error.code() == Some("NOSCRIPT")
}

/// Whether the server refuses this command to this user or to all users: Redis Enterprise and proxies
/// know fewer commands than Redis.
pub(super) fn is_command_refused(error: &RedisError) -> bool {
    let refusals = ["NOPERM", "unknown command", "command is not allowed"];
    refusals.iter().any(|text| says(error, text))
}

/// Whether the connection has become useless, because it broke or because it leads to a server that
/// was demoted.
pub(super) fn is_connection_lost(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || is_no_answer(error)
        || error.kind() == ErrorKind::Parse
        || is_demoted(error)
}

/// Whether the server has not sent it: something broke, or there was no reply in the longest time
/// that replies may take.
pub(super) fn is_no_answer(error: &RedisError) -> bool {
    error.is_io_error()
}

/// Whether it is the answer of a server that is not, or no longer, a master: nothing ran.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    says(error, "READONLY") || says(error, "MASTERDOWN")
}

/// The kind of failure of an error.
pub(super) fn kind(error: &RedisError) -> StoreErrorKind {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreErrorKind::TimedOut,
        ErrorKind::Io if error.is_connection_refusal() => StoreErrorKind::Unreachable,
        ErrorKind::Io if is_about_certificates(error) => StoreErrorKind::Configuration,
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

/// Texts of the TLS client about certificates, in lower case. If the server refuses the client's
/// certificate, they contain the name of the TLS alert.
const OF_CERTIFICATES: [&str; 4] = [
    "certificate",
    // Another authority signed it, perhaps one of the same name.
    "alert: unknownca",
    "alert: decrypterror",
    // Over TLS 1.2, mostly a missing client certificate.
    "alert: handshakefailure",
];

fn is_about_certificates(error: &RedisError) -> bool {
    certificate_text(error).is_some()
}

/// The text of the TLS client about a certificate, in lower case. It arrives as an I/O error. `None` for
/// other errors.
fn certificate_text(error: &RedisError) -> Option<String> {
    if !error.is_io_error() {
        return None;
    }
    let text = error.to_string().to_lowercase();
    let is_about_them = OF_CERTIFICATES.iter().any(|part| text.contains(part));
    is_about_them.then_some(text)
}

/// The text after an error code may contain anything, such as the name of a user.
fn says(error: &RedisError, text: &str) -> bool {
    let is_code = |code: &str| code != "ERR" && code.bytes().all(|byte| byte.is_ascii_uppercase());
    match error.code() {
        Some(code) if is_code(code) => code == text,
        _ => error
            .detail()
            .is_some_and(|detail| without_user(detail).contains(text)),
    }
}

/// Since Redis 7.2, and in Valkey, the error for a missing permission contains the user's name. It has no
/// code in front of it for a command in a script, and for a database that may not be selected.
fn without_user(detail: &str) -> &str {
    let named = detail.split_once("User ");
    match named.and_then(|(_, named)| named.split_once(' ')) {
        Some((_, said)) if said.starts_with("has no permissions") => said,
        _ => detail,
    }
}

/// The reply of a server with this line.
#[cfg(test)]
pub(super) fn error_reply(line: &str) -> redis::Value {
    redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(line: &str) -> RedisError {
        error_reply(line).extract_error().unwrap_err()
    }

    #[test]
    fn a_demoted_server_is_left_also_if_the_scripts_error_is_wrapped() {
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

    #[test]
    fn a_connection_is_lost_however_it_broke() {
        use std::io::ErrorKind;
        for broken in [
            ErrorKind::BrokenPipe,
            ErrorKind::TimedOut,
            ErrorKind::HostUnreachable,
            ErrorKind::InvalidData,
        ] {
            let error = RedisError::from(std::io::Error::from(broken));
            assert!(is_connection_lost(&error), "{broken}");
        }
    }

    #[test]
    fn an_error_code_is_not_looked_for_in_a_users_name() {
        for user in ["ZOOM", "READONLY", "BUSY"] {
            // Of a command, of one in a script, and of the database as the client hands it on.
            for about in ["NOPERM", "ERR ACL failure in script:", "ERR"] {
                let line =
                    format!("{about} User {user} has no permissions to run the 'get' command");
                let error = answered(&line);
                assert_eq!(kind(&error), StoreErrorKind::Configuration, "{line}");
                assert!(!is_demoted(&error), "{line}");
            }
        }
    }

    /// In the words of Redis Enterprise, of Redis and of a proxy.
    #[test]
    fn a_command_that_is_refused_whatever_its_arguments_is_recognized() {
        for line in [
            "ERR command is not allowed",
            "NOPERM this user has no permissions to run the 'cluster|slots' command or its subcommand",
            "NOPERM User limiter has no permissions to run the 'cluster|slots' command",
            "ERR unknown command 'CLUSTER', with args beginning with: 'SLOTS' ",
        ] {
            let error = answered(line);
            assert!(is_command_refused(&error), "{line}");
            assert_eq!(kind(&error), StoreErrorKind::Configuration, "{line}");
        }
        for line in [
            "ERR This instance has cluster support disabled",
            "NOAUTH Authentication required.",
            "LOADING Redis is loading the dataset in memory",
            "ERR SELECT is not allowed in cluster mode",
        ] {
            assert!(!is_command_refused(&answered(line)), "{line}");
        }
    }

    #[test]
    fn a_right_that_a_script_lacks_is_known_by_the_words_of_every_server() {
        for line in [
            // Redis 6.2, 7.0, and since 7.2 as Valkey.
            "ERR Error running script (call to f_0123): @user_script:1: @user_script: 1: The user \
             executing the script can't run this command or subcommand",
            "ERR The user executing the script can't run this command or subcommand script: 0123, \
             on @user_script:1.",
            "ERR ACL failure in script: User limiter has no permissions to run the 'set' command \
             script: 0123, on @user_script:1.",
        ] {
            let error = answered(line);
            assert_eq!(kind(&error), StoreErrorKind::Configuration, "{line}");
            let advice = of_question(error).inner().unwrap().to_string();
            assert!(advice.contains("lacks a permission"), "{advice}");
        }
    }

    #[test]
    fn a_server_that_is_too_old_is_known_by_the_option_that_it_lacks() {
        for line in [
            "ERR syntax error",
            "ERR Error running script (call to f_0123): @user_script:1: ERR syntax error",
        ] {
            let error = answered(line);
            assert_eq!(kind(&error), StoreErrorKind::Configuration, "{line}");
            let advice = of_question(error).inner().unwrap().to_string();
            assert!(advice.contains("older than Redis 6.2"), "{advice}");
        }
    }

    #[test]
    fn a_password_that_the_server_repeats_is_not_handed_on() {
        for line in [
            "ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'hunter2' ",
            "ERR unknown command `AUTH`, with args beginning with: `hunter2`, ",
        ] {
            for of in [of_question, of_connecting, of_sentinel, of_lost_connection] {
                let error = of(answered(line));
                assert_eq!(error.kind(), StoreErrorKind::Configuration, "{line}");
                let told = format!("{error:?} {}", error.inner().unwrap());
                assert!(told.contains(&line[4..25]), "{told}");
                assert!(!told.contains("hunter2"), "{told}");
            }
        }
    }

    /// Reports of an error print the texts of all its sources, one after the other.
    #[test]
    fn an_answer_cannot_forge_a_line_in_any_of_the_texts_of_its_error() {
        for line in [
            "ERR x\u{1b}[2K\u{85}ERROR",
            "NOAUTH x\tERROR",
            "\u{1b}]0;ERROR\u{7}",
        ] {
            for of in [of_question, of_connecting, of_sentinel, of_lost_connection] {
                let error = of(answered(line));
                let mut cause = error.source();
                while let Some(text) = cause.map(ToString::to_string) {
                    assert!(text.contains("ERROR"), "{text:?}");
                    assert!(!text.contains(char::is_control), "{text:?}");
                    cause = cause.and_then(Error::source);
                }
            }
        }
    }

    #[test]
    fn a_missing_resp3_is_not_confused_with_missing_scripts() {
        let error = of_connecting(answered("ERR unknown command 'HELLO'"));
        let source = error.inner().unwrap().to_string();
        assert!(source.contains("leave protocol=3 out"), "{source}");
    }

    #[test]
    fn a_connection_that_worked_before_gives_no_advice_about_the_url() {
        for broken in [std::io::ErrorKind::BrokenPipe, std::io::ErrorKind::TimedOut] {
            let error = || RedisError::from(std::io::Error::from(broken));
            let told = |error: StoreError| error.inner().unwrap().to_string();
            assert!(told(of_connecting(error())).contains("rediss"));
            for error in [of_question(error()), of_lost_connection(error())] {
                assert_eq!(told(error), broken.to_string());
            }
        }
    }
}
