//! A connection that was idle for a while may be gone without anybody having noticed.

use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::poll;
use tower_throttle::{
    BreakerState, DAY, FailureMode, Limit, Limiter, Policy, RedisStore, SECOND, StoreErrorKind,
};

use crate::outage::{GENEROUS, back, until};
use support::cluster::Cluster;
use support::proxy::{Proxy, Way};
use support::redis::Server;

/// Far longer than a new connection takes on a busy machine. Waiting for it in vain happens in
/// virtual time.
const DEADLINE: Duration = Duration::from_secs(20);

/// For a pool as its users make one.
fn from_pool(url: &str) -> RedisStore {
    let pool =
        deadpool_redis::Config::from_url(url).create_pool(Some(deadpool_redis::Runtime::Tokio1));
    RedisStore::from_pool(pool.unwrap())
}

fn limiter(store: RedisStore, timeout: Duration) -> Limiter {
    // No permit comes back within a minute, however long the reconnects take.
    let policy = Policy::new("api", Limit::gcra(1_000, DAY)).on_store_failure(FailureMode::Deny);
    let limiter = Limiter::builder(store, [policy]);
    limiter.timeout(timeout).build().unwrap()
}

/// Why a decision was not the store's.
async fn failure(limiter: &Limiter) -> Option<StoreErrorKind> {
    let decision = limiter.check("api", "alice").await.unwrap();
    decision.store_failure()
}

/// A server, a proxy to it, and a limiter whose connection has been used.
async fn connected(timeout: Duration) -> (Server, Proxy, Limiter) {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let limiter = limiter(store, timeout);
    assert_eq!(failure(&limiter).await, None);
    (server, proxy, limiter)
}

/// Lets this much time pass, at once.
async fn goes_by(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// However far the server is: neither before the question nor behind it is there a trip that it has
/// to wait for.
#[tokio::test]
async fn a_question_after_a_pause_takes_one_trip() {
    const TRIP: Duration = Duration::from_millis(700);
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    // So that the scripts are known.
    let near = limiter(RedisStore::connect(&proxy.url()).await.unwrap(), DEADLINE);
    assert_eq!(failure(&near).await, None);
    proxy.set(Way::Delay(TRIP));
    for store in [
        RedisStore::builder(&proxy.url()).connect_lazy().unwrap(),
        from_pool(&proxy.url()),
    ] {
        let patient = limiter(store.clone(), DEADLINE);
        until("it answers", async || failure(&patient).await.is_none()).await;
        let limiter = limiter(store, TRIP * 2 - TRIP / 10);
        for _ in 0..2 {
            goes_by(2 * SECOND).await;
            let meanwhile = async {
                tokio::time::sleep(TRIP / 2).await;
                failure(&limiter).await
            };
            let (first, second) = tokio::join!(failure(&limiter), meanwhile);
            assert_eq!((first, second), (None, None));
        }
    }
}

/// Nothing that was sent before it has been answered.
#[tokio::test]
async fn a_question_after_a_pause_waits_for_no_answer() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let connected = RedisStore::connect(&proxy.url()).await.unwrap();
    for store in [connected, from_pool(&proxy.url())] {
        let limiter = limiter(store, DEADLINE);
        assert_eq!(failure(&limiter).await, None);
        goes_by(2 * SECOND).await;
        proxy.set(Way::DropReplies);
        let asked = || server.calls("evalsha");
        let before = asked();
        let question = tokio::spawn(async move { failure(&limiter).await });
        until("it is asked", async || asked() > before).await;
        question.abort();
        proxy.set(Way::Pass);
    }
}

/// Polls a question until this many commands have gone to the server. There is no answer yet.
async fn until_sent(question: &mut (impl Future + Unpin), proxy: &Proxy, commands: u64) {
    let started = Instant::now();
    while proxy.commands() < commands {
        assert!(started.elapsed() < GENEROUS);
        assert!(poll!(&mut *question).is_pending());
        // A sleep would advance a paused clock.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_no_decision() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let connected = RedisStore::connect(&proxy.url()).await.unwrap();
    for store in [connected, from_pool(&proxy.url())] {
        let limiter = limiter(store, DEADLINE);
        for _ in 0..5 {
            let decision = limiter.check("api", "alice").await.unwrap();
            assert_eq!(decision.store_failure(), None);
            proxy.cut();
            // This process reads nothing of it meanwhile.
            let cut = Instant::now();
            while proxy.closed() < proxy.accepted().len() {
                assert!(cut.elapsed() < GENEROUS);
                thread::sleep(Duration::from_millis(1));
            }
            goes_by(2 * SECOND).await;
        }
    }
    // Each was counted once.
    let last = limiter(RedisStore::connect(&proxy.url()).await.unwrap(), DEADLINE);
    assert_eq!(last.peek("api", "alice").await.unwrap().remaining(), 990);
}

/// Another node's key would only be redirected, even by a node that runs no scripts.
#[tokio::test]
async fn an_idle_node_of_a_cluster_is_probed_with_a_key_of_its_own() {
    let cluster = Cluster::start();
    let store = cluster.patient().connect().await.unwrap();
    let limiter = limiter(store, DEADLINE);
    let asks = async || {
        for subject in 0..32 {
            let decision = limiter.check("api", format!("{subject}")).await.unwrap();
            assert_eq!(decision.store_failure(), None);
        }
    };
    asks().await;
    let probes = || cluster.masters.iter().map(|master| master.calls("eval"));
    let before: Vec<_> = probes().collect();
    goes_by(2 * SECOND).await;
    asks().await;
    until("all are probed", async || {
        probes().zip(&before).all(|(now, before)| now > *before)
    })
    .await;
    for master in &cluster.masters {
        assert_eq!(master.rejected_calls("eval"), 0);
    }
}

/// Nothing shows that it is gone: the first caller waits for its deadline, and so do all who ask at
/// the same time.
#[tokio::test]
async fn a_silently_dropped_idle_connection_costs_one_decision() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let connected = RedisStore::connect(&proxy.url()).await.unwrap();
    for store in [connected, from_pool(&proxy.url())] {
        let impatient = limiter(store.clone(), Duration::from_millis(50));
        let limiter = limiter(store, DEADLINE);
        assert_eq!(failure(&limiter).await, None);
        for _ in 0..3 {
            proxy.forget();
            goes_by(2 * SECOND).await;
            let together = join_all((0..3).map(|_| failure(&impatient)));
            assert_eq!(together.await, [Some(StoreErrorKind::TimedOut); 3]);
            assert_eq!(failure(&limiter).await, None);
            back(&impatient, "api").await;
        }
    }
    // One for each that was dropped.
    assert_eq!(proxy.accepted().len(), 8);
}

