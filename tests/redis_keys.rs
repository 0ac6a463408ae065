//! What stands in Redis: names, expiries, and values that are not ours.

mod support;

use std::time::Duration;

use support::redis::Server;
use tower_throttle::{
    Clock, DAY, FailureMode, Key, Limit, Limiter, ManualClock, Micros, Outcome, Policy, SECOND,
    StoreErrorKind, Subject,
};

fn limits() -> [(&'static str, Limit); 5] {
    [
        ("gcra", Limit::gcra(3, 90 * SECOND)),
        ("windows", Limit::fixed_window(3, 90 * SECOND)),
        ("aligned", Limit::fixed_window(3, 100 * DAY).aligned()),
        ("log", Limit::sliding_log(3, 90 * SECOND)),
        ("counter", Limit::sliding_counter(3, 90 * SECOND)),
    ]
}

async fn limiter(server: &Server, policies: impl IntoIterator<Item = Policy>) -> Limiter {
    // These tests are about what the server does, also with a denial.
    Limiter::builder(server.store().await.without_deny_cache())
        .policies(policies)
        // On a busy machine an answer may be late.
        .timeout(20 * SECOND)
        .on_store_failure(FailureMode::Deny)
        .build()
        .unwrap()
}

fn pttl(server: &Server, key: &str) -> Duration {
    let mut command = redis::cmd("PTTL");
    command.arg(key);
    let millis: i64 = server.query(command);
    Duration::from_millis(millis.try_into().expect("the key has no TTL"))
}

/// Too short forgives debt, missing blocks a client for ever.
#[tokio::test]
async fn every_key_expires_when_its_state_is_untouched_and_at_most_a_second_later() {
    let server = Server::start();
    for (name, limit) in limits() {
        let limiter = limiter(&server, [Policy::new(name, limit)]).await;
        for cost in [1, 2] {
            let decision = limiter.check_cost(name, "alice", cost).await.unwrap();
            assert!(decision.is_allowed());
            let keys: Vec<_> = server
                .keys()
                .into_iter()
                .filter(|key| key.ends_with(name))
                .collect();
            assert_eq!(keys.len(), 1, "one key for each policy and subject");
            let ttl = pttl(&server, &keys[0]);
            // Time goes on between the three looks, so each bounds the other from one side.
            assert!(ttl <= decision.reset_after() + SECOND, "{name}: {ttl:?}");
            let left = limiter.peek(name, "alice").await.unwrap().reset_after();
            assert!(ttl >= left, "{name}: {ttl:?} {left:?}");
        }
    }
}

/// A TTL in whole seconds forgives debt, or blocks for longer than it says.
#[tokio::test]
async fn sliding_log_expires_to_the_millisecond() {
    let server = Server::start();
    let clock = ManualClock::new();
    let store = server.builder().clock_for_tests(clock.clone());
    let window = Duration::from_micros(90_123_456);
    let limiter = Limiter::builder(store.connect().await.unwrap())
        .policy(Policy::new("log", Limit::sliding_log(2, window)))
        .timeout(20 * SECOND)
        .build()
        .unwrap();
    for _ in 0..2 {
        assert!(limiter.check("log", "alice").await.unwrap().is_allowed());
        // The server's time and the key's expiry in one step.
        let mut expiry = redis::cmd("EVAL");
        let script = "return {redis.call('PTTL', KEYS[1]), unpack(redis.call('TIME'))}";
        expiry.arg(script).arg(1).arg(&server.keys()[0]);
        let (pttl, secs, us): (u64, u64, u64) = server.query(expiry);
        let expires_ms = secs * 1_000 + us / 1_000 + pttl;
        let lapses = clock.now().saturating_add(Micros::from(window));
        let late_ms = expires_ms.abs_diff(lapses.ceil_millis());
        assert!(late_ms <= 1, "{late_ms} ms");
        clock.advance(Duration::from_micros(1_234));
    }
}

/// A crash between a count and its `EXPIRE` leaves a key for ever; and a comparison of a number
/// with a string, which never holds, left out the branch that sets it.
#[tokio::test]
async fn fixed_window_is_written_with_its_expiry_by_one_command_every_time() {
    let server = Server::start();
    let limiter = limiter(
        &server,
        limits().map(|(name, limit)| Policy::new(name, limit)),
    )
    .await;
    for name in ["windows", "aligned"] {
        for sets in 1..=3 {
            let before = server.calls("set");
            assert!(limiter.check(name, "alice").await.unwrap().is_allowed());
            assert_eq!(server.calls("set") - before, 1);
            let key = server.keys().into_iter().find(|key| key.ends_with(name));
            assert!(pttl(&server, &key.unwrap()) > SECOND, "{name} {sets}");
        }
    }
    for command in ["expire", "pexpire", "pexpireat", "incr", "incrby"] {
        assert_eq!(server.calls(command), 0, "{command}");
    }
}

#[tokio::test]
async fn a_denied_request_writes_nothing() {
    let server = Server::start();
    for (name, limit) in limits() {
        let policies = [Policy::new(name, limit)];
        let limiter = limiter(&server, policies).await;
        limiter.check_cost(name, "alice", 3).await.unwrap();
        let writes = |server: &Server| {
            let mut info = redis::cmd("INFO");
            info.arg("persistence");
            let info: String = server.query(info);
            let changes = info
                .lines()
                .find_map(|line| line.strip_prefix("rdb_changes_since_last_save:"));
            changes.unwrap().trim().parse::<u64>().unwrap()
        };
        let before = writes(&server);
        for _ in 0..10 {
            for (cost, outcome) in [(1, Outcome::Denied), (4, Outcome::NeverFits)] {
                let decision = limiter.check_cost(name, "alice", cost).await.unwrap();
                assert_eq!(decision.outcome(), outcome, "{name}");
            }
            limiter.peek(name, "alice").await.unwrap();
            limiter.peek(name, "nobody").await.unwrap();
        }
        assert_eq!(writes(&server), before, "{name}");
    }
}

#[tokio::test]
async fn keys_name_prefix_layout_hash_and_policy_and_nothing_of_the_subject() {
    let server = Server::start();
    let store = server.builder().prefix("shop:eu").connect().await.unwrap();
    let policies = limits().map(|(name, limit)| Policy::new(name, limit));
    let limiter = Limiter::builder(store).policies(policies);
    let limiter = limiter.timeout(20 * SECOND).build().unwrap();
    let hash = Subject::from(&Key::from("alice@example.org"));
    let mut expected = Vec::new();
    for (name, layout) in [
        ("gcra", "gcra1"),
        ("windows", "fixed_window1"),
        ("log", "sliding_log1"),
        ("counter", "sliding_counter1"),
    ] {
        limiter.check(name, "alice@example.org").await.unwrap();
        expected.push(format!("shop:eu:{layout}:{{{hash}}}:{name}"));
    }
    let mut found = server.keys();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
}

#[tokio::test]
async fn limiters_with_the_same_prefix_share_counts_and_with_another_do_not() {
    let server = Server::start();
    let policy = || [Policy::new("api", Limit::gcra(1, DAY))];
    let one = limiter(&server, policy()).await;
    let same = limiter(&server, policy()).await;
    let other = server.builder().prefix("other").connect().await.unwrap();
    let other = Limiter::new(other, policy()).unwrap();
    assert!(one.check("api", "alice").await.unwrap().is_allowed());
    assert!(!same.check("api", "alice").await.unwrap().is_allowed());
    assert!(other.check("api", "alice").await.unwrap().is_allowed());
}

#[tokio::test]
async fn a_value_that_is_not_ours_fails_its_key_alone_and_is_left_as_it_is() {
    let server = Server::start();
    let hash = Subject::from(&Key::from("alice"));
    let cases = [
        ("gcra", "gcra1", "SET", vec!["hello"]),
        ("gcra", "gcra1", "SET", vec!["nan"]),
        ("gcra", "gcra1", "SET", vec!["inf"]),
        ("gcra", "gcra1", "SET", vec!["1e300"]),
        ("gcra", "gcra1", "SET", vec!["12:x:3"]),
        ("gcra", "gcra1", "SET", vec!["4102444800000000:7:3"]),
        ("gcra", "gcra1", "RPUSH", vec!["1", "2"]),
        ("windows", "fixed_window1", "SET", vec!["7"]),
        ("windows", "fixed_window1", "HSET", vec!["a", "b"]),
        ("log", "sliding_log1", "SET", vec!["7"]),
        ("counter", "sliding_counter1", "SET", vec!["1:0:3:4"]),
        ("counter", "sliding_counter1", "SET", vec!["1:2:3"]),
        ("counter", "sliding_counter1", "RPUSH", vec!["1"]),
        ("log", "sliding_log1", "RPUSH", vec!["a", "b", "c", "d"]),
        ("log", "sliding_log1", "RPUSH", vec!["7"]),
    ];
    let limiter = limiter(
        &server,
        limits().map(|(name, limit)| Policy::new(name, limit)),
    )
    .await;
    for (policy, layout, command, value) in cases {
        let key = format!("throttle:{layout}:{{{hash}}}:{policy}");
        let mut plant = redis::cmd(command);
        plant.arg(&key).arg(&value);
        server.query::<redis::Value>(plant);
        let dump = || {
            let mut dump = redis::cmd("DUMP");
            dump.arg(&key);
            server.query::<Vec<u8>>(dump)
        };
        let before = dump();

        let decision = limiter.check(policy, "alice").await.unwrap();
        let failed = Outcome::FailedClosed(StoreErrorKind::ForeignValue);
        assert_eq!(decision.outcome(), failed, "{policy} {command} {value:?}");
        assert_eq!(dump(), before);
        let neighbour = limiter.check(policy, "bob").await.unwrap();
        assert_ne!(
            neighbour.store_failure(),
            Some(StoreErrorKind::ForeignValue)
        );

        let mut delete = redis::cmd("DEL");
        delete.arg(&key);
        server.query::<i64>(delete);
    }
}

/// A log that is never empty for years reaches the bound of its running totals.
#[tokio::test]
async fn sliding_log_totals_wrap_around() {
    let server = Server::start();
    let limiter = limiter(&server, [Policy::new("log", Limit::sliding_log(10, DAY))]).await;
    limiter.check_cost("log", "alice", 1).await.unwrap();
    let key = server.keys().remove(0);
    let list = |from: i64, to: i64| {
        let mut range = redis::cmd("LRANGE");
        range.arg(&key).arg(from).arg(to);
        server.query::<Vec<u64>>(range)
    };
    let [expires, _, at, _] = list(0, -1)[..] else {
        panic!("a log of one entry has four items");
    };
    let last = (1_u64 << 48) - 1;
    let mut replant = redis::pipe();
    replant.cmd("DEL").arg(&key);
    replant
        .cmd("RPUSH")
        .arg(&key)
        .arg(&[expires, last, at, last - 1]);
    replant.cmd("PEXPIRE").arg(&key).arg(60_000);
    let mut connection = redis::Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    replant.query::<redis::Value>(&mut connection).unwrap();

    let decision = limiter.check_cost("log", "alice", 4).await.unwrap();
    assert_eq!(decision.remaining(), 5);
    assert_eq!(list(1, 1), [3], "the total began anew");
    assert!(
        !limiter
            .check_cost("log", "alice", 6)
            .await
            .unwrap()
            .is_allowed()
    );
    assert_eq!(
        limiter
            .check_cost("log", "alice", 5)
            .await
            .unwrap()
            .remaining(),
        0
    );
}

#[tokio::test]
async fn every_decision_after_the_first_is_one_short_command() {
    let server = Server::start();
    let limiter = limiter(&server, [Policy::new("api", Limit::gcra(100, SECOND))]).await;
    let at_start = server.calls("eval");
    for _ in 0..10 {
        limiter.check("api", "alice").await.unwrap();
    }
    assert_eq!(server.calls("evalsha"), 10);
    assert_eq!(server.calls("eval") - at_start, 1, "after the one NOSCRIPT");
    assert_eq!(server.calls("script|load"), 0);
}
