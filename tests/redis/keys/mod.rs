//! What is stored in Redis: names, expiries, and corrupt values.

use std::time::Duration;

use futures_util::future::join_all;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Decisions, PolicyId, Store};
use tower_throttle::{
    DAY, FailureMode, HOUR, Key, Limit, Limiter, Outcome, Penalty, Policy, Rate, RedisStore, Rules,
    SECOND, Subject,
};

use support::asking::{GO_ALONE, answer_of, check_of};
use support::bench::Bench;
use support::redis::Server;

mod corrupt;
mod expiry;
mod group_faults;
mod group_scripts;
mod group_shadows;
mod groups;
mod lapsed;
mod lowered;
mod out_of_range;
mod rights;
mod server_clock;
mod shadow;

const RATE: Rate = Rate::new(3, Duration::from_secs(90));

/// A limit of each algorithm, with a name for its policy and the layout of its keys.
const LIMITS: [(&str, &str, Limit); 11] = [
    ("gcra", "gcra2", Limit::gcra(3, NINETY)),
    ("thirds", "gcra2", Limit::gcra(3, Duration::from_secs(100))),
    ("bucket", "token_bucket2", Limit::token_bucket(3, RATE)),
    ("queue", "leaky_bucket2", Limit::leaky_bucket(3, RATE)),
    (
        "meter",
        "leaky_bucket2",
        Limit::leaky_bucket(3, RATE).without_delay(),
    ),
    ("windows", "fixed_window2", Limit::fixed_window(3, NINETY)),
    (
        "aligned",
        "fixed_window2",
        Limit::fixed_window(3, Duration::from_secs(8_640_000)).aligned(),
    ),
    ("log", "sliding_log2", Limit::sliding_log(3, NINETY)),
    (
        "slices",
        "sliding_window2",
        Limit::sliding_window(3, NINETY),
    ),
    (
        "counter",
        "sliding_counter2",
        Limit::sliding_counter(3, NINETY),
    ),
    (
        "leases",
        "concurrency2",
        Limit::concurrency(3).lease(NINETY),
    ),
];

const NINETY: Duration = Duration::from_secs(90);

fn policies() -> impl Iterator<Item = Policy> {
    LIMITS
        .into_iter()
        .map(|(name, _, limit)| Policy::new(name, limit))
}

/// Policies that are asked together: one alone, two with a key each, two of a group, one of each
/// kind.
fn shapes(name: &str) -> [Vec<PolicyId>; 5] {
    let policy = |number| PolicyId::new(&format!("{name}-{number}"));
    let grouped = |number| policy(number).in_group("client");
    [
        vec![policy(1)],
        vec![policy(2), policy(3)],
        vec![grouped(4), grouped(5)],
        vec![grouped(6), policy(7)],
        vec![policy(8), grouped(9)],
    ]
}

/// The answers to some subjects that ask under all of these policies at once. The last ones share a
/// trip.
async fn ask_together(
    store: &impl Store,
    policies: &[PolicyId],
    limit: &Limit,
    action: Action,
) -> Vec<Decisions> {
    let ask = async |subject: u64| {
        let checks = policies.iter();
        let checks = checks.map(|policy| check_of(policy, subject, limit, action));
        let checks: Vec<_> = checks.collect();
        answer_of(store, &checks).await.unwrap()
    };
    join_all((0..GO_ALONE as u64 + 4).map(ask)).await
}

async fn limiter(server: &Server, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    over(server.store().await, policies)
}

fn over(store: RedisStore, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    // These tests are about what the server does, also with denials.
    let rules = Rules::new(policies).on_store_failure(FailureMode::Deny);
    Limiter::builder(store.without_deny_cache(), rules)
        // On a busy machine an answer may be late.
        .timeout(20 * SECOND)
        .build()
        .unwrap()
}

/// How many keys were written, counting each write.
fn writes(server: &Server) -> u64 {
    let info = server.info("persistence");
    let changes = info
        .lines()
        .find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
    changes.unwrap().trim().parse().unwrap()
}

