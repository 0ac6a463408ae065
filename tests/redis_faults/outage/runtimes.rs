//! One store that is asked from several runtimes: those that end, stand still, block a worker or have
//! a clock of their own harm nobody but their own callers.

use std::sync::{Arc, Barrier, LazyLock, mpsc};
use std::thread;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use tokio::runtime::{Builder, Runtime};
use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{BreakerState, DAY, FailureMode, Limit, Limiter, Policy, RedisStoreBuilder};

use support::asking::{check_of, pending_answer_of};
use support::redis::Server;
use support::until::until;

/// As long as a forgotten caller waits.
const LATE: Duration = Duration::from_secs(10);
const SUBJECTS: u64 = 30;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn with_threads() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Its clock jumps to the next timer whenever nothing else happens there.
fn with_paused_time() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap()
}

fn limiter(store: RedisStoreBuilder) -> Limiter {
    let policies = [
        Policy::new("api", Limit::gcra(1_000_000, DAY)),
        Policy::new("window", Limit::fixed_window(1_000_000, DAY)),
        Policy::new("places", Limit::concurrency(1)),
    ];
    let policies = policies.map(|policy| policy.on_store_failure(FailureMode::Deny));
    let builder = Limiter::builder(store.connect_lazy().unwrap(), policies);
    builder.timeout(LATE).build().unwrap()
}

/// Asks about many subjects at once, under limits of several kinds.
async fn all_are_decided(limiter: &Limiter) {
    let ask = |policy| (0..SUBJECTS).map(move |subject| limiter.check(policy, subject));
    for decision in join_all(ask("api").chain(ask("window"))).await {
        assert_eq!(decision.unwrap().store_failure(), None);
    }
    assert_eq!(limiter.breaker_state(), BreakerState::Closed);
}

#[test]
fn two_runtimes_are_answered_in_turns() {
    let server = Server::start();
    for (first, second) in [
        (runtime(), runtime()),
        (with_threads(), runtime()),
        (runtime(), with_threads()),
    ] {
        let limiter = limiter(server.builder());
        for _ in 0..10 {
            first.block_on(all_are_decided(&limiter));
            second.block_on(all_are_decided(&limiter));
        }
    }
}

#[test]
fn many_runtimes_are_answered_at_once() {
    const THREADS: usize = 4;
    let server = Server::start();
    for make in [runtime, with_threads] {
        let limiter = limiter(server.builder());
        let begin = Barrier::new(THREADS);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let runtime = make();
                    begin.wait();
                    for _ in 0..10 {
                        runtime.block_on(all_are_decided(&limiter));
                    }
                });
            }
        });
    }
}

/// As the tests of an application do that share one limiter.
#[test]
fn a_global_limiter_serves_many_short_runtimes() {
    static SERVER: LazyLock<Server> = LazyLock::new(Server::start);
    static LIMITER: LazyLock<Limiter> = LazyLock::new(|| limiter(SERVER.builder()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for make in [runtime, with_threads, runtime] {
                    for _ in 0..10 {
                        make().block_on(all_are_decided(&LIMITER));
                    }
                }
            });
        }
    });
}

#[test]
fn a_runtime_that_stands_still_holds_up_no_other() {
    let server = Server::start();
    for make in [runtime, with_threads] {
        let limiter = limiter(server.builder());
        let (idle, busy) = (runtime(), make());
        let mut in_flight = Box::pin(all_are_decided(&limiter));
        assert!(idle.block_on(async { poll!(&mut in_flight) }).is_pending());
        busy.block_on(all_are_decided(&limiter));
        // It is nobody's loss when it goes on.
        idle.block_on(in_flight);
    }
}

