//! A server that is demoted under a connection, and a successor that is there already.

use futures_util::future::join_all;
use tower_throttle::{DAY, FailureMode, Limit, Limiter, Outcome, Policy, RedisStore, SECOND};

use crate::support::proxy::Proxy;
use crate::support::redis::{Server, free_port};

const LIMIT: u32 = 100;

async fn is_asked_once_more(name: &'static str, limit: Limit) {
    let (demoted, successor) = (Server::start(), Server::start());
    let proxy = Proxy::to(demoted.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let policy = Policy::new(name, limit).on_store_failure(FailureMode::Deny);
    let limiter = Limiter::builder(store).policy(policy);
    let limiter = limiter.timeout(60 * SECOND).build().unwrap();
    let warm = limiter.check(name, "warm").await.unwrap();
    assert_eq!(warm.outcome(), Outcome::Allowed);

    // A younger connection is not replaced at once.
    tokio::time::pause();
    tokio::time::advance(SECOND * 3 / 5).await;
    tokio::time::resume();
    let mut follow = redis::cmd("REPLICAOF");
    follow.arg("127.0.0.1").arg(free_port());
    demoted.query::<()>(follow);
    proxy.lead_to(successor.port());
    // Some alone, and the others together.
    let subjects = 0..20_u64;
    let asked = subjects.clone().map(|subject| limiter.check(name, subject));
    for decision in join_all(asked).await {
        let decision = decision.unwrap();
        assert_eq!(decision.outcome(), Outcome::Allowed, "{name}");
        assert_eq!(decision.remaining(), LIMIT - 1, "{name}");
    }
    assert_eq!(successor.keys().len(), subjects.count(), "{name}");
    assert_eq!(demoted.keys().len(), 1, "{name}");
}

/// Nothing ran where it was refused, so that it is asked again within the same decision.
#[tokio::test]
async fn what_a_demoted_server_refuses_is_asked_once_more_of_its_successor() {
    let debt = Limit::gcra(LIMIT, LIMIT * DAY);
    for (name, limit) in [
        ("plain", debt),
        ("any", Limit::fixed_window(LIMIT, DAY)),
        ("several", debt.and(1_000, 300 * DAY)),
    ] {
        is_asked_once_more(name, limit).await;
    }
}
