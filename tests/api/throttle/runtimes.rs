//! One service used from several runtimes, one of which ends or stands still.

use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{HOUR, Limit, Limiter, ManualClock, MemoryStore, Policy};

use super::{Partner, Watched, is_ready, layer};
use support::virtual_time::timed;

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// How long a request waits on one runtime after another request gave up on a second one, to which
/// this has happened.
fn waits_after<T>(left: impl FnOnce(Runtime) -> T) -> Duration {
    // The store's clock stands still: for each request it says how long it is after the first.
    let store = MemoryStore::builder().clock(ManualClock::new()).build();
    let policy = Policy::new("partner", Limit::gcra(1, HOUR));
    let limiter = Limiter::new(store, [policy]).unwrap();
    let partner = service_fn(async |()| Ok::<_, &str>(()));
    let mut service = layer(&limiter).layer(partner);

    let first = runtime();
    first.block_on(async {
        service.ready().await.unwrap().call(()).await.unwrap();
        assert!(timeout(HOUR / 2, service.ready()).await.is_err());
    });
    let _left = left(first);
    runtime().block_on(async {
        let (ready, waited) = timed(timeout(3 * HOUR, service.ready())).await;
        let ready = ready.expect("somebody wakes who waits").unwrap();
        ready.call(()).await.unwrap();
        waited
    })
}

#[test]
fn giving_up_on_a_gone_runtime_keeps_nobody_waiting() {
    assert_eq!(waits_after(drop), HOUR);
}

#[test]
fn giving_up_on_an_undriven_runtime_keeps_nobody_waiting() {
    assert_eq!(waits_after(|idle| idle), HOUR);
}

#[test]
fn a_waiter_keeps_its_place_outside_of_any_runtime() {
    let (store, runtime) = (Watched::new(), runtime());
    let mut service = layer(&store.limiter(Limit::gcra(1, HOUR))).layer(Partner::new());
    let mut clone = service.clone();
    runtime.block_on(async {
        assert!(is_ready(&mut service));
        assert!(!is_ready(&mut clone));
    });
    assert!(!is_ready(&mut clone));
    assert_eq!(store.asked().len(), 2);
}
