//! A cluster that is far away: each answer takes its time.

use std::time::{Duration, Instant};

use tower_throttle::algorithm::{Action, Algorithm};
use tower_throttle::{
    Answer, Check, DAY, Decision, Decisions, FailureMode, Key, Limit, Outcome, PolicyId,
    RedisStore, Store, Subject,
};

use crate::GENEROUS;
use crate::cluster::SUBJECTS;
use crate::support::proxy::{Proxy, Way};
use crate::support::redis::Server;
use crate::support::sentinel::until;

/// Longer than what is decided would wait for another node that is near.
const TRIP: Duration = Duration::from_millis(20);

/// One node that has all slots: questions about several subjects are several scripts all the same.
struct Far {
    _node: Server,
    proxy: Proxy,
    store: RedisStore,
    policy: PolicyId,
}

impl Far {
    async fn new() -> Self {
        // It is led to the node when that is there: before, the node has to know what to say of itself.
        let proxy = Proxy::to(1);
        let port = proxy.port().to_string();
        let node = Server::start_with(&[
            "--cluster-enabled",
            "yes",
            "--cluster-announce-port",
            &port,
            "--cluster-announce-bus-port",
            &port,
        ]);
        proxy.lead_to(node.port());
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("ADDSLOTS").arg((0..16_384).collect::<Vec<_>>());
        node.query::<()>(slots);
        until("the cluster is ready", || {
            let mut info = redis::cmd("CLUSTER");
            info.arg("INFO");
            node.query::<String>(info).contains("cluster_state:ok")
        });
        let url = format!("redis-cluster://127.0.0.1:{port}");
        let store = RedisStore::connect(&url).await.unwrap();
        let before = proxy.commands();
        let far = Self {
            store: store.without_deny_cache(),
            policy: PolicyId::new("api"),
            _node: node,
            proxy,
        };
        far.ask(&[("b", true)]).await;
        assert!(
            far.proxy.commands() > before,
            "it is asked by way of the proxy"
        );
        far.proxy.set(Way::Delay(TRIP));
        far
    }

    /// For the only permit of each subject, which may be in shadow.
    async fn ask(&self, asked: &[(&str, bool)]) -> Decisions {
        let check = |(subject, is_shadow): &(&str, bool)| Check {
            policy: &self.policy,
            subject: Subject::from(&Key::from(*subject)),
            algorithm: Algorithm::try_from(&Limit::fixed_window(1, DAY)).unwrap(),
            action: Action::take(1),
            is_shadow: *is_shadow,
            on_store_failure: FailureMode::Deny,
        };
        let checks: Vec<_> = asked.iter().map(check).collect();
        match self.store.ask(&checks) {
            Answer::Pending(answer) => answer.await.unwrap(),
            Answer::Ready(answer) => panic!("Redis takes a trip: {answer:?}"),
        }
    }
}

fn outcomes(decisions: &[Decision]) -> Vec<Outcome> {
    decisions.iter().map(Decision::outcome).collect()
}

fn in_shadow() -> Vec<(&'static str, bool)> {
    SUBJECTS.map(|subject| (subject, true)).to_vec()
}

#[tokio::test]
async fn shadows_beside_what_is_enforced_are_all_heard() {
    let far = Far::new().await;
    // So that there is something to deny.
    far.ask(&in_shadow()).await;
    let started = Instant::now();
    for number in 0.. {
        let enforced = format!("enforced {number}");
        let mut asked = in_shadow();
        asked.push((&enforced, false));
        let told = outcomes(&far.ask(&asked).await);
        let (enforced, shadows) = told.split_last().unwrap();
        assert_eq!(*enforced, Outcome::Allowed);
        // On a busy machine one may be late.
        if shadows.iter().all(|told| *told == Outcome::Denied) {
            return;
        }
        assert!(started.elapsed() < GENEROUS, "{shadows:?}");
    }
}

/// They hold up nobody, and so have the whole time.
#[tokio::test]
async fn shadows_alone_are_waited_for() {
    let far = Far::new().await;
    far.ask(&in_shadow()).await;
    let told = outcomes(&far.ask(&in_shadow()).await);
    assert_eq!(told, [Outcome::Denied; SUBJECTS.len()]);
}
