//! How often the store is asked, and when a service is ready over one that fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use tokio::time::timeout;
use tower::{Layer, ServiceExt};
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    AlwaysDeny, FailureMode, HOUR, Limit, Limiter, MINUTE, Policy, SECOND, StoreErrorKind,
};

use super::{Partner, Watched, after, layer, send, send_all, throttled};
use support::redis::Server;
use support::until::until;
use support::virtual_time::ms;

#[tokio::test(start_paused = true)]
async fn each_grant_takes_one_trip_however_long_it_is_waited_for() {
    let (service, store) = throttled(Limit::gcra(1, HOUR).burst(2));
    let sent = join_all([send_all(service.clone(), 5), send_all(service, 5)]).await;
    assert_eq!(sent.concat().into_iter().max(), Some(8 * HOUR));
    assert_eq!(store.asked().len(), 10);
}

#[tokio::test]
async fn a_grant_is_one_script_call_in_redis_or_shares_one() {
    let server = Server::start();
    let policy = Policy::new("partner", Limit::gcra(1_000, SECOND).burst(1));
    let limiter = Limiter::builder(server.store().await, [policy]);
    let limiter = limiter.timeout(60 * SECOND).build().unwrap();
    let service = layer(&limiter).layer(Partner::new());
    let asked = server.calls("evalsha");
    let sent = join_all((0..4).map(|_| send_all(service.clone(), 10))).await;
    assert_eq!(sent.concat().len(), 40);
    // Each of them waits for one grant after the other.
    let calls = server.calls("evalsha") - asked;
    assert!((10..=40).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn over_a_failing_store_it_is_ready_at_once_by_default() {
    let store = Watched::failing(5);
    let service = layer(&store.limiter(Limit::gcra(1, SECOND))).layer(Partner::new());
    // Five that nobody counts, and one that is counted.
    assert_eq!(send_all(service, 7).await, after([0, 0, 0, 0, 0, 0, 1_000]));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_fails_closed_is_asked_again_every_second() {
    let store = Watched::failing(3);
    let policy = Policy::new("partner", Limit::gcra(1, MINUTE));
    let limiter = store.limiter_of(policy.on_store_failure(FailureMode::Deny));
    let mut service = layer(&limiter).layer(Partner::new());
    assert_eq!(send(&mut service).await, ms(3_000));
    assert_eq!(store.asked(), after([0, 1_000, 2_000, 3_000]));
}

/// A store that denies without a wait.
struct Denies(Arc<AtomicU32>);

impl Store for Denies {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) < 100, "no pause");
        AlwaysDeny::new(Duration::ZERO).ask(checks)
    }
}

/// Otherwise every waiting caller would ask in a loop without a pause.
#[tokio::test(start_paused = true)]
async fn a_store_that_denies_without_a_wait_is_asked_every_second() {
    let asked = Arc::new(AtomicU32::new(0));
    let policy = Policy::new("partner", Limit::gcra(1, SECOND));
    let limiter = Limiter::new(Denies(Arc::clone(&asked)), [policy]).unwrap();
    let mut service = layer(&limiter).layer(Partner::new());
    let ready = timeout(ms(2_500), ServiceExt::<()>::ready(&mut service)).await;
    assert!(ready.is_err());
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

/// As documented: so it is better dropped.
#[tokio::test]
async fn a_service_kept_while_it_asks_stays_in_flight_until_dropped() {
    let server = Server::start();
    let store = server.builder().max_in_flight(1).connect().await.unwrap();
    let policy = Policy::new("partner", Limit::gcra(1_000, SECOND));
    let limiter = Limiter::new(store, [policy]).unwrap();
    let mut service = layer(&limiter).layer(Partner::new());
    let asked = poll!(Box::pin(ServiceExt::<()>::ready(&mut service)));
    assert!(asked.is_pending());
    let failure = async || {
        let other = limiter.check("partner", "another").await.unwrap();
        other.store_failure()
    };
    assert_eq!(failure().await, Some(StoreErrorKind::Overloaded));
    drop(service);
    until("the answer is read", async || failure().await.is_none()).await;
}
