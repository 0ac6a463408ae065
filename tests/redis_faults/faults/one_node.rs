//! A cluster with one failing node: subjects on the other nodes are not affected.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::{Request, Response};
use tokio::runtime::Builder;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{Acquire, Action, LeaseId};
use tower_throttle::store::{Check, PolicyId, Store};
use tower_throttle::{
    BreakerState, DAY, FailureMode, HOUR, Key, Limit, Limiter, Policy, RateLimitLayer, RedisStore,
    RequestHead, SECOND, StoreErrorKind,
};

use crate::faults::stage::PLENTY;
use support::asking::{check_of, pending_answer_of};
use support::cluster::Cluster;
use support::proxy::Way;
use support::redis::Server;
use support::until::{GENEROUS, until};

/// Far longer than a working node takes.
const DEADLINE: Duration = Duration::from_millis(500);
/// The position of the node that fails.
const FAILING: usize = 1;

/// Subjects that all ask at once, some of which are counted by the failing node.
struct Crowd {
    cluster: Cluster,
    limiter: Limiter,
    there: Vec<String>,
    elsewhere: Vec<String>,
}

impl Crowd {
    async fn gather() -> Self {
        Self::gather_at("127.0.0.1").await
    }

    /// Over nodes whose host has this name in the URL.
    async fn gather_at(host: &str) -> Self {
        let cluster = Cluster::without_full_coverage();
        let url = cluster.url().replace("127.0.0.1", host);
        let limiter = limiter_over(&url).await;
        let (mut there, mut elsewhere) = (Vec::new(), Vec::new());
        for subject in (0..30).map(|number| format!("subject {number}")) {
            let keys = || cluster.masters[FAILING].keys().len();
            let before = keys();
            let decision = limiter.check("api", &subject).await.unwrap();
            assert_eq!(decision.store_failure(), None);
            let list = if keys() > before {
                &mut there
            } else {
                &mut elsewhere
            };
            list.push(subject);
        }
        // More than open the circuit breaker of a store that fails as a whole.
        assert!(there.len() > 5, "{there:?}");
        Self {
            cluster,
            limiter,
            there,
            elsewhere,
        }
    }

    /// Asks for all at once. Returns why the store did not decide for those on the failing node;
    /// for the others it did.
    async fn ask(&self) -> Vec<Option<StoreErrorKind>> {
        let ask = async |subject: &String| {
            let decision = self.limiter.check("api", subject).await.unwrap();
            decision.store_failure()
        };
        // Those about the same key share trips.
        let there = join_all(self.there.iter().chain(&self.there).map(ask));
        let elsewhere = join_all(self.elsewhere.iter().map(ask));
        let (there, elsewhere) = tokio::join!(there, elsewhere);
        assert!(elsewhere.iter().all(Option::is_none), "{elsewhere:?}");
        assert_eq!(self.limiter.breaker_state(), BreakerState::Closed);
        there
    }

    async fn ask_until(&self, is_so: impl Fn(&[Option<StoreErrorKind>]) -> bool) {
        let started = Instant::now();
        loop {
            let there = self.ask().await;
            if is_so(&there) {
                return;
            }
            assert!(started.elapsed() < GENEROUS, "{there:?}");
        }
    }
}

pub(crate) async fn limiter_over(url: &str) -> Limiter {
    let store = RedisStore::connect(url).await.unwrap();
    let policy = Policy::new("api", Limit::fixed_window(PLENTY, DAY));
    let builder = Limiter::builder(store, [policy.on_store_failure(FailureMode::Deny)]);
    builder.timeout(DEADLINE).build().unwrap()
}

/// Nobody waits for it.
fn is_left_alone(there: &[Option<StoreErrorKind>]) -> bool {
    let mut reasons = there.iter();
    reasons.all(|why| *why == Some(StoreErrorKind::Unreachable))
}

