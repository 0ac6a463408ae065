//! A cluster that is far away: each answer takes its time.

use std::time::{Duration, Instant};

use tower_throttle::algorithm::{Action, Algorithm};
use tower_throttle::{
    Answer, Check, DAY, Decision, FailureMode, Key, Limit, Outcome, PolicyId, RedisStore, Store,
    Subject,
};

use crate::GENEROUS;
use crate::cluster::SUBJECTS;
use crate::support::cluster::Cluster;
use crate::support::proxy::{Proxy, Way};

/// Longer than what is decided would wait for another node that is near.
const TRIP: Duration = Duration::from_millis(20);

struct Far {
    cluster: Cluster,
    store: RedisStore,
}

impl Far {
    async fn new() -> Self {
        let far = Self::near().await;
        let proxies = far.cluster.proxies.iter();
        proxies.for_each(|proxy| proxy.set(Way::Delay(TRIP)));
        far
    }

    async fn near() -> Self {
        let cluster = Cluster::behind_proxies();
        let store = RedisStore::connect(&cluster.url()).await.unwrap();
        let store = store.without_deny_cache();
        let far = Self { cluster, store };
        for subject in SUBJECTS {
            let asked = || -> u64 { far.cluster.proxies.iter().map(Proxy::commands).sum() };
            let before = asked();
            far.ask("near", &[(subject, true)]).await;
            assert!(asked() > before, "it is asked by way of the proxies");
        }
        far
    }

    /// For the only permit that a policy has for each subject, maybe in shadow.
    async fn ask(&self, policy: &str, asked: &[(&str, bool)]) -> Vec<Outcome> {
        let policy = PolicyId::new(policy);
        let check = |(subject, is_shadow): &(&str, bool)| Check {
            policy: &policy,
            subject: Subject::from(&Key::from(*subject)),
            algorithm: Algorithm::try_from(&Limit::fixed_window(1, DAY)).unwrap(),
            action: Action::take(1),
            is_shadow: *is_shadow,
            on_store_failure: FailureMode::Deny,
        };
        let checks: Vec<_> = asked.iter().map(check).collect();
        let answer = match self.store.ask(&checks) {
            Answer::Pending(answer) => answer.await.unwrap(),
            Answer::Ready(answer) => panic!("Redis takes a trip: {answer:?}"),
        };
        answer.iter().map(Decision::outcome).collect()
    }
}

fn in_shadow() -> Vec<(&'static str, bool)> {
    SUBJECTS.map(|subject| (subject, true)).to_vec()
}

#[tokio::test]
async fn shadows_beside_what_is_enforced_are_all_heard() {
    let far = Far::new().await;
    // So that there is something to deny.
    far.ask("api", &in_shadow()).await;
    let started = Instant::now();
    for number in 0.. {
        let enforced = format!("enforced {number}");
        let mut asked = in_shadow();
        asked.push((&enforced, false));
        let told = far.ask("api", &asked).await;
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
    far.ask("api", &in_shadow()).await;
    let told = far.ask("api", &in_shadow()).await;
    assert_eq!(told, [Outcome::Denied; SUBJECTS.len()]);
}
