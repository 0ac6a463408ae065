//! A process with a runtime that is driven only while a thread blocks on it, and what that runtime
//! has begun when it stands still or goes.

use std::future::pending;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use futures_util::future::{join, join_all};
use futures_util::poll;
use tokio::runtime::{Builder, Runtime};
use tower_throttle::{
    BreakerState, FailureMode, Limit, Limiter, MINUTE, Policy, RedisStore, SECOND,
};

use crate::outage::back;
use support::asking::GO_ALONE;
use support::cluster::Cluster;
use support::proxy::{Proxy, Way};
use support::redis::Server;

/// How often something is tried that depends on what threads do at the same moment.
const ROUNDS: usize = 100;
/// As long as a forgotten caller waits.
const LATE: Duration = Duration::from_secs(10);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn with_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

fn limiter(url: &str, deadline: Duration) -> Limiter {
    let store = RedisStore::builder(url).connect_lazy().unwrap();
    let policy = Policy::new("api", Limit::gcra(1_000_000, MINUTE));
    let builder = Limiter::builder(store, [policy.on_store_failure(FailureMode::Deny)]);
    builder.timeout(deadline).build().unwrap()
}

/// Asks on a runtime, which stands still before the answer is there.
macro_rules! asked_on {
    ($idle:expr, $question:expr) => {{
        let mut asked = Box::pin($question);
        assert!($idle.block_on(async { poll!(&mut asked) }).is_pending());
        asked
    }};
}

async fn is_decided(limiter: &Limiter, subject: &str) {
    let decision = limiter.check("api", subject).await.unwrap();
    assert_eq!(decision.store_failure(), None, "{subject}");
}

/// Those who come while these are in flight wait for them.
async fn all_who_go_alone(limiter: &Limiter) {
    let subjects = (0..GO_ALONE).map(|number| format!("other-{number}"));
    join_all(subjects.map(async |subject| is_decided(limiter, &subject).await)).await;
}

/// The proxy hangs while one runtime asks, and no longer when the other does.
fn asked_on_another(proxy: &Proxy, url: &str) {
    let (idle, busy) = (runtime(), runtime());
    let limiter = limiter(url, Duration::from_millis(200));
    proxy.set(Way::Blackhole);
    let decision = idle.block_on(limiter.check("api", "alice")).unwrap();
    assert!(decision.store_failure().is_some());
    proxy.set(Way::Pass);
    busy.block_on(back(&limiter, "api"));
}

#[test]
fn an_attempt_to_connect_holds_up_nobody_else() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    asked_on_another(&proxy, &proxy.url());
}

#[test]
fn finding_cluster_nodes_delays_no_others() {
    let cluster = Cluster::start();
    let proxy = Proxy::to(cluster.masters[0].port());
    let url = format!("redis-cluster://127.0.0.1:{}", proxy.port());
    asked_on_another(&proxy, &url);
}

/// Nothing is written or read while its runtime stands still.
#[test]
fn a_connection_is_served_by_a_runtime_that_goes_on() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let limiter = limiter(&proxy.url(), LATE);
    let (idle, service) = (runtime(), with_threads());
    for _ in 0..3 {
        idle.block_on(is_decided(&limiter, "alice"));
        service.block_on(is_decided(&limiter, "alice"));
    }
    assert_eq!(proxy.accepted().len(), 2, "one of each, and none goes back");
}

/// Before they go, those in front of them must be back, which they are when they are polled again.
#[test]
fn a_shared_trip_goes_on_a_runtime_that_is_driven() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let limiter = limiter(&proxy.url(), LATE);
    let (idle, service) = (runtime(), with_threads());
    service.block_on(is_decided(&limiter, "alice"));
    proxy.set(Way::Delay(Duration::from_millis(10)));
    let others = asked_on!(service, all_who_go_alone(&limiter));
    let _first_in_line = asked_on!(idle, is_decided(&limiter, "alice"));
    let aboard = join_all((0..5).map(|_| is_decided(&limiter, "alice")));
    service.block_on(join(aboard, others));
}

#[test]
fn a_lone_waiter_notices_a_trip_that_stands_still() {
    let server = Server::start();
    let limiter = limiter(&server.url(), LATE);
    let (idle, busy) = (runtime(), runtime());
    busy.block_on(is_decided(&limiter, "alice"));
    let others = asked_on!(busy, all_who_go_alone(&limiter));
    let _on_the_trip = asked_on!(idle, is_decided(&limiter, "alice"));
    busy.block_on(others);
    busy.block_on(is_decided(&limiter, "alice"));
}

