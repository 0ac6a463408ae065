//! Advice on errors that do not go away by themselves.

use std::error::Error;
use std::fmt;

use redis::{ErrorKind, RedisError};

use super::{certificate_text, is_about_certificates, says};
use crate::error::{StoreError, StoreErrorKind};
use crate::one_line::OneLine;

/// Advice on answers of servers; the first match counts.
const ADVICE: [(&str, &str); 20] = [
    ("NOAUTH", NAME_PASSWORD),
    ("Authentication required", NAME_PASSWORD),
    (
        "WRONGPASS",
        "the server refuses the user or the password; in a URL, a password without a user is \
         written :password@",
    ),
    ("NOPERM", GRANT_RIGHTS),
    ("The user executing the script", GRANT_RIGHTS),
    ("no permissions to run", GRANT_RIGHTS),
    ("MOVED", USE_CLUSTER),
    ("ASK", USE_CLUSTER),
    ("CROSSSLOT", USE_CLUSTER),
    ("not allowed in cluster mode", USE_CLUSTER),
    (
        "CLUSTERDOWN",
        "some slots of the server's cluster have no node: see CLUSTER INFO, and use redis-cluster:// \
        if you do not yet",
    ),
    (
        "cluster support disabled",
        "the server is not part of a cluster: use redis:// or rediss://",
    ),
    (
        "unknown command 'HELLO'",
        "the server has no RESP3: leave protocol=3 out",
    ),
    (
        "unknown command",
        "the server does not run scripts: use Redis 6.2 or newer, or Valkey; or it is a Sentinel: use \
         redis-sentinel://",
    ),
    (
        "command called from",
        "the server lacks a command that the scripts call: see rename-command in its configuration",
    ),
    // From SET, which knows PXAT since then. All commands that are called are older.
    (
        "syntax error",
        "the server is older than Redis 6.2: use Redis 6.2 or newer, or Valkey",
    ),
    (
        "DB index is out of range",
        "the server has no database of this number: see databases in its configuration, or use \
        redis-cluster:// if it is a cluster node of Valkey 9",
    ),
    (
        "OOM",
        "the server is out of memory: raise its maxmemory, or use a dedicated server with \
        maxmemory-policy noeviction",
    ),
    (
        "READONLY",
        "the server is a replica: name its master, or use redis-sentinel://",
    ),
    (
        "certificate",
        "the server's certificate is not trusted, or the server wants another client certificate: \
        set ca_certificate or client_certificate",
    ),
];

const NAME_PASSWORD: &str = "the server wants a password: put user:password@ or :password@ into \
                             the URL; the URL of a socket ends in ?user=u&pass=p or ?pass=p";
const GRANT_RIGHTS: &str =
    "the server's user lacks a permission: grant those that the documentation of RedisStore lists";
const GRANT_KEYS: &str = "the server's user may not use these keys: grant it ~PREFIX:*, with the \
                          store's prefix, \"throttle\" by default";
const USE_CLUSTER: &str = "the server is part of a cluster: use redis-cluster://";

/// Advice on certificates that are refused for another reason than their authority, by the text of
/// the TLS client in lower case; its versions word it in two ways.
const OTHER_CERTIFICATES: [(&str, &str); 5] = [
    ("not valid for name", OTHER_NAMES),
    ("notvalidforname", OTHER_NAMES),
    ("expired", OTHER_TIME),
    ("not valid yet", OTHER_TIME),
    ("notvalidyet", OTHER_TIME),
];

const OTHER_NAMES: &str = "the server's certificate is for other names: use one of them in the URL, \
let the cluster or Sentinel announce one, or set tls_server_name";
const OTHER_TIME: &str = "the server's certificate, or the client's, has expired or is not valid \
                          yet: renew it, or correct the clock";

/// Advice on answers of servers that should be Sentinels, which takes precedence. A Sentinel's
/// login is not the master's.
const OF_SENTINELS: [(&str, &str); 3] = [
    (
        "NOAUTH",
        "the sentinel wants its own password: end the URL in ?sentinel_password=p or \
         ?sentinel_user=u&sentinel_password=p",
    ),
    (
        "WRONGPASS",
        "the sentinel refuses the user or the password at the end of the URL, \
         ?sentinel_user=u&sentinel_password=p",
    ),
    (
        "unknown command",
        "the server is not a Sentinel: name Sentinels, whose default port is 26379, or use \
        redis:// for one server, redis-cluster:// for a cluster",
    ),
];

