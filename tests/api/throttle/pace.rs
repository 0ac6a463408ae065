//! How often a service is ready, by limit, cost and mode, and the limits that nobody can wait for.

use futures_util::future::join_all;
use tower::Layer;
use tower_throttle::{
    CheckError, HOUR, Key, Limit, Limiter, MINUTE, MemoryStore, Mode, Penalty, Policy, SECOND,
    ThrottleLayer, per_second,
};

use super::{Partner, Watched, after, layer, send, send_all, throttled};
use support::virtual_time::ms;

#[tokio::test(start_paused = true)]
async fn the_service_is_ready_as_often_as_the_limit_allows() {
    for limit in [
        Limit::gcra(10, SECOND).burst(3),
        Limit::token_bucket(3, per_second(10)),
        Limit::leaky_bucket(3, per_second(10)).without_delay(),
    ] {
        let (service, _) = throttled(limit);
        let sent = send_all(service, 6).await;
        assert_eq!(sent, after([0, 0, 0, 100, 200, 300]), "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn under_a_queue_it_is_ready_at_an_even_pace() {
    let (service, store) = throttled(Limit::leaky_bucket(1, per_second(10)));
    let sent = send_all(service, 4).await;
    assert_eq!(sent, after([0, 100, 200, 300]));
    assert_eq!(store.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn senders_go_on_in_the_order_in_which_they_came() {
    let (mut first, _) = throttled(Limit::gcra(1, SECOND));
    let mut others = [first.clone(), first.clone(), first.clone()];
    assert_eq!(send(&mut first).await, ms(0));
    let sent = join_all(others.iter_mut().map(send)).await;
    assert_eq!(sent, after([1_000, 2_000, 3_000]));
}

#[tokio::test(start_paused = true)]
async fn costs_are_the_policys_unless_the_layer_sets_its_own() {
    let policy = Policy::new("partner", Limit::gcra(10, SECOND)).cost(5);
    let limiter = Watched::new().limiter_of(policy);
    for (layer, expected) in [
        (layer(&limiter), [0, 0, 500]),
        (layer(&limiter).cost(10), [0, 1_000, 2_000]),
        // More than there ever is at once: the next one waits for the rest.
        (layer(&limiter).cost(20), [0, 1_000, 3_000]),
        // A cost of zero counts as one.
        (layer(&limiter).cost(0), [0, 0, 0]),
    ] {
        let service = layer.layer(Partner::new());
        assert_eq!(send_all(service, 3).await, after(expected));
        let _ = limiter.reset("partner", Key::everybody()).await.unwrap();
    }
    let mut for_nothing = layer(&limiter).cost(0).layer(Partner::new());
    send(&mut for_nothing).await;
    let left = limiter.peek("partner", Key::everybody()).await.unwrap();
    assert_eq!(left.remaining(), 9);
}

/// Nobody slows down for it meanwhile. If everything sent were counted, the next one would wait for
/// hours.
#[tokio::test(start_paused = true)]
async fn shadow_requests_delay_nobody_once_the_policy_is_enforced() {
    for (limit, cost, wait) in [
        (Limit::gcra(1, SECOND).burst(3), 1, 1_000),
        // More than there ever is at once.
        (Limit::gcra(1, SECOND).burst(3), 5, 2_000),
        (Limit::leaky_bucket(3, per_second(1)), 1, 1_000),
    ] {
        let penalty = Penalty::after(1, MINUTE, HOUR);
        let policy = Policy::new("partner", limit).penalty(penalty);
        let limiter = Watched::new().limiter_of(policy.mode(Mode::Shadow));
        let mut service = layer(&limiter).cost(cost).layer(Partner::new());
        assert_eq!(send_all(service.clone(), 10_000).await, [ms(0); 10_000]);
        limiter.set_mode("partner", Mode::Enforce).unwrap();
        assert_eq!(send(&mut service).await, ms(wait), "{limit:?}");
    }
}

#[tokio::test]
async fn a_policy_that_cannot_wait_is_refused_when_the_layer_is_made() {
    let policies = [Policy::new("window", Limit::fixed_window(1, SECOND))];
    let limiter = Limiter::new(MemoryStore::new(), policies).unwrap();
    let refused = |policy: &str| ThrottleLayer::new(limiter.clone(), policy).unwrap_err();
    let name = "window".to_owned();
    assert_eq!(refused("window"), CheckError::CannotWait { name });
    let name = "windov".to_owned();
    assert_eq!(refused("windov"), CheckError::UnknownPolicy { name });
}
