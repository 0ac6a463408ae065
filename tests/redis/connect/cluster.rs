//! Redis Cluster.

use std::time::{Duration, Instant};

use tower_throttle::store::{Acquire, Action, LeaseId, Wait};
use tower_throttle::store::{Decisions, PolicyId};
use tower_throttle::{
    DAY, FailureMode, Limit, Micros, Outcome, RedisStore, RedisStoreBuilder, SECOND, StoreError,
    StoreErrorKind,
};

use crate::connect::load::{Load, used};
use crate::connect::{GENEROUS, assert_counts, limiter, text_of};
use support::asking::{check_of, pending_answer_of};
use support::cluster::Cluster;
use support::proxy::{Proxy, Way};
use support::redis::Server;
use support::rights::{USER, documented_rights, set_right, user_with};
use support::sentinel::until;

/// So many subjects that each of three nodes has some.
pub(crate) const SUBJECTS: [&str; 12] =
    ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];

#[tokio::test]
async fn subjects_are_spread_over_all_nodes_and_counted_on_each() {
    let cluster = Cluster::start();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    for _ in 0..3 {
        for subject in SUBJECTS {
            let decision = limiter.check("api", subject).await.unwrap();
            assert_eq!(decision.store_failure(), None, "{subject}");
        }
    }
    for subject in SUBJECTS {
        assert_eq!(used(&limiter, subject).await, 3, "{subject}");
    }
    let keys: Vec<_> = cluster
        .masters
        .iter()
        .map(|master| master.keys().len())
        .collect();
    assert!(keys.iter().all(|keys| *keys > 0), "{keys:?}");
    assert_eq!(keys.iter().sum::<usize>(), SUBJECTS.len());
}

/// As one does whose name is resolved for the first time, or whose certificates are checked on a
/// busy machine.
#[tokio::test]
async fn the_only_seed_may_take_as_long_as_a_single_server() {
    let cluster = Cluster::start();
    let seed = Proxy::to(cluster.masters[0].port());
    seed.set(Way::Delay(Duration::from_millis(300)));
    let url = format!("redis-cluster://127.0.0.1:{}", seed.port());
    assert_counts(RedisStore::connect(&url).await.unwrap()).await;
}

#[tokio::test]
async fn a_single_server_behind_a_cluster_url_is_recognized() {
    let server = Server::start();
    let url = format!("redis-cluster://127.0.0.1:{}", server.port());
    let error = RedisStore::connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Configuration);
    assert!(
        text_of(&error).contains("not part of a cluster"),
        "{}",
        text_of(&error)
    );
}

/// A user on every node, with the documented rights; one node may deny one.
async fn connect_with_rights(cluster: &Cluster, denied: &str) -> Result<RedisStore, StoreError> {
    for (position, node) in cluster.masters.iter().enumerate() {
        let mut rights = documented_rights();
        rights.extend(["+cluster|slots", "+asking"]);
        if position == 2 && !denied.is_empty() {
            rights.push(denied);
        }
        user_with(node, rights);
    }
    let port = cluster.masters[0].port();
    RedisStore::connect(&format!("redis-cluster://{USER}:secret@127.0.0.1:{port}")).await
}

#[tokio::test]
async fn the_documented_rights_suffice_in_a_cluster() {
    let cluster = Cluster::start();
    let store = connect_with_rights(&cluster, "").await.unwrap();
    let limiter = limiter(store, GENEROUS);
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        assert_eq!(decision.store_failure(), None, "{subject}");
    }
}

/// A right that one node does not grant is found, whichever node it is.
#[tokio::test]
async fn every_node_is_tried_at_start_up() {
    let cluster = Cluster::start();
    for (denied, words) in [
        ("-zadd", "grant it +zadd"),
        // Needed only while slots move.
        ("-asking", "'asking'"),
    ] {
        let error = connect_with_rights(&cluster, denied).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration);
        assert!(text_of(&error).contains(words), "{}", text_of(&error));
        let mut masters = cluster.masters.iter();
        let is_named =
            masters.any(|master| text_of(&error).contains(&format!(":{}", master.port())));
        assert!(is_named, "{}", text_of(&error));
    }
}