// Each of these can happen if only one side uses TLS. The client cannot tell the other causes
// apart.

pub(super) const SILENT: &str = "the server did not answer in time: check that it is up, does not \
                                 hang and can be reached from here; begin the URL with rediss if \
                                 it speaks TLS, with redis if it does not";
pub(super) const RUNS_NOTHING: &str = "the server accepted the connection, but did not run a script \
in time: check whether it is paused (CLIENT PAUSE, a failover), \
busy with other commands (SLOWLOG GET) or hanging";
pub(super) const NAMELESS: &str = "the slot moves to a node without a host name: set \
cluster-announce-hostname on every node, or \
cluster-preferred-endpoint-type ip";
pub(super) const UNKNOWN_SLOTS: &str = "the server is part of a cluster, but did not answer CLUSTER \
SLOTS: grant its user +cluster|slots on every node";
const CLOSED: &str = "the server closed the connection before it could be used: begin the URL with \
     rediss if it speaks TLS, with redis if it does not; check whether it refuses clients from here, \
     too many clients or clients without a certificate (protected-mode, maxclients, tls-auth-clients), \
     and whether a proxy in between has lost the server";
const FOREIGN: &str = "the server does not speak the Redis protocol: check the host and the port; \
     begin the URL with rediss if it speaks TLS, with redis if it does not";

/// The advice, with the error as its source.
#[derive(Debug)]
struct Advised<E> {
    advice: &'static str,
    error: OneLine<E>,
}

impl<E: fmt::Display> fmt::Display for Advised<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.advice, self.error)
    }
}

impl<E: Error + 'static> Error for Advised<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

pub(super) fn given(
    kind: StoreErrorKind,
    advice: &'static str,
    error: impl Error + Send + Sync + 'static,
) -> StoreError {
    let error = OneLine(error);
    StoreError::with_source(kind, Advised { advice, error })
}

/// Advice on a server's answer or certificate.
pub(super) fn for_answer(error: &RedisError) -> Option<&'static str> {
    let is_about_keys =
        |text: &str| text.contains("access one of the keys") || text.contains("access a key");
    match error.code() {
        Some("NOPERM") if error.detail().is_some_and(is_about_keys) => Some(GRANT_KEYS),
        _ => for_certificate(error).or_else(|| first_match(&ADVICE, error)),
    }
}

fn for_certificate(error: &RedisError) -> Option<&'static str> {
    let said = certificate_text(error)?;
    let mut advice = OTHER_CERTIFICATES.iter();
    advice.find_map(|(part, advice)| said.contains(part).then_some(*advice))
}

/// Advice on a Sentinel's answer, as far as it differs from that for servers.
pub(super) fn for_sentinel(error: &RedisError) -> Option<&'static str> {
    first_match(&OF_SENTINELS, error)
}

fn first_match(advice: &[(&str, &'static str)], error: &RedisError) -> Option<&'static str> {
    // The client does not report the text of a refused login.
    let refused = error.kind() == ErrorKind::AuthenticationFailed;
    let untrusted = is_about_certificates(error);
    let matches = |text: &str| {
        says(error, text) || refused && text == "WRONGPASS" || untrusted && text == "certificate"
    };
    let mut advice = advice.iter();
    advice.find_map(|(text, advice)| matches(text).then_some(*advice))
}

/// Advice on a connection that could not be made. A refused connection or an unknown host needs none.
pub(super) fn for_connecting(error: &RedisError) -> Option<&'static str> {
    if error.is_timeout() {
        Some(SILENT)
    } else if error.is_connection_dropped() && !error.is_connection_refusal() {
        Some(CLOSED)
    } else if error.kind() == ErrorKind::Parse || is_no_tls(error) {
        Some(FOREIGN)
    } else {
        None
    }
}

/// By the text of the TLS client, when the first bytes are not TLS.
fn is_no_tls(error: &RedisError) -> bool {
    error.is_io_error() && error.to_string().contains("InvalidContentType")
}