#[tokio::test]
async fn a_denied_request_writes_nothing() {
    let server = Server::start();
    let limiter = limiter(&server, policies()).await;
    for (name, _, _) in LIMITS {
        let _ = limiter.check_cost(name, "alice", 3).await.unwrap();
        let before = writes(&server);
        for _ in 0..10 {
            for (cost, outcome) in [(1, Outcome::Denied), (4, Outcome::NeverFits)] {
                let decision = limiter.check_cost(name, "alice", cost).await.unwrap();
                assert_eq!(decision.outcome(), outcome, "{name}");
            }
            let _ = limiter.peek(name, "alice").await.unwrap();
            let _ = limiter.peek(name, "nobody").await.unwrap();
            let _ = limiter.credit(name, "nobody", 1).await.unwrap();
        }
        assert_eq!(writes(&server), before, "{name}");
    }
}

/// Whichever script decides it, alone or together with others; also checks that would fit, beside
/// one that does not.
#[tokio::test]
async fn a_denial_writes_nothing_to_any_key() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    for (name, _, limit) in LIMITS {
        for policies in shapes(name) {
            let take = async |policies: &[PolicyId], permits| {
                ask_together(&store, policies, &limit, Action::consume(permits)).await
            };
            take(&policies[..1], 3).await;
            // Beside a key that owes nothing, and one that owes something.
            for of_others in [0, 1] {
                take(&policies[1..], of_others).await;
                let before = writes(&server);
                for permits in [1, 3] {
                    for decisions in take(&policies, permits).await {
                        assert_eq!(decisions[0].outcome(), Outcome::Denied, "{policies:?}");
                    }
                }
                assert_eq!(writes(&server), before, "{policies:?}");
            }
        }
    }
}

/// Otherwise the memory used in Redis would grow with the limit.
#[tokio::test]
async fn a_sliding_window_keeps_one_count_for_each_slice() {
    let bench = Bench::redis().await;
    let limit = Limit::sliding_window(1_000, SECOND).slices(10);
    for _ in 0..500 {
        assert!(bench.act(limit, Action::consume(1)).await.is_allowed());
        bench.advance(Duration::from_millis(2));
    }
    let state: String = bench.server().query(("GET", bench.server().keys()));
    // When it expires, the total, ten whole slices, and those at both ends.
    assert!(state.split(':').count() <= 2 + 2 * 12, "{state}");
}

/// A command that was carried out: how long it took, in microseconds, and its words.
type Logged = (u64, Vec<String>);

/// The commands that the server has logged as slow, the latest first.
fn logged(server: &Server) -> Vec<Logged> {
    type Entry = (u64, u64, u64, Vec<String>, String, String);
    let entries: Vec<Entry> = server.query(("SLOWLOG", "GET", 1_000));
    let entries = entries.into_iter();
    entries
        .map(|(_, _, took_us, words, _, _)| (took_us, words))
        .collect()
}

/// They are asked in turns, so that whatever else the machine does affects both.
#[tokio::test]
async fn acquires_stay_cheap_with_many_slices() {
    const SLICES: [u32; 2] = [10, 1_000];
    let bench = Bench::redis().await;
    let limits = SLICES.map(|slices| Limit::sliding_window(1_000_000, HOUR).slices(slices));
    let [few, many] = limits.map(|limit| Algorithm::try_from(&limit).unwrap());
    let take = async || {
        for (policy, algorithm) in [("few", few), ("many", many)] {
            let done = [(policy, algorithm, "alice", Action::acquire(1))];
            assert!(bench.act_all(&done).await.all_allow());
        }
    };
    for _ in 0..1_000 {
        take().await;
        bench.advance(HOUR / 1_000);
    }
    for (setting, value) in [("slowlog-log-slower-than", 0), ("slowlog-max-len", 1_000)] {
        bench
            .server()
            .query::<()>(("CONFIG", "SET", setting, value));
    }
    // On a busy machine some of the takes were slow.
    bench.server().query::<()>(("SLOWLOG", "RESET"));
    for _ in 0..100 {
        take().await;
    }
    let logged = logged(bench.server());
    let median = |policy: &str| {
        let is_of_it = |(_, words): &&Logged| {
            let key = words.get(3).filter(|_| words[0] == "EVALSHA");
            key.is_some_and(|key| key.ends_with(policy))
        };
        let of_it = logged.iter().filter(is_of_it);
        let mut times: Vec<_> = of_it.map(|(took_us, _)| *took_us).collect();
        assert_eq!(times.len(), 100);
        times.sort_unstable();
        times[50]
    };
    let [few, many] = [":few", ":many"].map(median);
    assert!(many < 12 * few, "{few} us, and {many} us with many slices");
}

