//! The server's clock is the whole fleet's: every script reads it, alone and for those who come
//! together.

use std::time::{Duration, Instant};

use tower_throttle::algorithm::Action;

use crate::support::redis::Server;
use crate::{LIMITS, ask_together, shapes};

/// By another clock, or one that is off by more than a look takes, permits would be paid earlier or
/// later.
#[tokio::test]
async fn whichever_script_judges_goes_by_the_servers_clock_to_the_microsecond() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    for (name, _, limit) in LIMITS {
        for policies in shapes(name) {
            let started = Instant::now();
            let taken = ask_together(&store, &policies, &limit, Action::spend(1)).await;
            let looked = ask_together(&store, &policies, &limit, Action::look()).await;
            let elapsed = started.elapsed();
            for (taken, looked) in taken.iter().zip(&looked) {
                for (taken, looked) in taken.iter().zip(looked.iter()) {
                    let (at_first, left) = (taken.reset_after(), looked.reset_after());
                    let case = || format!("{policies:?}: {at_first:?} {left:?} {elapsed:?}");
                    assert!(left <= at_first, "{}", case());
                    assert!(left + elapsed >= at_first, "{}", case());
                    assert!(at_first > Duration::ZERO, "{}", case());
                }
            }
        }
    }
}
