//! Servers that end, and come again.

use tower_throttle::StoreErrorKind::{Interrupted, Unreachable};

use crate::stage::{SOON, Stage, recovery};
use crate::support::redis::Server;

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
    for _ in 0..5 {
        stage.server.restart();
        let recovery = recovery(&stage.limiter).await;
        assert!(recovery < SOON, "{recovery:?}");
    }
}

/// Nothing is wrong with a server that forgets: limits start anew.
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
    stage.server.query::<()>(redis::cmd("FLUSHALL"));
    assert_eq!(left().await, first);
}