/// The URL may use other names for the nodes than they use themselves.
#[tokio::test]
async fn a_node_that_is_gone_causes_no_connections_to_the_others() {
    let mut crowd = Crowd::gather_at("localhost").await;
    crowd.cluster.masters[FAILING].kill();
    let received = |node: &Server| {
        let stats = node.info("stats");
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let others = [0, 2].map(|node| &crowd.cluster.masters[node]);
    crowd
        .ask_until(|there| there.iter().all(Option::is_some))
        .await;
    let before = others.map(received);
    // Each question about a key of that node requests the slot map again.
    let gone = Instant::now();
    while gone.elapsed() < 3 * SECOND {
        crowd.ask().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let new = [0, 1].map(|node| received(others[node]) - before[node]);
    assert!(
        new.iter().all(|new| *new <= 2),
        "more than those that look at it: {new:?}"
    );
}

#[tokio::test]
async fn that_hangs() {
    let crowd = Crowd::gather().await;
    crowd.cluster.masters[FAILING].signal("STOP");
    let late = crowd.ask().await;
    assert_eq!(late[0], Some(StoreErrorKind::TimedOut));
    // Before long nobody waits for it.
    crowd.ask_until(is_left_alone).await;
    // Longer than two attempts to connect take.
    let left_alone = Instant::now();
    while left_alone.elapsed() < 5 * SECOND {
        let there = crowd.ask().await;
        assert!(is_left_alone(&there), "{there:?}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    crowd.cluster.masters[FAILING].signal("CONT");
    crowd
        .ask_until(|there| there.iter().all(Option::is_none))
        .await;
}

/// The runtime that noticed it is no longer driven.
#[test]
fn a_node_that_hung_is_asked_again_on_other_runtimes() {
    let mut busy = Builder::new_multi_thread();
    let busy = busy.worker_threads(1).enable_all().build().unwrap();
    let idle = Builder::new_current_thread().enable_all().build().unwrap();
    let crowd = busy.block_on(Crowd::gather());
    let node = &crowd.cluster.masters[FAILING];
    node.signal("STOP");
    idle.block_on(crowd.ask_until(is_left_alone));
    node.signal("CONT");
    busy.block_on(crowd.ask_until(|there| there.iter().all(Option::is_none)));
}

#[tokio::test]
async fn that_is_killed() {
    let mut crowd = Crowd::gather().await;
    crowd.cluster.masters[FAILING].kill();
    for _ in 0..100 {
        let there = crowd.ask().await;
        let is_gone = |why: &Option<StoreErrorKind>| {
            matches!(
                why,
                Some(StoreErrorKind::Interrupted | StoreErrorKind::Unreachable)
            )
        };
        assert!(there.iter().all(is_gone), "{there:?}");
    }
}

/// All probes are about its keys.
#[tokio::test]
async fn a_node_that_was_gone_from_the_first_question_on() {
    let mut crowd = Crowd::gather().await;
    crowd.cluster.masters[FAILING].kill();
    crowd.limiter = limiter_over(&crowd.cluster.url()).await;
    for state in [BreakerState::Open, BreakerState::Closed] {
        let started = Instant::now();
        while crowd.limiter.breaker_state() != state {
            let decision = crowd.limiter.check("api", &crowd.there[0]).await.unwrap();
            assert!(decision.store_failure().is_some());
            assert!(started.elapsed() < GENEROUS, "not {state:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    crowd.ask().await;
}

/// Nobody asks the others alone.
#[tokio::test]
async fn a_node_that_fails_behind_another_leaves_the_breaker_closed() {
    let mut crowd = Crowd::gather().await;
    let subjects = [&crowd.elsewhere, &crowd.there].map(|subjects| Key::from(&*subjects[0]));
    let policies = ["first", "second"].into_iter().zip(subjects);
    let policies = policies.map(|(name, subject)| {
        let policy = Policy::new(name, Limit::fixed_window(PLENTY, DAY));
        let subject = move |_: &RequestHead<'_>| Some(subject.clone());
        policy.by(subject).on_store_failure(FailureMode::Deny)
    });
    let store = RedisStore::connect(&crowd.cluster.url()).await.unwrap();
    let limiter = Limiter::builder(store, policies).timeout(DEADLINE);
    let limiter = limiter.build().unwrap();
    let inside =
        service_fn(async |_: Request<String>| Ok::<_, Infallible>(Response::new(String::new())));
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inside);
    crowd.cluster.masters[FAILING].kill();
    for _ in 0..20 {
        let response = service.clone().oneshot(Request::default()).await.unwrap();
        assert_eq!(response.status(), 503);
        assert_eq!(limiter.breaker_state(), BreakerState::Closed);
    }
}

#[tokio::test]
async fn a_node_that_does_not_come_back_with_the_others() {
    let cluster = Cluster::without_full_coverage();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    cluster.masters.iter().for_each(|node| node.signal("STOP"));
    let recovered = store.recovered(DEADLINE).unwrap();
    let mut recovered = tokio::spawn(recovered);
    let waited = tokio::time::timeout(2 * SECOND, &mut recovered).await;
    assert!(waited.is_err(), "nobody answers");
    let nodes = cluster.masters.iter().enumerate();
    let others = nodes.filter(|(position, _)| *position != FAILING);
    others.for_each(|(_, node)| node.signal("CONT"));
    let waited = tokio::time::timeout(GENEROUS, recovered).await;
    waited.expect("two nodes answer").unwrap();
    cluster.masters[FAILING].signal("CONT");
}

/// A lease released along with them is released again until the node answers.
#[tokio::test]
async fn a_node_whose_reply_is_lost_gives_permits_back_once() {
    let cluster = Cluster::behind_proxies();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let store = store.without_deny_cache();
    let subjects = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let [(one, unheard), (other, hung)] = cluster.apart(&store, &subjects).await;
    let check =
        |policy, subject: &str, limit: Limit, action| check_of(policy, subject, &limit, action);
    let [rate, places] = ["rate", "places"].map(PolicyId::new);
    let permits = |subject, action| check(&rate, subject, Limit::fixed_window(10, DAY), action);
    let places = |action| check(&places, one, Limit::concurrency(10).lease(HOUR), action);
    let ask = |checks: &[Check<'_>]| pending_answer_of(&store, checks);
    let left = async || {
        let looks = [permits(one, Action::look()), places(Action::look())];
        let decisions = ask(&looks).await.unwrap();
        [decisions[0].remaining(), decisions[1].remaining()]
    };
    let others = ask(&[permits(one, Action::acquire(5))]).await;
    assert!(others.unwrap().all_allow());

    cluster.masters[hung].signal("STOP");
    let place = Action::Acquire(Acquire::new(1).with_lease(LeaseId::new()));
    let take = Action::acquire(1);
    let asking = tokio::spawn(ask(&[
        permits(one, take),
        places(place),
        permits(other, take),
    ]));
    // The second time over the same connection, so that the previous answer has arrived, too.
    for _ in 0..2 {
        until("it is counted", async || left().await == [4, 9]).await;
    }
    // However long that takes on a busy machine, the connection is not idle.
    tokio::time::pause();
    let way = &cluster.proxies[unheard];
    let connections = way.accepted().len();
    way.set(Way::CutReplies);
    asking.abort();
    assert!(asking.await.unwrap_err().is_cancelled());
    for _ in 0..8 {
        tokio::task::yield_now().await;
    }
    tokio::time::resume();
    until("it connects again", async || {
        way.accepted().len() > connections
    })
    .await;
    let calls = || cluster.masters[unheard].calls("evalsha");
    let before = calls();
    way.set(Way::Pass);
    until("it is asked", async || calls() > before).await;
    assert_eq!(left().await, [5, 10]);
    cluster.masters[hung].signal("CONT");
}
