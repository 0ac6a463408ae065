//! Servers that stop and come back.

use std::time::Duration;

use tower_throttle::StoreErrorKind::{Interrupted, Unreachable};

use crate::faults::stage::{PROMISED, SOON, Stage, recovery};
use support::redis::Server;

#[tokio::test]
async fn a_server_that_is_killed() {
    let mut stage = Stage::start().await;
    let kill = |server: &mut Server, _: &_| server.kill();
    let reasons = [Interrupted, Unreachable];
    stage
        .endures("kill -9", &reasons, kill, |server, _| server.restart())
        .await;
}

#[tokio::test]
async fn a_server_that_is_restarted_again_and_again() {
    let mut stage = Stage::start().await;
    let mut recoveries = Vec::new();
    for _ in 0..5 {
        stage.server.restart();
        recoveries.push(recovery(&stage.limiter).await);
    }
    assert!(recoveries.iter().all(|one| *one < SOON), "{recoveries:?}");
    let is_as_promised = |one: &Duration| *one < PROMISED;
    assert!(recoveries.iter().any(is_as_promised), "{recoveries:?}");
}

#[tokio::test]
async fn a_server_back_after_long_is_asked_within_a_second() {
    let mut stage = Stage::start().await;
    let kill = |server: &mut Server, _: &_| server.kill();
    let restart = |server: &mut Server, _: &_| server.restart();
    stage.is_soon_back("a long kill -9", kill, restart).await;
}

/// A server that forgets is not broken: limits start anew.
#[tokio::test]
async fn a_server_that_is_emptied_fails_no_decision() {
    let stage = Stage::start().await;
    let left = async || {
        let decision = stage.limiter.check("closed", "alice").await.unwrap();
        assert_eq!(decision.store_failure(), None);
        decision.remaining()
    };
    let first = left().await;
    assert_eq!(left().await, first - 1);
    stage.server.query::<()>("FLUSHALL");
    assert_eq!(left().await, first);
}