/// Nobody serves the connection any more, which shows nothing about the server.
#[test]
fn a_connection_whose_runtime_is_gone_costs_no_decision() {
    let (server, cluster) = (Server::start(), Cluster::start());
    for url in [server.url(), cluster.url()] {
        for make in [runtime, with_threads] {
            let limiter = limiter(&url, LATE);
            for _ in 0..10 {
                make().block_on(is_decided(&limiter, "alice"));
            }
        }
    }
}

/// The same if it goes while a connection is made there, or the nodes are looked for, and others wait
/// for that.
#[test]
fn a_runtime_that_ends_while_connecting_is_no_server_failure() {
    let (server, cluster) = (Server::start(), Cluster::start());
    let lasting = with_threads();
    for (scheme, port) in [
        ("redis", server.port()),
        ("redis-cluster", cluster.masters[0].port()),
    ] {
        let proxy = Proxy::to(port);
        // Connecting takes longer than one of the runtimes lasts.
        proxy.set(Way::Delay(Duration::from_millis(20)));
        for _ in 0..ROUNDS {
            let limiter = limiter(&format!("{scheme}://127.0.0.1:{}", proxy.port()), LATE);
            let passing = with_threads();
            let _connects = asked_on!(passing, limiter.check("api", "alice"));
            let waits = limiter.clone();
            let waits = lasting.spawn(async move { is_decided(&waits, "bob").await });
            thread::sleep(Duration::from_millis(1));
            drop(passing);
            lasting.block_on(waits).unwrap();
            assert_eq!(limiter.breaker_state(), BreakerState::Closed);
        }
    }
}

/// Whatever was in flight there, and however many they are: no other question is lost with it.
#[test]
fn a_runtime_that_ends_costs_others_nothing() {
    let lasting = runtime();
    for make in [runtime, with_threads] {
        let server = Server::start();
        let limiter = limiter(&server.url(), LATE);
        let passing = make();
        passing.block_on(is_decided(&limiter, "alice"));
        server.signal("STOP");
        let ask_all = || {
            let subjects = (0..GO_ALONE + 10).map(|number| format!("bob-{number}"));
            join_all(subjects.map(|subject| limiter.check("api", subject)))
        };
        let _in_flight_there = asked_on!(passing, ask_all());
        let asked = asked_on!(lasting, ask_all());
        let _more_there = asked_on!(passing, ask_all());
        drop(passing);
        server.signal("CONT");
        for decision in lasting.block_on(asked) {
            assert_eq!(decision.unwrap().store_failure(), None);
        }
        assert_eq!(limiter.breaker_state(), BreakerState::Closed);
        lasting.block_on(is_decided(&limiter, "bob"));
    }
}

/// Whatever starts on it ends at once.
#[test]
fn a_runtime_shut_down_during_a_question_ends() {
    let (server, cluster) = (Server::start(), Cluster::start());
    for url in [server.url(), cluster.url()] {
        for has_asked in [false, true] {
            for runtime in [with_threads(), runtime()] {
                let limiter = limiter(&url, SECOND);
                if has_asked {
                    runtime.block_on(is_decided(&limiter, "alice"));
                }
                ends_while_asked(runtime, limiter);
            }
        }
    }
}

fn ends_while_asked(runtime: Runtime, limiter: Limiter) {
    let here = runtime.handle().clone();
    runtime.spawn(pending::<()>());
    let (asks, does_ask) = mpsc::channel();
    runtime.spawn_blocking(move || {
        asks.send(()).unwrap();
        while here.metrics().num_alive_tasks() > 0 {
            thread::yield_now();
        }
        let ask = || here.block_on(limiter.check("api", "alice")).unwrap();
        while ask().store_failure().is_none() {}
        let _ = ask();
        asks.send(()).unwrap();
    });
    does_ask.recv_timeout(LATE).unwrap();
    let (ended, has_ended) = mpsc::channel();
    thread::spawn(move || {
        drop(runtime);
        ended.send(()).unwrap();
    });
    does_ask.recv_timeout(LATE).expect("it has an answer");
    has_ended.recv_timeout(LATE).unwrap();
}
