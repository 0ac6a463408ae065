//! One limiter used from several runtimes, some of which end or stand still.

use std::sync::mpsc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::runtime::{Builder, Runtime};
use tokio::task::yield_now;
use tokio::time::advance;
use tower_throttle::{HOUR, Limit, Limiter, MemoryStore, Permit};

use super::places::{EVERYBODY, LIFE, POLICY, Places, in_time, patient, policy, until};
use super::watched::Watched;
use support::redis::Server;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn admit(limiter: &Limiter, runtime: &Runtime, user: &str) -> Permit {
    runtime.block_on(limiter.admit(POLICY, user)).unwrap()
}

/// Lets two lives of a user's lease pass on the store's clock, as fast as it is renewed.
fn outlives_two_lives(places: &Places, runtime: &Runtime, user: &str) {
    runtime.block_on(in_time(async {
        for _ in 0..6 {
            places.clock.advance(LIFE / 3);
            until("it is renewed", async || {
                let decision = places.limiter.peek(POLICY, user).await.unwrap();
                decision.remaining() == 1 && decision.reset_after() == LIFE
            })
            .await;
        }
    }));
}

#[test]
fn a_runtime_shutdown_keeps_leases_of_others() {
    let places = Places::memory();
    let (first, second) = (runtime(), runtime());
    let _firsts = admit(&places.limiter, &first, "alice");
    let _seconds = admit(&places.limiter, &second, "bob");
    drop(first);
    outlives_two_lives(&places, &second, "bob");
    let third = runtime();
    let _thirds = admit(&places.limiter, &third, "carol");
    outlives_two_lives(&places, &third, "carol");
}

#[test]
fn a_runtime_that_nobody_drives_holds_up_no_renewals_of_others() {
    let places = Places::memory();
    let (idle, busy) = (runtime(), runtime());
    let idles = admit(&places.limiter, &idle, "alice");
    let _busys = admit(&places.limiter, &busy, "bob");
    outlives_two_lives(&places, &busy, "bob");
    // Its lease has lapsed, which it does not know.
    let free = busy.block_on(places.limiter.peek(POLICY, "alice")).unwrap();
    assert_eq!(free.remaining(), 2);
    drop(idles);
}

/// Its leases are due for as long as nobody drives it.
#[test]
fn an_undriven_runtime_makes_no_more_renewals_for_others() {
    let store = Watched::new();
    let limit = Limit::concurrency(2).lease(LIFE);
    let limiter = patient(store.clone(), [policy(limit)]);
    let [idle, busy] = [(); 2].map(|()| {
        let mut builder = Builder::new_current_thread();
        builder.enable_time().start_paused(true).build().unwrap()
    });
    let _idles = admit(&limiter, &idle, "alice");
    let _busys = admit(&limiter, &busy, "bob");
    busy.block_on(async {
        for _ in 0..9 {
            advance(LIFE / 3 + Duration::from_millis(1)).await;
            for _ in 0..20 {
                yield_now().await;
            }
        }
    });
    assert_eq!(store.renewed(), [1; 9]);
}

/// A runtime that drops a task the moment it is spawned.
#[test]
fn asking_on_a_runtime_that_is_gone_comes_back_at_once() {
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let gone = runtime();
        let handle = gone.handle().clone();
        drop(gone);
        let _entered = handle.enter();
        let limiter = patient(MemoryStore::new(), [policy(Limit::concurrency(1))]);
        for _ in 0..2 {
            let held = limiter.admit(POLICY, EVERYBODY).now_or_never();
            let held = held.expect("a memory store answers at once");
            assert!(held.is_ok());
        }
        done.send(()).unwrap();
    });
    is_done.recv_timeout(Duration::from_secs(30)).unwrap();
}

#[test]
fn a_permit_outlives_the_runtime_that_it_was_given_on() {
    let server = Server::start();
    let (first, second) = (runtime(), runtime());
    let store = first.block_on(server.store());
    let limiter = patient(store, [policy(Limit::concurrency(1).lease(HOUR))]);
    let held = admit(&limiter, &first, "alice");
    drop(first);
    second.block_on(in_time(async {
        drop(held);
        until("it is given back", async || server.keys().is_empty()).await;
    }));
}