/// Only a denial is counted; during the ban, not even that.
#[tokio::test]
async fn a_banned_request_writes_nothing() {
    let server = Server::start();
    let policy = Policy::new("login", Limit::fixed_window(1, DAY));
    let policy = policy.penalty(Penalty::after(2, DAY, DAY));
    let limiter = limiter(&server, [policy]).await;
    for written in [1, 1, 1, 0, 0, 0] {
        let before = writes(&server);
        let _ = limiter.check("login", "alice").await.unwrap();
        assert_eq!(writes(&server) - before, written);
    }
}

#[tokio::test]
async fn keys_name_prefix_layout_hash_and_policy_not_the_subject() {
    let server = Server::start();
    let store = server.builder().prefix("shop:eu").connect().await.unwrap();
    let penalty = Penalty::after(1, DAY, DAY);
    let banning = Policy::new("banning", Limit::gcra(1, DAY)).penalty(penalty);
    let limiter = Limiter::builder(store, policies().chain([banning]));
    let limiter = limiter.timeout(20 * SECOND).build().unwrap();
    let hash = Subject::from(&Key::from("alice@example.org"));
    let mut expected = Vec::new();
    let names = LIMITS.map(|(name, layout, _)| (name, layout));
    for (name, layout) in names
        .into_iter()
        .chain([("banning", "gcra2"), ("banning", "penalty2")])
    {
        let _ = limiter.check(name, "alice@example.org").await.unwrap();
        expected.push(format!("shop:eu:{layout}:{{{hash}}}:{name}"));
    }
    let mut found = server.keys();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn limiters_share_counts_with_the_same_prefix_only() {
    let server = Server::start();
    let policy = || [Policy::new("api", Limit::gcra(1, DAY))];
    let one = limiter(&server, policy()).await;
    let same = limiter(&server, policy()).await;
    let other = server.builder().prefix("other").connect().await.unwrap();
    let other = over(other, policy());
    assert!(one.check("api", "alice").await.unwrap().is_allowed());
    assert!(!same.check("api", "alice").await.unwrap().is_allowed());
    assert!(other.check("api", "alice").await.unwrap().is_allowed());
}

#[tokio::test]
async fn every_decision_after_the_first_is_one_short_command() {
    let server = Server::start();
    let limiter = limiter(&server, [Policy::new("api", Limit::gcra(100, SECOND))]).await;
    let [evals, evalshas] = ["eval", "evalsha"].map(|command| server.calls(command));
    for _ in 0..10 {
        let _ = limiter.check("api", "alice").await.unwrap();
    }
    assert_eq!(server.calls("evalsha") - evalshas, 10);
    assert_eq!(server.calls("eval") - evals, 1, "after the one NOSCRIPT");
    assert_eq!(server.calls("script|load"), 0);
}

/// The clock of a web server, which differs from the others, decides nothing.
#[tokio::test]
async fn every_question_asks_for_the_servers_clock() {
    let server = Server::start_with(&["--slowlog-log-slower-than", "0"]);
    let limiter = limiter(&server, policies()).await;
    let questions = || logged(&server).into_iter().map(|(_, words)| words);
    for (name, _, _) in LIMITS {
        let _ = limiter.check(name, "alice").await.unwrap();
        let asked = questions().find(|words| words[0].starts_with("EVAL") && words.len() > 5);
        let asked = asked.unwrap();
        // The script, the number of keys, the key, and the server's instant.
        assert_eq!(asked[4], "0", "{name}: {asked:?}");
    }
}