/// An operator has to know which of many nodes it is.
#[tokio::test]
async fn a_node_that_refuses_later_is_named_by_what_failed() {
    let cluster = Cluster::start();
    let store = connect_with_rights(&cluster, "").await.unwrap();
    let policy = PolicyId::new("api");
    for limit in [Limit::gcra(9, DAY), Limit::sliding_log(9, DAY)] {
        let check = check_of(&policy, "alice", &limit, Action::consume(1));
        pending_answer_of(&store, &[check]).await.unwrap();
        let (position, _) = cluster.master_of(":api");
        let node = &cluster.masters[position];
        set_right(node, "-evalsha");
        let check = check_of(&policy, "alice", &limit, Action::consume(1));
        let error = pending_answer_of(&store, &[check]).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Configuration);
        let told = text_of(&error);
        assert!(told.contains(&format!(":{}", node.port())), "{told}");
        assert!(told.contains("lacks a permission"), "{told}");
        set_right(node, "+evalsha");
    }
}

#[tokio::test]
async fn a_node_that_is_asked_for_the_slots_in_vain_is_named() {
    let server = Server::start();
    let seed = Proxy::to(server.port());
    let url = format!("redis-cluster://127.0.0.1:{}", seed.port());
    for way in [Way::Pass, Way::Blackhole] {
        seed.set(way);
        let told = text_of(&RedisStore::connect(&url).await.unwrap_err());
        // Once, for all who noticed.
        assert_eq!(told.matches(&seed.port().to_string()).count(), 1, "{told}");
    }
}

#[tokio::test]
async fn a_node_that_is_down_is_named() {
    let cluster = Cluster::behind_proxies();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let (policy, limit) = (PolicyId::new("api"), Limit::gcra(9, DAY));
    let check = || check_of(&policy, "alice", &limit, Action::consume(1));
    pending_answer_of(&store, &[check()]).await.unwrap();
    let (position, _) = cluster.master_of(":api");
    let node = &cluster.proxies[position];
    node.set(Way::Blackhole);
    let refused = async {
        loop {
            let asked = [check()];
            let answer = pending_answer_of(&store, &asked);
            if let Ok(answer) = tokio::time::timeout(Duration::from_millis(50), answer).await {
                return answer.unwrap_err();
            }
        }
    };
    let error = tokio::time::timeout(6 * GENEROUS, refused).await.unwrap();
    let told = text_of(&error);
    assert!(told.contains("is down"), "{told}");
    assert!(told.contains(&node.port().to_string()), "{told}");
}

/// The error names the right, and not that the nodes send the question back and forth.
#[tokio::test]
async fn a_right_missing_for_moving_slots_shows_in_their_decisions() {
    let cluster = Cluster::start();
    let store = connect_with_rights(&cluster, "").await.unwrap();
    let limiter = limiter(store, GENEROUS);
    let check = async || limiter.check("api", "alice").await.unwrap();
    assert_eq!(check().await.store_failure(), None);
    let (from, key) = cluster.master_of(":api");
    let to = (from + 1) % 3;
    set_right(&cluster.masters[to], "-asking");
    let slot = cluster.begin_to_move(&key, from, to);
    cluster.move_key(&key, from, to);
    let failure = check().await.store_failure();
    assert_eq!(failure, Some(StoreErrorKind::Configuration));
    cluster.end_move(slot, from, to);
    assert_eq!(check().await.store_failure(), None);
}

/// The same for a node that is out of memory.
#[tokio::test]
async fn a_node_that_takes_no_writes_does_not_prevent_a_start() {
    let cluster = Cluster::start();
    for master in &cluster.masters[1..] {
        master.set_full(true);
        RedisStore::connect(&cluster.url()).await.unwrap();
    }
    cluster.masters[0].set_full(true);
    let error = RedisStore::connect(&cluster.url()).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Full);
    assert!(
        text_of(&error).contains("raise its maxmemory"),
        "{}",
        text_of(&error)
    );
}

