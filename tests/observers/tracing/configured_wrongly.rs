//! A misconfigured store: the warning says what to do, once a minute.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    BreakerState, Limit, Limiter, MINUTE, Policy, RedisStore, SECOND, StoreError, StoreErrorKind,
};
use tracing::Level;

use crate::tracing::{check, one_a_minute};
use support::cluster::Cluster;
use support::http_store::{TestStore, Trip};
use support::log::{Entry, Log};
use support::redis::Server;

/// Far longer than anything takes here.
const GENEROUS: Duration = Duration::from_secs(20);

/// A wrong password has to be changed by somebody, who may have missed the first line.
#[tokio::test(start_paused = true)]
async fn a_wrongly_configured_store_is_logged_once_a_minute() {
    struct Refusing;

    impl Store for Refusing {
        fn ask(&self, _: &[Check<'_>]) -> Answer {
            let refused = StoreError::new(StoreErrorKind::Configuration);
            Answer::Pending(Box::pin(async { Err(refused) }))
        }
    }

    let (log, _listening) = Log::listen();
    let limiter = Limiter::new(Refusing, [one_a_minute("api")]).unwrap();
    // Half a minute after the third line, and long before the next.
    for _ in 0..150 {
        check(&limiter, "api", 5).await;
        tokio::time::sleep(SECOND).await;
    }
    let mut warnings = log.events();
    warnings.retain(|event| event.level == Level::WARN);
    assert_eq!(warnings.len(), 3, "{warnings:#?}");
    for warning in warnings {
        assert!(warning.name.contains("refuses this process"));
        assert_eq!(warning.field("reason"), "the store is configured wrongly");
    }
}

/// The warnings about a misconfigured store.
fn refusals(log: &Log) -> Vec<Entry> {
    let mut events = log.events();
    events.retain(|event| event.name.contains("refuses this process"));
    for event in &events {
        assert_eq!(event.level, Level::WARN);
        assert_eq!(event.field("reason"), "the store is configured wrongly");
    }
    events
}

/// The text of the only warning, which does not contain the password of these tests.
#[track_caller]
fn only_refusal(log: &Log) -> String {
    let said = format!("{:#?}", log.entries());
    assert!(!said.contains("open-sesame"), "{said}");
    match &refusals(log)[..] {
        [warning] => warning.field("error").to_owned(),
        _ => panic!("not one: {said}"),
    }
}

/// Asks for permits of a limit that nobody reaches here.
async fn ask(store: RedisStore, subjects: u64) -> Limiter {
    let policy = Policy::new("api", Limit::gcra(1_000, MINUTE));
    let limiter = Limiter::builder(store, [policy]).timeout(SECOND);
    let limiter = limiter.build().unwrap();
    for subject in 0..subjects {
        let _ = limiter.check("api", subject).await.unwrap();
    }
    limiter
}

/// That node has about a third of the keys, so the breaker opens and closes.
#[tokio::test]
async fn a_store_over_one_cluster_node_logs_the_remedy_once() {
    let cluster = Cluster::start();
    let url = cluster.masters[0].url();
    let pool = deadpool_redis::Config::from_url(&url);
    let pool = pool.create_pool(Some(deadpool_redis::Runtime::Tokio1));
    let lazy = RedisStore::builder(&url).connect_lazy();
    for store in [RedisStore::from_pool(pool.unwrap()), lazy.unwrap()] {
        let (log, _listening) = Log::listen();
        ask(store, 200).await;
        let told = only_refusal(&log);
        assert!(told.contains("use redis-cluster://"), "{told}");
        assert_eq!(told.matches("Moved").count(), 1, "{told}");
    }
}

#[tokio::test]
async fn a_wrong_url_is_reported_also_by_a_lazy_connection() {
    let server = Server::start_with(&["--requirepass", "right"]);
    for (login, database, advice) in [
        ("", "", "the server wants a password"),
        (":open-sesame@", "", "refuses the user or the password"),
        (":right@", "/99", "has no database of this number"),
    ] {
        let url = format!("redis://{login}127.0.0.1:{}{database}", server.port());
        let (log, _listening) = Log::listen();
        ask(RedisStore::builder(&url).connect_lazy().unwrap(), 20).await;
        let told = only_refusal(&log);
        assert!(told.contains(advice), "{told}");
    }
}

/// It answers with the login that it was sent.
#[tokio::test]
async fn a_server_without_authentication_logs_no_password() {
    let server = Server::start_with(&["--rename-command", "HELLO", ""]);
    let place = format!("127.0.0.1:{}", server.port());
    let pool = format!("redis://:open-sesame@{place}/?protocol=resp3");
    let pool = deadpool_redis::Config::from_url(pool);
    let pool = pool.create_pool(Some(deadpool_redis::Runtime::Tokio1));
    let (log, _listening) = Log::listen();
    ask(RedisStore::from_pool(pool.unwrap()), 20).await;
    let told = only_refusal(&log);
    assert!(told.contains("HELLO"), "{told}");
}

#[tokio::test]
async fn a_configuration_that_becomes_wrong_is_reported() {
    for (change, advice) in [
        ("-evalsha", "the server's user lacks a permission"),
        (">another", "refuses the user or the password"),
    ] {
        let server = Server::start();
        let user = |rules: &[&str]| {
            server.query::<()>(("ACL", "SETUSER", "limiter", rules));
        };
        user(&["on", ">open-sesame", "~*", "+@all"]);
        let url = format!("redis://limiter:open-sesame@127.0.0.1:{}", server.port());
        let (log, _listening) = Log::listen();
        let limiter = ask(RedisStore::connect(&url).await.unwrap(), 20).await;
        assert_eq!(log.events(), []);
        user(&["<open-sesame", ">open-sesame", change]);
        if change.starts_with('>') {
            user(&["<open-sesame"]);
            server.query::<()>(("CLIENT", "KILL", "USER", "limiter"));
        }
        let ask_again = async || {
            check(&limiter, "api", 1).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        let until_told = async {
            while refusals(&log).is_empty() {
                ask_again().await;
            }
        };
        let is_told = tokio::time::timeout(GENEROUS, until_told).await;
        assert!(is_told.is_ok(), "{change}: {:#?}", log.entries());
        // It is not logged a second time.
        for _ in 0..50 {
            ask_again().await;
        }
        let told = only_refusal(&log);
        assert!(told.contains(advice), "{told}");
    }
}

/// Refuses one question in three, so that there are never too many failures.
struct Particular {
    questions: AtomicUsize,
    is_quick: bool,
}

impl Store for Particular {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let question = self.questions.fetch_add(1, Ordering::SeqCst);
        if !question.is_multiple_of(3) {
            return TestStore::new(Trip::Short).ask(checks);
        }
        let refused = StoreError::with_source(StoreErrorKind::Configuration, "read the manual");
        match self.is_quick {
            true => Answer::Ready(Err(refused)),
            false => Answer::Pending(Box::pin(async { Err(refused) })),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failures_to_mend_are_logged_while_the_breaker_is_closed() {
    for is_quick in [false, true] {
        let (log, _listening) = Log::listen();
        let store = Particular {
            questions: AtomicUsize::default(),
            is_quick,
        };
        let limiter = Limiter::new(store, [one_a_minute("api")]).unwrap();
        for _ in 0..150 {
            check(&limiter, "api", 30).await;
            assert_eq!(limiter.breaker_state(), BreakerState::Closed);
            tokio::time::sleep(SECOND).await;
        }
        let warnings = refusals(&log);
        assert_eq!(warnings.len(), 3, "{warnings:#?}");
        for warning in warnings {
            assert_eq!(warning.field("error"), "read the manual");
        }
    }
}
