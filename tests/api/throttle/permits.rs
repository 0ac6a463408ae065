//! A service's permit: taken once, good for one call, and given back if it is not used.

use std::convert::Infallible;

use tokio::time::timeout;
use tower::{Layer, Service, service_fn};
use tower_throttle::{HOUR, Limit, SECOND};

use super::{Watched, after, is_ready, layer, send, send_all, throttled};
use support::virtual_time::ms;

#[tokio::test(start_paused = true)]
async fn being_asked_again_whether_it_is_ready_takes_nothing() {
    let (mut service, store) = throttled(Limit::gcra(1, SECOND).burst(2));
    for _ in 0..5 {
        assert!(is_ready(&mut service));
    }
    assert_eq!(store.asked().len(), 1);
    assert_eq!(send_all(service, 3).await, after([0, 0, 1_000]));
}

#[tokio::test(start_paused = true)]
async fn a_clone_has_no_permit_of_its_own() {
    let (mut service, _) = throttled(Limit::gcra(1, SECOND));
    assert!(is_ready(&mut service));
    let mut clone = service.clone();
    assert!(!is_ready(&mut clone));
    assert_eq!(send(&mut service).await, ms(0));
    assert_eq!(send(&mut clone).await, ms(1_000));
}

#[tokio::test(start_paused = true)]
#[should_panic = "poll_ready must be called first"]
async fn a_call_without_a_permit_panics_and_sends_nothing() {
    let limiter = Watched::new().limiter(Limit::gcra(1, SECOND));
    let inner = service_fn(async |()| -> Result<(), Infallible> { unreachable!("it was sent") });
    let _response = layer(&limiter).layer(inner).call(());
}

#[tokio::test(start_paused = true)]
#[should_panic = "poll_ready must be called first"]
async fn a_permit_is_good_for_one_call() {
    let (mut service, _) = throttled(Limit::gcra(1, SECOND).burst(2));
    assert_eq!(send(&mut service).await, ms(0));
    let _response = service.call(());
}

#[tokio::test(start_paused = true)]
async fn dropping_a_ready_service_gives_its_permit_back() {
    let (mut service, _) = throttled(Limit::gcra(1, HOUR));
    let mut clone = service.clone();
    assert!(is_ready(&mut clone));
    drop(clone);
    assert_eq!(send(&mut service).await, ms(0));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_waiting_service_gives_its_permit_back() {
    let (mut service, _) = throttled(Limit::gcra(1, SECOND));
    assert_eq!(send(&mut service).await, ms(0));
    let mut clone = service.clone();
    assert!(!is_ready(&mut clone));
    drop(clone);
    assert_eq!(send(&mut service).await, ms(1_000));
}

#[tokio::test(start_paused = true)]
async fn a_permit_with_a_queue_behind_it_is_not_given_to_a_newcomer() {
    let (mut service, _) = throttled(Limit::gcra(1, SECOND));
    let (mut gone, mut behind) = (service.clone(), service.clone());
    assert!(is_ready(&mut gone));
    assert!(!is_ready(&mut behind));
    drop(gone);
    let both = tokio::join!(send(&mut behind), send(&mut service));
    assert_eq!(both, (ms(1_000), ms(2_000)), "never two at once");
}

#[tokio::test(start_paused = true)]
async fn a_sender_who_gives_up_leaves_its_place_to_the_next() {
    let (mut service, store) = throttled(Limit::gcra(1, SECOND));
    assert_eq!(send(&mut service).await, ms(0));
    assert!(timeout(ms(400), send(&mut service)).await.is_err());
    assert_eq!(send(&mut service).await, ms(1_000));
    assert_eq!(store.asked().len(), 2);
}