/// A deployment should not have to wait for the end of an outage that users hardly notice.
#[tokio::test]
async fn a_node_that_is_gone_does_not_prevent_a_start() {
    let mut cluster = Cluster::without_full_coverage();
    cluster.masters[1].kill();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    let mut counted = 0;
    for subject in SUBJECTS {
        let decision = limiter.check("api", subject).await.unwrap();
        counted += usize::from(decision.store_failure().is_none());
    }
    let keys = cluster.masters.iter().enumerate();
    let keys = keys.filter(|(position, _)| *position != 1);
    let keys = keys.map(|(_, master)| master.keys().len()).sum::<usize>();
    assert!(counted > 0 && counted == keys, "{counted} of {keys}");
    for master in &mut cluster.masters {
        master.kill();
    }
    RedisStore::connect(&cluster.url()).await.unwrap_err();
}

/// Asks until each of these masters was asked this many more times for the slots: questions about a
/// master that is gone trigger that.
async fn ask_until_they_are_asked(
    cluster: &Cluster,
    masters: [usize; 2],
    times: u64,
    ask: impl AsyncFn(&str),
) {
    // Redis 6.2 counts all of `CLUSTER` as one.
    let names = ["cluster", "cluster|slots"];
    let calls = |position: usize| names.map(|name| cluster.masters[position].calls(name));
    let asked = || masters.map(|position| calls(position).iter().sum::<u64>());
    let before = asked();
    let started = Instant::now();
    while asked()
        .iter()
        .zip(before)
        .any(|(now, before)| *now < before + times)
    {
        assert!(started.elapsed() < GENEROUS, "{before:?} and {:?}", asked());
        for subject in SUBJECTS {
            ask(subject).await;
        }
    }
}

/// Any of them may be cut off from the others without knowing it.
#[tokio::test]
async fn masters_are_asked_for_the_slot_map_in_turn() {
    let mut cluster = Cluster::without_full_coverage();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    cluster.masters[1].kill();
    ask_until_they_are_asked(&cluster, [0, 2], 1, async |subject| {
        let _ = limiter.check("api", subject).await.unwrap();
    })
    .await;
}

/// As a master that was cut off from the others says, when they have a successor for it.
#[tokio::test]
async fn the_slot_map_is_asked_for_if_a_node_says_cluster_down() {
    let cluster = Cluster::behind_proxies();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    cluster.proxies[1].set(Way::Garble(b"-CLUSTERDOWN The cluster is down\r\n"));
    ask_until_they_are_asked(&cluster, [0, 2], 1, async |subject| {
        let _ = limiter.check("api", subject).await.unwrap();
    })
    .await;
}

/// As for a moment when a master steps down.
#[tokio::test]
async fn subjects_of_a_master_missing_in_one_map_are_decided() {
    let mut cluster = Cluster::without_full_coverage();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    let [known, gone, forgetful] = [0, 1, 2];
    let mut of_known = Vec::new();
    for subject in SUBJECTS {
        let _ = limiter.check("api", subject).await.unwrap();
        if cluster.master_of(":api").0 == known {
            of_known.push(subject);
        }
        let _ = limiter.reset("api", subject).await.unwrap();
    }
    cluster.forget(known, forgetful);
    cluster.masters[gone].kill();
    ask_until_they_are_asked(&cluster, [known, forgetful], 2, async |subject| {
        let decision = limiter.check("api", subject).await.unwrap();
        assert!(
            !of_known.contains(&subject) || decision.store_failure().is_none(),
            "{decision:?}"
        );
    })
    .await;
}

/// Each is waited for two seconds.
#[tokio::test]
async fn two_nodes_that_hang_hold_up_a_start_no_longer_than_one() {
    let cluster = Cluster::start();
    let hung = &cluster.masters[1..];
    hung.iter().for_each(|master| master.signal("STOP"));
    let started = Instant::now();
    let connected = RedisStore::connect(&cluster.url()).await;
    let waited = started.elapsed();
    hung.iter().for_each(|master| master.signal("CONT"));
    connected.unwrap();
    assert!(
        waited < Duration::from_secs(4),
        "one after the other: {waited:?}"
    );
}

/// A start does not wait for the end of a resharding, or until somebody closes slots that one left
/// open.
#[tokio::test]
async fn slots_that_move_do_not_prevent_a_start() {
    let cluster = Cluster::start();
    cluster.begin_to_move_all(0, 1);
    RedisStore::connect(&cluster.url()).await.unwrap();
}

