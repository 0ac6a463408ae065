//! A server that is demoted under a connection, with a successor already there.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::poll;
use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{
    DAY, FailureMode, Limit, Limiter, Outcome, Policy, RedisStore, SECOND, SystemClock,
};

use support::asking::{GO_ALONE, check_of, pending_answer_of};
use support::proxy::Proxy;
use support::redis::{Server, free_port};

const LIMIT: u64 = 100;
/// No permit comes back within a test.
const DEBT: Limit = Limit::gcra(LIMIT, DAY.saturating_mul(LIMIT as u32));
/// A younger connection is not replaced at once.
const AGE: Duration = Duration::from_millis(600);

/// From now on the server refuses, and new connections lead to its successor.
fn demote(demoted: &Server, proxy: &Proxy, successor: &Server) {
    demoted.query::<()>(("REPLICAOF", "127.0.0.1", free_port()));
    proxy.lead_to(successor.port());
}

/// Eight questions go alone, however long the way is to a busy machine.
async fn near(proxy: &Proxy) -> RedisStore {
    let builder = RedisStore::builder(&proxy.url()).clock_for_tests(SystemClock);
    builder.connect().await.unwrap()
}

/// `keys`: of each subject.
async fn is_asked_once_more(name: &'static str, limit: Limit, keys: usize, refusal: &str) {
    let (demoted, successor) = (Server::start(), Server::start());
    let serve_stale_data = |value: &str| {
        demoted.query::<()>(("CONFIG", "SET", "replica-serve-stale-data", value));
    };
    if refusal == "MASTERDOWN" {
        serve_stale_data("no");
    }
    let proxy = Proxy::to(demoted.port());
    let store = near(&proxy).await;
    let policy = Policy::new(name, limit).on_store_failure(FailureMode::Deny);
    let limiter = Limiter::builder(store, [policy]);
    let limiter = limiter.timeout(60 * SECOND).build().unwrap();
    let warm = limiter.check(name, "warm").await.unwrap();
    assert_eq!(warm.outcome(), Outcome::Allowed);

    tokio::time::pause();
    tokio::time::advance(AGE).await;
    tokio::time::resume();
    demote(&demoted, &proxy, &successor);
    let script = "redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], '')";
    let refused = demoted.try_query::<()>(("EVAL", script, 1, "any"));
    let refused = refused.unwrap_err();
    // Before Redis 7.0 it is no code, but a part of the script's error text.
    let said = format!("{:?} {refused}", refused.code());
    assert!(said.contains(refusal), "{said}");
    // Some alone, and the others together.
    let subjects = 0..20_u64;
    let asked = subjects.clone().map(|subject| limiter.check(name, subject));
    for decision in join_all(asked).await {
        let decision = decision.unwrap();
        assert_eq!(decision.outcome(), Outcome::Allowed, "{name}");
        assert_eq!(decision.remaining(), LIMIT - 1, "{name}");
    }
    assert_eq!(successor.keys().len(), keys * subjects.count(), "{name}");
    serve_stale_data("yes");
    assert_eq!(demoted.keys().len(), keys, "{name}");
}

/// If it was refused, nothing ran, so it is asked again within the same decision.
#[tokio::test]
async fn a_question_a_demoted_server_refuses_goes_to_its_successor() {
    for (name, limit, keys) in [
        ("plain", DEBT, 1),
        ("any", Limit::fixed_window(LIMIT, DAY), 1),
        ("several", DEBT.and(1_000, 300 * DAY), 2),
    ] {
        for refusal in ["READONLY", "MASTERDOWN"] {
            is_asked_once_more(name, limit, keys, refusal).await;
        }
    }
}

/// Asks under these policies about many subjects at once, each with this many keys. Some of them go
/// alone and are answered before the server is demoted; the others share batches after that.
async fn are_asked_once_more_together(policies: &[PolicyId], keys: usize) {
    const SUBJECTS: u64 = 40;
    let (demoted, successor) = (Server::start(), Server::start());
    let proxy = Proxy::to(demoted.port());
    let store = near(&proxy).await;
    let ask = |subject: u64| {
        let checks = policies
            .iter()
            .map(|policy| check_of(policy, subject, &DEBT, Action::consume(1)));
        pending_answer_of(&store, &checks.collect::<Vec<_>>())
    };
    assert!(ask(SUBJECTS).await.unwrap().all_allow());

    // However long that takes on a busy machine, nobody has waited yet.
    tokio::time::pause();
    tokio::time::advance(AGE).await;
    let mut asked = join_all((0..SUBJECTS).map(ask));
    assert!(poll!(&mut asked).is_pending());
    let started = Instant::now();
    // One was asked about before.
    let answered = (1 + GO_ALONE) * keys;
    while demoted.keys().len() < answered {
        assert!(started.elapsed() < 30 * SECOND);
        tokio::task::yield_now().await;
    }
    demote(&demoted, &proxy, &successor);
    tokio::time::resume();
    for answer in asked.await {
        assert!(answer.unwrap().all_allow(), "{policies:?}");
    }
    assert_eq!(demoted.keys().len(), answered, "{policies:?}");
    let others = SUBJECTS as usize - GO_ALONE;
    assert_eq!(successor.keys().len(), others * keys, "{policies:?}");
}

/// It refuses each of those who share a trip separately, in one answer.
#[tokio::test]
async fn a_batch_a_demoted_server_refuses_goes_to_its_successor() {
    let alone = [PolicyId::new("a")];
    are_asked_once_more_together(&alone, 1).await;
    let several = ["a", "b"].map(PolicyId::new);
    are_asked_once_more_together(&several, 2).await;
    let group = several.map(|policy| policy.in_group("g"));
    are_asked_once_more_together(&group, 1).await;
}