#[test]
fn a_worker_that_blocks_holds_up_no_other_runtime() {
    let server = Server::start();
    let limiter = Arc::new(limiter(server.builder()));
    let (unblock, is_unblocked) = mpsc::channel::<()>();
    let (blocked, is_blocked) = mpsc::channel();
    let asks = Arc::clone(&limiter);
    let blocks = thread::spawn(move || {
        runtime().block_on(async {
            all_are_decided(&asks).await;
            let mut in_flight = Box::pin(all_are_decided(&asks));
            assert!(poll!(&mut in_flight).is_pending());
            blocked.send(()).unwrap();
            is_unblocked.recv().unwrap();
            in_flight.await;
        });
    });
    is_blocked.recv().unwrap();
    runtime().block_on(all_are_decided(&limiter));
    unblock.send(()).unwrap();
    blocks.join().unwrap();
}

/// Nothing but the answer happens on it.
#[test]
fn a_caller_whose_time_is_paused_waits_for_the_answer() {
    let server = Server::start();
    let moved = limiter(server.builder());
    runtime().block_on(all_are_decided(&moved));
    for limiter in [moved, limiter(server.builder().own_thread(true))] {
        for _ in 0..10 {
            with_paused_time().block_on(all_are_decided(&limiter));
        }
        runtime().block_on(all_are_decided(&limiter));
    }
}

#[test]
fn a_place_is_free_for_the_next_question_on_any_runtime() {
    let server = Server::start();
    let limiter = limiter(server.builder());
    let (first, second) = (runtime(), with_threads());
    for runtime in [&first, &second] {
        runtime.block_on(all_are_decided(&limiter));
    }
    for round in 0..100 {
        for runtime in [&first, &second] {
            runtime.block_on(async {
                let held = limiter.admit("places", "alice").await;
                assert!(held.is_ok(), "{round}");
            });
        }
    }
}

/// Its callers go, and what they have taken is given back all the same.
#[test]
fn a_place_is_given_back_without_the_runtime_that_asked_for_it() {
    let server = Server::start();
    let limiter = limiter(server.builder());
    let (first, second) = (runtime(), runtime());
    first.block_on(all_are_decided(&limiter));
    let held = second.block_on(limiter.admit("places", "alice"));
    assert!(held.is_ok());
    let mut asked = Box::pin(limiter.admit("places", "bob"));
    assert!(second.block_on(async { poll!(&mut asked) }).is_pending());
    drop(second);
    // Outside of any runtime.
    drop((held, asked));
    first.block_on(async {
        for user in ["alice", "bob"] {
            until("it is given back", async || {
                let left = limiter.peek("places", user).await.unwrap();
                left.remaining() == 1
            })
            .await;
        }
    });
}

#[test]
fn a_dropped_store_leaves_nothing_of_its_thread() {
    let server = Server::start();
    let clients = || {
        let list: String = server.query(("CLIENT", "LIST", "TYPE", "NORMAL"));
        list.lines().count()
    };
    // That of the question itself.
    let before = clients();
    let (first, second) = (runtime(), runtime());
    let limiter = limiter(server.builder());
    first.block_on(all_are_decided(&limiter));
    second.block_on(all_are_decided(&limiter));
    // That of the first runtime ends when it is driven again.
    first.block_on(until("one connection is left", async || {
        clients() == before + 1
    }));
    drop(limiter);
    first.block_on(until("none is left", async || clients() == before));
}

/// The first one has to be driven for that.
#[test]
fn a_store_without_a_thread_asks_on_the_first_runtime() {
    let server = Server::start();
    let limiter = limiter(server.builder().own_thread(false));
    let (first, second) = (with_threads(), runtime());
    for _ in 0..3 {
        first.block_on(all_are_decided(&limiter));
        second.block_on(all_are_decided(&limiter));
    }
    drop(first);
    second.block_on(all_are_decided(&limiter));
}

#[test]
fn a_store_is_asked_by_whoever_polls_the_answer() {
    let server = Server::start();
    let store = server.builder().connect_lazy().unwrap();
    let policy = PolicyId::new("api");
    let check = check_of(&policy, 1, &Limit::gcra(10, DAY), Action::acquire(1));
    // Outside of any runtime.
    let answer = pending_answer_of(&store, &[check]);
    assert!(runtime().block_on(answer).unwrap().all_allow());
}