/// One check of each of two subjects on different nodes.
struct Pair {
    cluster: Cluster,
    store: RedisStore,
    policy: PolicyId,
    subjects: [&'static str; 2],
    on_store_failure: FailureMode,
}

impl Pair {
    async fn new() -> Self {
        Self::of(|cluster| RedisStore::builder(&cluster.url())).await
    }

    async fn of(store: impl FnOnce(&Cluster) -> RedisStoreBuilder) -> Self {
        let cluster = Cluster::without_full_coverage();
        let store = store(&cluster).connect().await.unwrap();
        // Every question must reach the servers.
        let store = store.without_deny_cache();
        let apart = cluster.apart(&store, &SUBJECTS).await;
        Self {
            cluster,
            store,
            policy: PolicyId::new("api"),
            subjects: apart.map(|(subject, _)| subject),
            on_store_failure: FailureMode::Deny,
        }
    }

    async fn ask(&self, asked: &[(&str, Limit, Action)]) -> Decisions {
        self.answer(asked).await.unwrap()
    }

    fn answer(
        &self,
        asked: &[(&str, Limit, Action)],
    ) -> impl Future<Output = Result<Decisions, StoreError>> + use<> {
        let checks: Vec<_> = asked
            .iter()
            .map(|(subject, limit, action)| {
                check_of(&self.policy, *subject, limit, *action)
                    .with_failure_mode(self.on_store_failure)
            })
            .collect();
        pending_answer_of(&self.store, &checks)
    }

