//! What responses, events and looks tell of quotas is true, whatever policies a request has and
//! whatever was done with its keys before.

mod acquiring;
mod denial;
mod history;
mod policies;
mod promises;
mod request;
mod stage;

use self::history::histories;
use self::request::is_told_truly;
use support::bench::Bench;
use support::drawn::drawn;

const HISTORIES: usize = 200;

#[tokio::test(start_paused = true)]
async fn what_requests_are_told_is_true_in_memory() {
    for history in drawn(histories(true)).take(HISTORIES) {
        is_told_truly(&Bench::memory(), &history).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_requests_are_told_is_true_with_a_deny_cache() {
    for history in drawn(histories(true)).take(HISTORIES) {
        is_told_truly(&Bench::deny_cache(), &history).await;
    }
}

/// Where time passes, nobody waits.
#[tokio::test]
async fn what_requests_are_told_is_true_over_redis() {
    let bench = Bench::redis().await;
    for history in drawn(histories(false)).take(HISTORIES / 4) {
        is_told_truly(&bench, &history).await;
    }
}
