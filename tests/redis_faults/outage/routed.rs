//! A proxy between that finds the server of a command by its key, and refuses one without a key.

use std::time::Duration;

use tower_throttle::{
    BreakerState, DAY, FailureMode, Limit, Limiter, Policy, RedisStore, StoreErrorKind,
};

use crate::outage::{back, open};
use support::redis::Server;
use support::router::{EarlyRejection, Router};

const DEADLINE: Duration = Duration::from_secs(20);

/// A pool as its users make one for such a proxy.
fn from_pool(url: &str) -> RedisStore {
    let server = redis::IntoConnectionInfo::into_connection_info(url).unwrap();
    let login = server.redis_settings().clone().set_skip_set_lib_name();
    let server = server.set_redis_settings(login);
    let manager = deadpool_redis::Manager::new(server).unwrap();
    let pool = deadpool_redis::Pool::builder(manager).build();
    RedisStore::from_pool(pool.unwrap())
}

fn limiter(store: RedisStore, timeout: Duration) -> Limiter {
    let policy = Policy::new("api", Limit::gcra(1_000_000, DAY));
    let limiter = Limiter::builder(store, [policy.on_store_failure(FailureMode::Deny)]);
    limiter.timeout(timeout).build().unwrap()
}

async fn failure(limiter: &Limiter, subject: &str) -> Option<StoreErrorKind> {
    let decision = limiter.check("api", subject).await.unwrap();
    decision.store_failure()
}

/// Stands still for as long as it takes to be left alone.
async fn servers_pause(servers: &[Server], limiter: &Limiter) {
    servers.iter().for_each(|server| server.signal("STOP"));
    open(limiter, "api").await;
    servers.iter().for_each(|server| server.signal("CONT"));
}

#[tokio::test]
async fn nothing_is_sent_that_has_no_key() {
    for refusal in [
        EarlyRejection::HangUp,
        EarlyRejection::Error,
        EarlyRejection::NoReply,
    ] {
        let servers = [Server::start(), Server::start()];
        let router = Router::to(&servers, refusal);
        let by_url = RedisStore::connect(&router.url()).await.unwrap();
        for store in [by_url, from_pool(&router.url())] {
            let patient = limiter(store.clone(), DEADLINE);
            for subject in ["alice", "bob", "carol", "dave"] {
                assert_eq!(failure(&patient, subject).await, None, "{refusal:?}");
            }
            // Longer than a connection may be idle without being probed.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            assert_eq!(failure(&patient, "alice").await, None, "{refusal:?}");
            let limiter = limiter(store, Duration::from_millis(50));
            servers_pause(&servers, &limiter).await;
            back(&limiter, "api").await;
        }
        assert_eq!(router.refused(), [""; 0], "{refusal:?}");
        let asked = servers.each_ref().map(|server| server.calls("evalsha"));
        assert!(
            asked.iter().all(|asked| *asked > 0),
            "all on one: {asked:?}"
        );
    }
}

/// It is asked for its role all the same, and another connection is made without that.
#[tokio::test]
async fn connections_of_the_application_go_through_it() {
    for refusal in [
        EarlyRejection::HangUp,
        EarlyRejection::Error,
        EarlyRejection::NoReply,
    ] {
        let servers = [Server::start(), Server::start()];
        let router = Router::to(&servers, refusal);
        let login = redis::IntoConnectionInfo::into_connection_info(router.url()).unwrap();
        let settings = login.redis_settings().clone().set_skip_set_lib_name();
        let client = redis::Client::open(login.set_redis_settings(settings)).unwrap();
        let store = RedisStore::builder_with(move || {
            let client = client.clone();
            async move { client.get_multiplexed_async_connection().await }
        });
        let limiter = limiter(store.connect_lazy().unwrap(), DEADLINE);
        for subject in ["alice", "bob", "carol", "dave"] {
            assert_eq!(failure(&limiter, subject).await, None, "{refusal:?}");
        }
        // Once for each connection, of which a busy machine may make more than one.
        let mut refused = router.refused();
        refused.dedup();
        assert_eq!(refused, ["HELLO"], "{refusal:?}");
    }
}

/// The servers know the scripts, so that decisions need none of the commands of a probe.
#[tokio::test]
async fn a_probe_without_answer_does_not_stop_further_questions() {
    for refusal in [
        EarlyRejection::HangUp,
        EarlyRejection::Error,
        EarlyRejection::NoReply,
    ] {
        let servers = [Server::start(), Server::start()];
        let router = Router::to(&servers, refusal);
        let store = from_pool(&router.url());
        let patient = limiter(store.clone(), DEADLINE);
        for subject in ["alice", "bob", "carol", "dave", "nobody"] {
            assert_eq!(failure(&patient, subject).await, None);
            let looked = patient.peek("api", subject).await.unwrap();
            assert_eq!(looked.store_failure(), None);
        }
        router.refuse("EVAL");
        let limiter = limiter(store, Duration::from_millis(50));
        for _ in 0..2 {
            servers_pause(&servers, &limiter).await;
            back(&limiter, "api").await;
        }
        assert_eq!(limiter.breaker_state(), BreakerState::Closed);
        assert!(!router.refused().is_empty(), "it was never probed");
    }
}
