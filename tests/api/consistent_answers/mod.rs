//! Responses, events and looks report quotas that are true and agree with each other, for any policies
//! and after any history of their keys.

mod acquiring;
mod denial;
mod history;
mod policies;
mod promises;
mod request;
mod stage;

use self::history::histories;
use self::request::check_answers;
use support::bench::Bench;
use support::drawn::drawn;

const HISTORIES: usize = 200;

#[tokio::test(start_paused = true)]
async fn answers_are_consistent_in_memory() {
    for history in drawn(histories(true)).take(HISTORIES) {
        check_answers(&Bench::memory(), &history).await;
    }
}

#[tokio::test(start_paused = true)]
async fn answers_are_consistent_with_a_deny_cache() {
    for history in drawn(histories(true)).take(HISTORIES) {
        check_answers(&Bench::deny_cache(), &history).await;
    }
}

/// Where time passes, nobody waits.
#[tokio::test]
async fn answers_are_consistent_over_redis() {
    let bench = Bench::redis().await;
    for history in drawn(histories(false)).take(HISTORIES / 4) {
        check_answers(&bench, &history).await;
    }
}
