//! The circuit breaker in front of a server that hangs, is killed, or comes back. How long its pauses
//! are is tested on virtual time, beside the breaker.

use std::time::{Duration, Instant};

use tokio::net::TcpListener;
use tower_throttle::{
    BreakerState, FailureMode, Limit, Limiter, MINUTE, Policy, RedisStore, SECOND, StoreErrorKind,
};

use super::notes::Notes;
use super::{back, open, until};
use support::redis::Server;
use support::rights::{set_right, user_with};

const TIMEOUT: Duration = Duration::from_millis(50);

fn limiter(store: RedisStore, notes: &Notes) -> Limiter {
    let policy = Policy::new("api", Limit::gcra(5, MINUTE)).on_store_failure(FailureMode::Deny);
    let builder = Limiter::builder(store, [policy]).timeout(TIMEOUT);
    builder.observe(notes.clone()).build().unwrap()
}

async fn failure(limiter: &Limiter) -> Option<StoreErrorKind> {
    let decision = limiter.check("api", "alice").await.unwrap();
    decision.store_failure()
}

#[tokio::test]
async fn a_hanging_server_costs_five_deadlines_then_none() {
    let server = Server::start();
    let notes = Notes::default();
    let limiter = limiter(server.store().await, &notes);
    back(&limiter, "api").await;
    assert!(notes.answers().iter().any(|(_, failure)| failure.is_none()));
    server.signal("STOP");
    for _ in 0..5 {
        assert_eq!(limiter.breaker_state(), BreakerState::Closed);
        assert_eq!(failure(&limiter).await, Some(StoreErrorKind::TimedOut));
    }
    assert_eq!(notes.states(), [BreakerState::Open]);
    let late = notes.answers();
    assert!(late.iter().rev().take(5).all(|(elapsed, failure)| {
        *elapsed >= TIMEOUT && *failure == Some(StoreErrorKind::TimedOut)
    }));

    // All at once: less than one deadline for ten thousand decisions, apart from slow machines. If
    // each waited for its deadline, this would take eight minutes.
    let started = Instant::now();
    let mut refused_at_once = 0;
    for _ in 0..10_000 {
        let is_refused = failure(&limiter).await == Some(StoreErrorKind::BreakerOpen);
        refused_at_once += u64::from(is_refused);
    }
    assert!(started.elapsed() < 10 * SECOND, "{:?}", started.elapsed());
    assert!(refused_at_once >= 9_900, "{refused_at_once}");
    server.signal("CONT");
    back(&limiter, "api").await;
    assert_eq!(limiter.breaker_state(), BreakerState::Closed);
}