    async fn left(&self, subject: &str, limit: Limit) -> u64 {
        self.ask(&[(subject, limit, Action::look())]).await[0].remaining()
    }
}

#[tokio::test]
async fn a_question_over_two_nodes_takes_all_or_nothing() {
    let pair = Pair::of(Cluster::patient).await;
    let [one, two] = pair.subjects;
    let patient = Acquire::new(2).with_wait(Wait::Burst(Micros::from(DAY)));
    let holding = || Action::Acquire(patient.with_lease(LeaseId::new()));
    let single = Limit::fixed_window(1, 2 * DAY);
    for (limit, action) in [
        (Limit::fixed_window(10, DAY), Action::acquire(2)),
        (Limit::fixed_window(10, DAY), Action::consume(2)),
        (Limit::gcra(10, DAY), Action::consume(2)),
        (Limit::sliding_log(10, DAY), Action::consume(2)),
        (Limit::gcra(10, DAY), Action::Acquire(patient)),
        (Limit::sliding_log(10, DAY), Action::acquire(2)),
        (Limit::concurrency(10), holding()),
    ] {
        let other = (two, single, Action::acquire(1));
        let allowed = pair.ask(&[(one, limit, action), other]).await;
        assert!(allowed.all_allow(), "{limit:?}: {allowed:?}");
        assert_eq!([allowed[0].remaining(), allowed[1].remaining()], [8, 0]);
        let again = match action {
            Action::Acquire(Acquire { lease: Some(_), .. }) => holding(),
            action => action,
        };
        // The one that denies is last, and first.
        for asked in [[(one, limit, again), other], [other, (one, limit, again)]] {
            let denied = pair.ask(&asked).await;
            let position = asked
                .iter()
                .position(|(subject, ..)| *subject == one)
                .unwrap();
            assert_eq!(denied.denied_by(), Some(1 - position), "{limit:?}");
            assert_eq!(
                denied[position].remaining(),
                8,
                "{limit:?}: as it was before"
            );
            assert_eq!(pair.left(one, limit).await, 8, "{limit:?}: given back");
        }
        for (subject, limit) in [(one, limit), (two, single)] {
            pair.ask(&[(subject, limit, Action::Reset)]).await;
        }
    }
}

#[tokio::test]
async fn permits_are_given_back_if_a_later_node_does_not_answer() {
    let pair = Pair::new().await;
    let [one, two] = pair.subjects;
    let limit = Limit::fixed_window(10, DAY);
    let take = Action::acquire(1);
    pair.ask(&[(one, limit, take), (two, limit, take)]).await;
    let hung = node_of(&pair, two).await;
    pair.cluster.masters[hung].signal("STOP");
    let asked = pair.answer(&[(one, limit, take), (two, limit, take)]);
    let answer = tokio::time::timeout(Duration::from_millis(100), asked).await;
    assert!(answer.is_err(), "the node hangs");
    let started = Instant::now();
    while pair.left(one, limit).await != 9 {
        assert!(started.elapsed() < GENEROUS, "never given back");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    pair.cluster.masters[hung].signal("CONT");
}

/// A check in shadow does not hold up an enforced one.
#[tokio::test]
async fn a_hanging_shadow_node_does_not_block_enforced_checks() {
    let pair = Pair::new().await;
    let [one, two] = pair.subjects;
    let check = |subject: &str, is_shadow| {
        check_of(
            &pair.policy,
            subject,
            &Limit::fixed_window(10, DAY),
            Action::acquire(1),
        )
        .in_shadow(is_shadow)
    };
    let hung = node_of(&pair, two).await;
    pair.cluster.masters[hung].signal("STOP");
    let answer = pending_answer_of(&pair.store, &[check(two, true), check(one, false)]);
    let answer = tokio::time::timeout(GENEROUS, answer).await;
    let decisions = answer.expect("it waits for the other").unwrap();
    let failed = Outcome::FailedOpen(StoreErrorKind::TimedOut);
    assert_eq!(decisions[0].outcome(), failed);
    assert_eq!(decisions[1].outcome(), Outcome::Allowed);
    assert_eq!(decisions[1].remaining(), 9);
    pair.cluster.masters[hung].signal("CONT");
}

#[tokio::test]
async fn a_missing_node_delays_no_request_that_fails_open() {
    let mut pair = Pair::new().await;
    let [one, two] = pair.subjects;
    let limit = Limit::fixed_window(10, DAY);
    let take = |subject| (subject, limit, Action::acquire(1));
    let lost = node_of(&pair, two).await;
    pair.cluster.masters[lost].kill();
    for (asked, position) in [([take(one), take(two)], 1), ([take(two), take(one)], 0)] {
        pair.on_store_failure = FailureMode::Allow;
        let before = pair.left(one, limit).await;
        let decisions = pair.ask(&asked).await;
        assert!(decisions.all_allow(), "{decisions:?}");
        assert!(matches!(
            decisions[position].outcome(),
            Outcome::FailedOpen(_)
        ));
        assert_eq!(decisions[1 - position].remaining(), before - 1);
        assert_eq!(pair.left(one, limit).await, before - 1, "it was taken");
        pair.on_store_failure = FailureMode::Deny;
        pair.answer(&asked).await.unwrap_err();
        let started = Instant::now();
        while pair.left(one, limit).await != before - 1 {
            assert!(started.elapsed() < GENEROUS, "never given back");
        }
    }
    // Nobody decides any more.
    pair.on_store_failure = FailureMode::Allow;
    let lost = node_of(&pair, one).await;
    pair.cluster.masters[lost].kill();
    pair.answer(&[take(one), take(two)]).await.unwrap_err();
}

#[tokio::test]
async fn a_denial_stands_though_what_is_left_elsewhere_is_not_known() {
    let mut pair = Pair::new().await;
    pair.on_store_failure = FailureMode::Allow;
    let [one, two] = pair.subjects;
    let take = |subject| (subject, Limit::fixed_window(1, DAY), Action::acquire(1));
    pair.ask(&[take(one)]).await;
    let lost = node_of(&pair, two).await;
    pair.cluster.masters[lost].kill();
    let denied = pair.ask(&[take(one), take(two)]).await;
    let outcomes = [denied[0].outcome(), denied[1].outcome()];
    assert_eq!(outcomes, [Outcome::Denied, Outcome::NotAsked]);
}

#[tokio::test]
async fn a_denial_stands_while_another_node_hangs_which_is_found_out() {
    let mut pair = Pair::new().await;
    pair.on_store_failure = FailureMode::Allow;
    let [one, two] = pair.subjects;
    let take = |subject| (subject, Limit::fixed_window(1, DAY), Action::acquire(1));
    pair.ask(&[take(one)]).await;
    let hung = node_of(&pair, two).await;
    pair.cluster.masters[hung].signal("STOP");
    // As long as nodes hang before they are left alone, and longer.
    let started = Instant::now();
    while started.elapsed() < SECOND {
        let denied = pair.answer(&[take(one), take(two)]);
        let denied = tokio::time::timeout(GENEROUS, denied).await;
        let denied = denied.expect("it waits for the other").unwrap();
        let outcomes = [denied[0].outcome(), denied[1].outcome()];
        assert_eq!(outcomes, [Outcome::Denied, Outcome::NotAsked]);
    }
    let alone = tokio::time::timeout(GENEROUS, pair.answer(&[take(two)])).await;
    let error = alone.expect("nobody knows that it hangs").unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable);
    pair.cluster.masters[hung].signal("CONT");
}

/// As when the leases of many requests are renewed together.
#[tokio::test]
async fn actions_that_take_nothing_run_on_every_node_that_answers() {
    let mut pair = Pair::new().await;
    let [one, two] = pair.subjects;
    let limit = Limit::concurrency(10);
    let leases = [LeaseId::new(), LeaseId::new()];
    let take = |lease| Action::Acquire(Acquire::new(1).with_lease(lease));
    for lease in leases {
        let both = [(one, limit, take(lease)), (two, limit, take(lease))];
        assert!(pair.ask(&both).await.all_allow());
    }
    let end = |lease| [two, one].map(|subject| (subject, limit, Action::Release(lease)));
    let lost = node_of(&pair, two).await;
    pair.cluster.masters[lost].signal("STOP");
    let asked = pair.answer(&end(leases[0]));
    let answer = tokio::time::timeout(Duration::from_millis(100), asked).await;
    assert!(answer.is_err(), "the node hangs");
    let started = Instant::now();
    while pair.left(one, limit).await != 9 {
        assert!(started.elapsed() < GENEROUS, "never ended");
    }
    // Those who give up find out that it hangs; from then on nobody waits for it.
    let started = Instant::now();
    let short = Duration::from_millis(100);
    while tokio::time::timeout(short, pair.answer(&end(leases[0])))
        .await
        .is_err()
    {
        assert!(started.elapsed() < GENEROUS, "never found out");
    }
    pair.cluster.masters[lost].kill();
    let decisions = pair.ask(&end(leases[1])).await;
    assert!(decisions[0].store_failure().is_some(), "{decisions:?}");
    assert_eq!(decisions[1].store_failure(), None, "{decisions:?}");
    assert_eq!(pair.left(one, limit).await, 10);
}

/// The master that counts for a subject.
async fn node_of(pair: &Pair, subject: &str) -> usize {
    let mark = PolicyId::new("mark");
    let check = check_of(
        &mark,
        subject,
        &Limit::fixed_window(1, DAY),
        Action::acquire(1),
    );
    let answer = pending_answer_of(&pair.store, &[check]);
    answer.await.unwrap();
    pair.cluster.master_of(":mark").0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_under_load_holds_up_no_other_node() {
    is_followed_by_its_replica("KILL").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_of_a_master_that_hangs_under_load_is_followed() {
    is_followed_by_its_replica("STOP").await;
}

async fn is_followed_by_its_replica(signal: &str) {
    let cluster = Cluster::with_replicas();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    // Starting up while the cluster is busy may be slow; a decision is not.
    let limiter = limiter(store, Duration::from_millis(500));
    assert!(
        limiter
            .check("api", SUBJECTS[0])
            .await
            .unwrap()
            .is_allowed()
    );
    let (node, _) = cluster.master_of(":api");
    let mut elsewhere = None;
    for subject in &SUBJECTS[1..] {
        let before = cluster.masters[node].keys().len();
        let _ = limiter.check("api", *subject).await.unwrap();
        if cluster.masters[node].keys().len() == before {
            elsewhere = Some(*subject);
            break;
        }
    }
    let elsewhere = elsewhere.expect("a subject on another node");
    let before = [
        used(&limiter, SUBJECTS[0]).await,
        used(&limiter, elsewhere).await,
    ];
    let loads = [
        Load::start(&limiter, SUBJECTS[0]),
        Load::start(&limiter, elsewhere),
    ];
    tokio::task::block_in_place(|| {
        loads.iter().for_each(Load::wait_for_more);
        cluster.masters[node].signal(signal);
        until("the failure modes decide meanwhile", || {
            loads[0].failed() > 0
        });
        loads[1].wait_for_more();
        loads[0].wait_for_more();
        loads[1].wait_for_more();
        cluster.masters[node].signal("CONT");
    });
    let [moved, stayed] = loads;
    let [moved, stayed] = [moved.stop().await, stayed.stop().await];
    let now = [
        used(&limiter, SUBJECTS[0]).await,
        used(&limiter, elsewhere).await,
    ];
    let [of_moved, of_stayed] = [now[0] - before[0], now[1] - before[1]];
    assert!(
        of_moved >= 100 && of_moved <= moved.most,
        "{of_moved}: {moved:?}"
    );
    assert!(
        (stayed.least..=stayed.most).contains(&of_stayed),
        "{of_stayed}: {stayed:?}"
    );
}

/// Does this under load: every decision is taken, and counted once.
async fn assert_no_decision_is_lost(moving: impl FnOnce(&Cluster, &Load)) {
    let cluster = Cluster::start();
    let store = RedisStore::connect(&cluster.url()).await.unwrap();
    let limiter = limiter(store, GENEROUS);
    let load = Load::start(&limiter, "alice");
    tokio::task::block_in_place(|| {
        load.wait_for_more();
        moving(&cluster, &load);
    });
    assert_eq!(load.failed(), 0, "every decision was taken");
    let asked = load.stop().await;
    assert_eq!(used(&limiter, "alice").await, asked.least);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_loses_and_doubles_nothing() {
    assert_no_decision_is_lost(|cluster, load| {
        let (from, key) = cluster.master_of(":api");
        let to = (from + 1) % 3;
        let slot = cluster.begin_to_move(&key, from, to);
        load.wait_for_more();
        cluster.move_key(&key, from, to);
        // Redirected by ASK.
        load.wait_for_more();
        cluster.end_move(slot, from, to);
        // Redirected by MOVED.
        load.wait_for_more();
        assert_eq!(cluster.master_of(":api").0, to);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_repeatedly_under_load_counts_all_once() {
    assert_no_decision_is_lost(|cluster, load| {
        for _ in 0..6 {
            let (from, key) = cluster.master_of(":api");
            cluster.move_slot(&key, from, (from + 1) % 3);
            load.wait_for_more();
        }
    })
    .await;
}

/// Scripts reach no keys of which only some have moved: it waits until all have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_about_keys_that_are_being_moved_waits_for_them() {
    let pair = Pair::new().await;
    let [one, _] = pair.subjects;
    let limit = Limit::fixed_window(10, DAY);
    let other = PolicyId::new("other");
    let take = || {
        let check = |policy| check_of(policy, one, &limit, Action::acquire(1));
        pending_answer_of(&pair.store, &[check(&pair.policy), check(&other)])
    };
    take().await.unwrap();
    const LONG: Duration = Duration::from_millis(500);
    let (mut from, first) = pair.cluster.master_of(":other");
    let (_, second) = pair.cluster.master_of(":api");
    let mut to = (from + 1) % 3;
    // The second time it first asks the node that had them at the start.
    for left in [8, 7] {
        let slot = pair.cluster.begin_to_move(&first, from, to);
        pair.cluster.move_key(&first, from, to);
        // By the node that still has one of them; up to Redis 6.2 by the one that has the other.
        let rejected = || {
            let nodes = [from, to].map(|node| &pair.cluster.masters[node]);
            nodes
                .map(|node| node.rejected_calls("evalsha"))
                .iter()
                .sum::<u64>()
        };
        let (before, started) = (rejected(), Instant::now());
        let asked = tokio::spawn(take());
        let waits = || rejected() >= before + 10 && started.elapsed() >= LONG;
        tokio::task::block_in_place(|| until("it waits", waits));
        let (times, within) = (rejected() - before, started.elapsed());
        let most = 20 + within.div_duration_f64(Duration::from_millis(100)) as u64;
        assert!(times <= most, "{times} times within {within:?}");
        pair.cluster.move_key(&second, from, to);
        pair.cluster.end_move(slot, from, to);
        let decisions = asked.await.unwrap().unwrap();
        assert_eq!(
            [decisions[0].remaining(), decisions[1].remaining()],
            [left; 2]
        );
        (from, to) = (to, from);
    }
}

#[tokio::test]
async fn a_cluster_is_connected_to_when_it_is_needed() {
    let cluster = Cluster::start();
    let store = RedisStore::builder(&cluster.url()).connect_lazy().unwrap();
    assert_counts(store).await;
}
