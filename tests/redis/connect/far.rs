//! A cluster that is far away: each answer takes a while.

use std::time::{Duration, Instant};

use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{DAY, Decision, Limit, Outcome, RedisStore, RedisStoreBuilder, SECOND};

use crate::connect::GENEROUS;
use crate::connect::cluster::SUBJECTS;
use support::asking::{check_of, pending_answer_of};
use support::cluster::Cluster;
use support::proxy::{Proxy, Way};

/// Longer than a decision would wait for another node that is near.
const TRIP: Duration = Duration::from_millis(20);
/// So long that only a busy machine takes half of it for anything.
const LONG_TRIP: Duration = Duration::from_millis(200);
/// A connection that was not used for longer is idle.
const IDLE: Duration = SECOND.saturating_add(LONG_TRIP);

struct Far {
    cluster: Cluster,
    store: RedisStore,
}

impl Far {
    async fn new() -> Self {
        let far = Self::over(|builder| builder).await;
        let proxies = far.cluster.proxies.iter();
        proxies.for_each(|proxy| proxy.set(Way::Delay(TRIP)));
        far
    }

    /// Not far yet.
    async fn over(build: impl FnOnce(RedisStoreBuilder) -> RedisStoreBuilder) -> Self {
        let cluster = Cluster::behind_proxies();
        let builder = build(RedisStore::builder(&cluster.url()));
        let store = builder.connect().await.unwrap().without_deny_cache();
        let far = Self { cluster, store };
        for subject in SUBJECTS {
            let asked = || -> u64 { far.cluster.proxies.iter().map(Proxy::commands).sum() };
            let before = asked();
            far.ask("near", &[(subject, true)]).await;
            assert!(asked() > before, "it is asked by way of the proxies");
        }
        far
    }

    /// Asks for the only permit that a policy has for each subject, possibly in shadow.
    async fn ask(&self, policy: &str, asked: &[(&str, bool)]) -> Vec<Outcome> {
        let policy = PolicyId::new(policy);
        let check = |(subject, is_shadow): &(&str, bool)| {
            check_of(
                &policy,
                *subject,
                &Limit::fixed_window(1, DAY),
                Action::acquire(1),
            )
            .in_shadow(*is_shadow)
        };
        let checks: Vec<_> = asked.iter().map(check).collect();
        let answer = pending_answer_of(&self.store, &checks).await.unwrap();
        answer.iter().map(Decision::outcome).collect()
    }
}

fn in_shadow() -> Vec<(&'static str, bool)> {
    SUBJECTS.map(|subject| (subject, true)).to_vec()
}

#[tokio::test]
async fn shadows_beside_enforced_checks_are_all_answered() {
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

/// They hold up nobody, and so have all the time.
#[tokio::test]
async fn shadows_alone_are_awaited() {
    let far = Far::new().await;
    far.ask("api", &in_shadow()).await;
    let told = far.ask("api", &in_shadow()).await;
    assert_eq!(told, [Outcome::Denied; SUBJECTS.len()]);
}

/// Two nodes: one is asked all the time, and the other, a little farther away, only when a test
/// asks it.
struct Seldom {
    far: Far,
    often: &'static str,
    seldom: &'static str,
}

impl Seldom {
    async fn new() -> Self {
        let wait = LONG_TRIP / 4 * 3;
        let far = Far::over(|builder| builder.wait_for_other_nodes(wait)).await;
        let apart = far.cluster.apart(&far.store, &SUBJECTS).await;
        let [(often, _), (seldom, farther)] = apart;
        for both in [
            [(often, false), (seldom, true)],
            [(often, false), (seldom, false)],
        ] {
            // From then on the scripts are known.
            far.ask("near", &both).await;
        }
        for (position, proxy) in far.cluster.proxies.iter().enumerate() {
            let is_farther = position == farther;
            let by = LONG_TRIP / 8 * if is_farther { 9 } else { 8 };
            proxy.set(Way::Delay(by));
        }
        Self { far, often, seldom }
    }

    /// Asks about both; one has not been asked about for a while.
    async fn ask(&self, policy: &str, is_shadow: bool) -> Vec<Outcome> {
        let last = Instant::now();
        while last.elapsed() < IDLE {
            self.far.ask("often", &[(self.often, false)]).await;
        }
        let both = [(self.often, false), (self.seldom, is_shadow)];
        self.far.ask(policy, &both).await
    }
}

#[tokio::test]
async fn a_node_that_is_seldom_asked_is_awaited_too() {
    let nodes = Seldom::new().await;
    let mut told = Vec::new();
    // On a busy machine it may be late, but not each time.
    for policy in ["first", "second", "third", "fourth", "fifth"] {
        let in_shadow = nodes.ask(policy, true).await;
        let beside_a_denial = nodes.ask(policy, false).await;
        let is_heard = in_shadow == [Outcome::Allowed; 2];
        if is_heard && beside_a_denial == [Outcome::Denied; 2] {
            return;
        }
        told.push((in_shadow, beside_a_denial));
    }
    panic!("{told:?}");
}