/// So that the next question does not wait for it.
#[tokio::test]
async fn a_silently_dropped_idle_connection_is_replaced_before_use() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    let store = RedisStore::connect(&proxy.url()).await.unwrap();
    let limiter = limiter(store, Duration::from_millis(50));
    until("it answers", async || failure(&limiter).await.is_none()).await;
    let connections = proxy.accepted().len();
    proxy.forget();
    goes_by(2 * SECOND).await;
    assert_eq!(failure(&limiter).await, Some(StoreErrorKind::TimedOut));
    until("it is replaced", async || {
        proxy.accepted().len() > connections
    })
    .await;
}

/// Callers with time left when it is found to be gone do not wait for it.
#[tokio::test]
async fn a_silently_dropped_idle_connection_fails_no_later_caller() {
    let (_server, proxy, limiter) = connected(2 * SECOND).await;
    proxy.forget();
    goes_by(2 * SECOND).await;
    let late = async {
        tokio::time::sleep(SECOND).await;
        failure(&limiter).await
    };
    let (first, late) = tokio::join!(failure(&limiter), late);
    assert_eq!((first, late), (Some(StoreErrorKind::TimedOut), None));
}

/// Its other callers are answered, although one of them goes away.
#[tokio::test]
async fn an_idle_connection_that_answers_is_kept() {
    let (server, proxy, limiter) = connected(DEADLINE).await;
    for _ in 0..5 {
        goes_by(2 * SECOND).await;
        let commands = proxy.commands();
        // About another subject: callers asking about the same one would wait for it.
        let mut gone = Box::pin(limiter.check("api", "bob"));
        // However long that takes on a busy machine, it goes away at once.
        server.signal("STOP");
        tokio::time::pause();
        until_sent(&mut gone, &proxy, commands + 1).await;
        let mut stays = Box::pin(failure(&limiter));
        until_sent(&mut stays, &proxy, commands + 2).await;
        drop(gone);
        tokio::time::resume();
        server.signal("CONT");
        assert_eq!(stays.await, None);
    }
    assert_eq!(proxy.accepted().len(), 1);
}

/// The caller may or may not get a decision, as its time is up.
#[tokio::test]
async fn a_live_idle_connection_survives_a_standstill_of_ours() {
    let (server, proxy, limiter) = connected(DEADLINE).await;
    for _ in 0..5 {
        goes_by(2 * SECOND).await;
        let commands = proxy.commands();
        let mut asked = Box::pin(failure(&limiter));
        // It answers when this process already stands still.
        server.signal("STOP");
        until_sent(&mut asked, &proxy, commands + 1).await;
        let before = proxy.reply_bytes();
        server.signal("CONT");
        let stands_still = Instant::now();
        while proxy.reply_bytes() == before {
            assert!(stands_still.elapsed() < GENEROUS);
            thread::sleep(Duration::from_millis(1));
        }
        tokio::time::pause();
        tokio::time::advance(2 * DEADLINE).await;
        let goes_on = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        // What has arrived is read before more time passes.
        tokio::join!(asked, goes_on);
        tokio::time::resume();
        assert_eq!(limiter.breaker_state(), BreakerState::Closed);
        assert_eq!(failure(&limiter).await, None);
    }
    assert_eq!(proxy.accepted().len(), 1);
}

/// A timeout of the pool's own client is no answer of the server.
#[tokio::test]
async fn a_connection_of_a_pool_that_swallows_everything_is_made_anew() {
    let server = Server::start();
    let proxy = Proxy::to(server.port());
    // Longer than the client waits by default.
    let limiter = limiter(from_pool(&proxy.url()), Duration::from_millis(800));
    assert_eq!(
        limiter.check("api", "alice").await.unwrap().store_failure(),
        None
    );
    proxy.set(Way::Blackhole);
    until("it opens", async || {
        join_all((0..5).map(|_| limiter.peek("api", "alice"))).await;
        limiter.breaker_state() == BreakerState::Open
    })
    .await;
    proxy.set(Way::Pass);
    back(&limiter, "api").await;
}
