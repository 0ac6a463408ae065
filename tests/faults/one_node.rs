//! A cluster of which one node fails: that is nothing to those whose keys are on the others.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::runtime::Builder;
use tower_throttle::{
    BreakerState, DAY, FailureMode, Limit, Limiter, Policy, RedisStore, SECOND, Store,
    StoreErrorKind,
};

use crate::stage::PLENTY;
use crate::support::cluster::Cluster;
use crate::support::redis::Server;

/// Far above what a node takes that works.
const DEADLINE: Duration = Duration::from_millis(500);
const GENEROUS: Duration = Duration::from_secs(30);
/// The position of the node that fails.
const FAILING: usize = 1;

/// Subjects that all ask at once, some of which are counted by the node that fails.
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

    /// Around nodes whose host the URL calls so.
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

    /// Asks for all at once: why the store did not decide for those there. For those elsewhere it did.
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
        assert_eq!(self.limiter.breaker(), BreakerState::Closed);
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
    let builder = Limiter::builder(store).policy(policy.on_store_failure(FailureMode::Deny));
    builder.timeout(DEADLINE).build().unwrap()
}

/// Nobody waits for it.
fn is_left_alone(there: &[Option<StoreErrorKind>]) -> bool {
    let mut reasons = there.iter();
    reasons.all(|why| *why == Some(StoreErrorKind::Unreachable))
}

/// The URL may have other names of the nodes than they have themselves.
#[tokio::test]
async fn that_is_gone_has_nobody_connect_to_the_others_again() {
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
    // Each question about a key of that node has the slot map asked for again.
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
    // Longer than an attempt to connect takes, and another.
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

/// The runtime of the one who found that out is not driven any more.
#[test]
fn that_hung_is_asked_again_on_other_runtimes() {
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
async fn that_was_gone_from_the_first_question_on() {
    let mut crowd = Crowd::gather().await;
    crowd.cluster.masters[FAILING].kill();
    crowd.limiter = limiter_over(&crowd.cluster.url()).await;
    for state in [BreakerState::Open, BreakerState::Closed] {
        let started = Instant::now();
        while crowd.limiter.breaker() != state {
            let decision = crowd.limiter.check("api", &crowd.there[0]).await.unwrap();
            assert!(decision.store_failure().is_some());
            assert!(started.elapsed() < GENEROUS, "not {state:?}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    crowd.ask().await;
}

#[tokio::test]
async fn that_does_not_come_back_with_the_others() {
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