#[tokio::test]
async fn a_server_that_returns_has_seen_only_probes_and_is_found() {
    let server = Server::start();
    let notes = Notes::default();
    let limiter = limiter(server.store().await, &notes);
    back(&limiter, "api").await;
    server.signal("STOP");
    open(&limiter, "api").await;
    let outage = Instant::now();
    while outage.elapsed() < Duration::from_millis(700) {
        failure(&limiter).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let sent = notes.answers().len();
    let asked_at_most = notes.states().len() + 5 + 1;
    let failed = notes
        .answers()
        .into_iter()
        .filter(|(_, failure)| failure.is_some());
    assert!(failed.count() <= asked_at_most, "{:?}", notes.states());
    server.signal("CONT");
    back(&limiter, "api").await;
    let seen = server.calls("evalsha") + server.calls("eval");
    // The script is sent again, and the last questions are those that found the server.
    assert!(seen <= sent as u64 + 10, "{seen} of {sent}");

    let states = notes.states();
    assert_eq!(states.first(), Some(&BreakerState::Open));
    assert_eq!(states.last(), Some(&BreakerState::Closed));
    let is_repeated = states.windows(2).any(|two| two[0] == two[1]);
    assert!(!is_repeated, "{states:?}");
}

#[tokio::test]
async fn a_killed_server_is_found_again_when_it_is_restarted() {
    let mut server = Server::start();
    let limiter = limiter(server.store().await, &Notes::default());
    back(&limiter, "api").await;
    server.kill();
    open(&limiter, "api").await;
    server.restart();
    back(&limiter, "api").await;
    assert_eq!(limiter.breaker_state(), BreakerState::Closed);
}

/// A listener that accepts every connection and closes it takes the server's place.
#[tokio::test]
async fn connections_are_attempted_twice_a_second_at_most() {
    let mut server = Server::start();
    let limiter = limiter(server.store().await, &Notes::default());
    back(&limiter, "api").await;
    server.kill();
    let impostor = TcpListener::bind(("127.0.0.1", server.port()))
        .await
        .unwrap();
    let asking = tokio::spawn(async move {
        loop {
            failure(&limiter).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    let (started, mut attempts) = (Instant::now(), 0);
    while started.elapsed() < 3 * SECOND {
        let accepted = tokio::time::timeout(SECOND / 10, impostor.accept()).await;
        attempts += u128::from(accepted.is_ok());
    }
    asking.abort();
    let most = 1 + started.elapsed().as_millis() / 500;
    assert!((1..=most).contains(&attempts), "{attempts} attempts");
}

#[tokio::test]
async fn clients_that_go_away_lose_no_probe() {
    let server = Server::start();
    let limiter = limiter(server.store().await, &Notes::default());
    back(&limiter, "api").await;
    server.signal("STOP");
    open(&limiter, "api").await;
    for _ in 0..2 {
        until("a probe is on its way and its client leaves", async || {
            // Sooner than the deadline.
            let impatient = tokio::time::timeout(TIMEOUT / 10, failure(&limiter));
            impatient.await.is_err()
        })
        .await;
        until("the probe ends without an answer", async || {
            limiter.breaker_state() == BreakerState::Open
        })
        .await;
    }
    server.signal("CONT");
    back(&limiter, "api").await;
}

/// Otherwise a client that sends requests and cancels them could keep the limits off.
#[tokio::test]
async fn clients_that_go_away_do_not_keep_it_open() {
    let server = Server::start();
    let limiter = limiter(server.store().await, &Notes::default());
    back(&limiter, "api").await;
    server.signal("STOP");
    open(&limiter, "api").await;
    server.signal("CONT");
    until("it closes", async || {
        let leaving = limiter.check("api", "alice").into_future();
        let mut leaving = std::pin::pin!(leaving);
        let _ = futures_util::poll!(leaving.as_mut());
        limiter.breaker_state() == BreakerState::Closed
    })
    .await;
}

/// A user who may only look cannot decide; it is noticed when the right is back.
#[tokio::test]
async fn a_revoked_permission_opens_it_and_is_probed_slowly() {
    let server = Server::start();
    let notes = Notes::default();
    let url = user_with(&server, ["~*", "+@all"]);
    let limiter = limiter(RedisStore::connect(&url).await.unwrap(), &notes);
    back(&limiter, "api").await;
    set_right(&server, "-@scripting");
    until("it opens", async || {
        failure(&limiter).await;
        limiter.breaker_state() == BreakerState::Open
    })
    .await;
    let reasons = notes
        .answers()
        .into_iter()
        .filter_map(|(_, failure)| failure);
    let configuration = |kind: &StoreErrorKind| *kind == StoreErrorKind::Configuration;
    assert!(reasons.filter(configuration).count() >= 5);
    let opened = Instant::now();
    until("it probes", async || {
        failure(&limiter).await;
        notes.states().len() > 1
    })
    .await;
    assert!(opened.elapsed() > 3 * SECOND, "{:?}", opened.elapsed());
    set_right(&server, "+@scripting");
    back(&limiter, "api").await;
}

/// Foreign keys, a full memory: the server answers, so it is not left alone.
#[tokio::test]
async fn failures_of_single_keys_do_not_open_the_breaker() {
    let server = Server::start();
    let limiter = limiter(server.store().await, &Notes::default());
    let _ = limiter.check("api", "alice").await.unwrap();
    let key = server.keys().pop().unwrap();
    server.query::<()>(("SET", key, "not ours", "EX", 600));
    for (is_full, expected) in [
        (false, StoreErrorKind::CorruptValue),
        (true, StoreErrorKind::Full),
    ] {
        server.set_full(is_full);
        let key = if is_full { "bob" } else { "alice" };
        let mut seen = 0;
        for _ in 0..30 {
            let decision = limiter.check("api", key).await.unwrap();
            seen += u64::from(decision.store_failure() == Some(expected));
        }
        assert!(seen > 20, "{expected:?}: {seen}");
        assert_eq!(
            limiter.breaker_state(),
            BreakerState::Closed,
            "{expected:?}"
        );
    }
}
