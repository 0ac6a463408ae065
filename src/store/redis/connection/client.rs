//! What all connections have in common: times, and how the client library is set up.

use std::time::Duration;

use redis::io::tcp::{TcpSettings, socket2};
use redis::{AsyncConnectionConfig, ConnectionInfo};

use crate::random::random;
use crate::store::redis::in_flight::InFlight;

/// How long a connection attempt may take. That is far longer than a decision, which waits for it
/// only until its own deadline.
pub(in crate::store::redis) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The time between the starts of two attempts: a server that is down, or refuses, gets at most two
/// a second from each process.
pub(super) const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// After this time the client stops waiting for a reply; no decision has a later deadline.
pub(in crate::store::redis) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(60);
/// A connection breaks if sent data stays unacknowledged for this long.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often an idle connection is probed, so that middleboxes do not forget it.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// How many questions may wait in the client to be written: as many as a store admits by default.
/// Beyond that, questions wait for room.
const WRITE_QUEUE: usize = InFlight::USUAL;

/// [`RECONNECT_PAUSE`], or up to a fifth longer, so that a fleet that lost its server at one moment
/// does not come back all at once.
pub(in crate::store::redis) fn pause() -> Duration {
    let jitter = random() % 1_000;
    RECONNECT_PAUSE + RECONNECT_PAUSE / 5_000 * jitter as u32
}

/// Without `CLIENT SETINFO`, which some proxies hang up on and some servers refuse: only the login and
/// the database are sent before the first question.
pub(super) fn with_our_settings(server: ConnectionInfo) -> ConnectionInfo {
    let login = server.redis_settings().clone().set_skip_set_lib_name();
    server
        .set_redis_settings(login)
        .set_tcp_settings(tcp_settings())
}

fn tcp_settings() -> TcpSettings {
    let tcp = TcpSettings::default()
        .set_nodelay(true)
        .set_keepalive(socket2::TcpKeepalive::new().with_time(KEEPALIVE));
    #[cfg(target_os = "linux")]
    let tcp = tcp.set_user_timeout(USER_TIMEOUT);
    tcp
}

pub(super) fn config() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_pipeline_buffer_size(WRITE_QUEUE)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn attempts_are_half_a_second_apart_or_up_to_a_fifth_more() {
        let pauses: HashSet<_> = (0..1_000).map(|_| pause()).collect();
        let range = Duration::from_millis(500)..=Duration::from_millis(600);
        for pause in &pauses {
            assert!(range.contains(pause), "{pause:?}");
        }
        let spread = *pauses.iter().max().unwrap() - *pauses.iter().min().unwrap();
        assert!(spread > Duration::from_millis(90), "{spread:?}");
        // At least half of the pauses differ.
        assert!(pauses.len() > 500, "{}", pauses.len());
    }
}
