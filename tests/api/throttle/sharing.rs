//! Who shares one limit, and who does not.

use std::time::Duration;

use futures_util::future::join_all;
use tower::Layer;
use tower_throttle::{Key, Limit, Limiter, SECOND, Throttle};

use super::{Partner, Watched, after, layer, send_all};

#[tokio::test(start_paused = true)]
async fn clones_and_services_of_one_layer_share_the_limit() {
    let layer = layer(&Watched::new().limiter(Limit::gcra(10, SECOND).burst(1)));
    let first = layer.layer(Partner::new());
    let clone = first.clone();
    let second = layer.clone().layer(Partner::new());
    assert_eq!(
        sent_by([first, clone, second]).await,
        after((0..12).map(|n| n * 100))
    );
}

#[tokio::test(start_paused = true)]
async fn limiters_over_one_store_share_the_limit() {
    let store = Watched::new();
    let limit = Limit::gcra(10, SECOND).burst(2);
    let fleet = (0..3).map(|_| layer(&store.limiter(limit)).layer(Partner::new()));
    let expected = [0].into_iter().chain((0..11).map(|n| n * 100));
    assert_eq!(sent_by(fleet).await, after(expected));
}

/// When the requests of a fleet, four from each service, are sent.
async fn sent_by(fleet: impl IntoIterator<Item = Throttle<Partner>>) -> Vec<Duration> {
    let fleet = fleet.into_iter().map(|service| send_all(service, 4));
    let mut sent = join_all(fleet).await.concat();
    sent.sort_unstable();
    sent
}

#[tokio::test(start_paused = true)]
async fn services_of_different_keys_do_not_wait_for_each_other() {
    let limiter = Watched::new().limiter(Limit::gcra(1, SECOND));
    let of = |account: &str| layer(&limiter).key(account).layer(Partner::new());
    let sent = join_all([send_all(of("blue"), 2), send_all(of("red"), 2)]).await;
    assert_eq!(sent, [after([0, 1_000]), after([0, 1_000])]);
    assert!(is_allowed(&limiter).await);
}

/// Through the other API.
async fn is_allowed(limiter: &Limiter) -> bool {
    let decision = limiter.check("partner", Key::everybody()).await;
    decision.unwrap().is_allowed()
}

#[tokio::test(start_paused = true)]
async fn other_ways_to_ask_the_limiter_count_against_the_same_limit() {
    let store = Watched::new();
    let limiter = store.limiter(Limit::gcra(1, SECOND).burst(2));
    assert!(is_allowed(&limiter).await);
    let service = layer(&limiter).layer(Partner::new());
    assert_eq!(send_all(service, 2).await, after([0, 1_000]));
    assert!(!is_allowed(&limiter).await);
}
