//! The store on a server.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tower_throttle::{Limit, Policy, SECOND};

use super::flood::{Grown, keys, patient};
use support::memory::alone;
use support::redis::Server;
use support::web::GENEROUS;

/// This many questions are in flight at once.
const AT_ONCE: usize = 256;

/// What the server has allocated.
fn used_memory(server: &Server) -> u64 {
    let info = server.info("memory");
    let mut lines = info.lines();
    let used = lines.find_map(|line| line.strip_prefix("used_memory:"));
    used.unwrap().parse().unwrap()
}

fn held(server: &Server) -> u64 {
    server.query("DBSIZE")
}

/// Each key is allowed once and denied once, which is remembered here until its second is over.
#[test]
fn keys_on_the_server_leave_nothing_once_they_are_over() {
    alone(
        keys_on_the_server_leave_nothing_once_they_are_over,
        async || {
            let server = Server::start();
            let store = server.store().await;
            let limiter = patient(store, Policy::new("api", Limit::gcra(1, SECOND)));
            let empty = used_memory(&server);
            let (mut most, mut most_used) = (0, 0);
            let mut denied = 0;

            // The first fifth of them fills the memory of denials.
            let keys = keys(500_000);
            let grown = Grown::under("RedisStore", keys, async |keys| {
                let both = async |key: u64| {
                    let first = limiter.check("api", key).await.unwrap();
                    assert_eq!(first.store_failure(), None);
                    assert!(first.is_allowed());
                    let second = limiter.check("api", key).await.unwrap();
                    assert_eq!(second.store_failure(), None);
                    !second.is_allowed()
                };
                let asked = stream::iter(keys).map(both);
                let mut answered = asked.buffer_unordered(AT_ONCE).enumerate();
                while let Some((count, is_denied)) = answered.next().await {
                    denied += u64::from(is_denied);
                    if count % 100_000 == 9_999 {
                        most = most.max(held(&server));
                        most_used = most_used.max(used_memory(&server));
                    }
                }
            });
            let grown = grown.await;
            // Except those that were kept waiting for longer than their second.
            assert!(denied > keys / 2, "{denied}");
            grown.assert_flat();
            // What is remembered, and what is in flight.
            grown.assert_at_most((14 << 20) + AT_ONCE as u64 * 10_000);

            let gone = async {
                while held(&server) > 0 {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(GENEROUS, gone)
                .await
                .expect("they stay");
            let left = used_memory(&server).saturating_sub(empty);
            let [most_mb, left_mb] =
                [most_used.saturating_sub(empty), left].map(|bytes| bytes as f64 / 1e6);
            println!("the server: at most {most} keys and {most_mb:.1} MB, {left_mb:.1} MB later");
        },
    );
}

/// Each of them has its own stop while its trip is in flight.
#[test]
fn memory_stays_flat_with_logs_on_the_server_and_no_deny_cache() {
    alone(
        memory_stays_flat_with_logs_on_the_server_and_no_deny_cache,
        async || {
            let server = Server::start();
            let store = server.store().await.without_deny_cache();
            let limiter = patient(store, Policy::new("api", Limit::sliding_log(1, SECOND)));
            let grown = Grown::under("RedisStore, logs", keys(50_000), async |keys| {
                let asked = stream::iter(keys).map(|key| limiter.check("api", key));
                let mut answered = asked.buffer_unordered(AT_ONCE);
                while let Some(decision) = answered.next().await {
                    let decision = decision.unwrap();
                    assert_eq!(decision.store_failure(), None);
                    assert!(decision.is_allowed());
                }
            });
            grown.await.assert_flat();
        },
    );
}
