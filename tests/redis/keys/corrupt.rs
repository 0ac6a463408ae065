//! Values that somebody else has put where this crate's would be.

use std::num::NonZeroU64;
use std::time::{SystemTime, UNIX_EPOCH};

use tower_throttle::store::{Action, Algorithm, LeaseId};
use tower_throttle::store::{PolicyId, Receipt};
use tower_throttle::{
    DAY, Key, Limit, Micros, Outcome, Penalty, Policy, RedisStore, StoreError, StoreErrorKind,
    Subject,
};

use crate::keys::{LIMITS, NINETY, limiter, policies};
use support::asking::{answer_of, check_of};
use support::redis::Server;

/// What to plant for a policy: the command, and its arguments after the key.
pub(crate) type Planted = (&'static str, &'static str, &'static [&'static str]);

const DEBTS: [&str; 4] = ["gcra", "bucket", "queue", "meter"];

const NO_DEBT: [(&str, &[&str]); 21] = [
    ("SET", &["hello"]),
    ("SET", &["nan"]),
    ("SET", &["inf"]),
    ("SET", &["1e300"]),
    ("SET", &["-7"]),
    ("SET", &["1.5"]),
    ("SET", &[" 7"]),
    ("SET", &["0x7"]),
    ("SET", &["07"]),
    ("SET", &["04102444800000000"]),
    ("SET", &["4102444800000000:0"]),
    ("SET", &["4102444800000000:07"]),
    ("SET", &["9007199254740992:1"]),
    ("SET", &["4102444800000000.5"]),
    ("SET", &["99999999999999999999"]),
    ("SET", &["12:x:3"]),
    ("SET", &["12::3"]),
    ("SET", &["4102444800000000:7:3"]),
    ("SET", &["4102444800000000:4294967296"]),
    ("RPUSH", &["1", "2"]),
    ("HSET", &["a", "b"]),
];

const OTHERS: [Planted; 59] = [
    ("windows", "SET", &["7"]),
    ("windows", "SET", &["1:2:three"]),
    ("windows", "SET", &["1::3"]),
    ("windows", "HSET", &["a", "b"]),
    (
        "windows",
        "SET",
        &["99999999999999999999:99999999999999999999:5"],
    ),
    (
        "windows",
        "SET",
        &["1152921504606846976:1152921504606846976:5"],
    ),
    ("windows", "SET", &["1:9007199254740992:5"]),
    ("windows", "SET", &["4102444800000001:4102444800000000:5"]),
    ("windows", "SET", &["1:4102444800000000:1000000000000000"]),
    ("aligned", "SET", &["1:2:3:4"]),
    ("aligned", "ZADD", &["1", "a"]),
    ("log", "SET", &["7"]),
    ("log", "RPUSH", &["a", "b", "c", "d"]),
    ("log", "RPUSH", &["7"]),
    (
        "log",
        "RPUSH",
        &["4102444800000000", "1", "4102444799000000"],
    ),
    ("log", "RPUSH", &["4102444800000000", "1", "1", "0"]),
    // A permit taken when it has already lapsed.
    (
        "log",
        "RPUSH",
        &["4102444799000000", "1", "4102444800000000", "0"],
    ),
    ("log", "RPUSH", &["1e20", "1", "1e20", "0"]),
    (
        "log",
        "RPUSH",
        &["1152921504606846976", "1", "1152921504606846976", "0"],
    ),
    ("log", "RPUSH", &["inf", "1", "inf", "0"]),
    ("log", "RPUSH", &["nan", "1", "nan", "0"]),
    ("log", "ZADD", &["1", "a"]),
    ("slices", "SET", &["hello"]),
    ("slices", "SET", &["7"]),
    ("slices", "SET", &["7:8"]),
    ("slices", "SET", &["7:8:6:nine"]),
    (
        "slices",
        "SET",
        &["7 4102444800000000:5:4102444800000000:5"],
    ),
    (
        "slices",
        "SET",
        &["99999999999999999999:5:99999999999999999999:5"],
    ),
    (
        "slices",
        "SET",
        &["1152921504606846976:5:1152921504606846976:5"],
    ),
    ("slices", "SET", &["4102444800000000:5:4102444800000001:5"]),
    // Of a window longer than any.
    ("slices", "SET", &["4102444800000000:5:1:5"]),
    (
        "slices",
        "SET",
        &["4102444800000000:1000000000000000:4102444799000000:1000000000000000"],
    ),
    (
        "slices",
        "SET",
        &["4102444800000000:1000000000000000:4102444799000000:5"],
    ),
    // A slice that has more than all have, or behind which something stands.
    (
        "slices",
        "SET",
        &["4102444800000000:5:4102444799000000:1000000000000000"],
    ),
    ("slices", "SET", &["4102444800000000:0:4102444799000000:5"]),
    ("slices", "SET", &["4102444800000000:5:4102444799000000:5:"]),
    ("slices", "RPUSH", &["1"]),
    ("counter", "SET", &["1:0:3:4"]),
    ("counter", "SET", &["1:2:3"]),
    ("counter", "SET", &["1:2:3:"]),
    ("counter", "SET", &["hello"]),
    ("counter", "SET", &["99999999999999999999:60000000:5:5"]),
    ("counter", "SET", &["1152921504606846976:60000000:5:5"]),
    ("counter", "SET", &["1:1152921504606846976:5:5"]),
    ("counter", "SET", &["1:90000000:1000000000000000:5"]),
    ("counter", "SET", &["1:90000000:5:1000000000000000"]),
    ("counter", "RPUSH", &["1"]),
    ("leases", "SET", &["7"]),
    ("leases", "RPUSH", &["1"]),
    ("leases", "HSET", &["a", "b"]),
    // A leader board: scores and names, without the total of all leases.
    ("leases", "ZADD", &["5", "alice", "7", "bob"]),
    ("leases", "ZADD", &["9007199254740991", "alice"]),
    ("leases", "ZADD", &["-3", "alice"]),
    // Lapsed leases that claim to hold more than all leases do.
    ("leases", "ZADD", &["-1", "held", "5", "1", "6", "2"]),
    // More than there are leases for.
    ("leases", "ZADD", &["-5", "held", "5", "1"]),
    ("leases", "ZADD", &["-1", "held", "inf", "1"]),
    ("leases", "ZADD", &["-1", "held", "1e20", "1"]),
    ("leases", "ZADD", &["-inf", "held", "4102444800000000", "1"]),
    ("leases", "SADD", &["alice"]),
];

pub(crate) fn cases() -> impl Iterator<Item = Planted> {
    let debts = DEBTS.into_iter().flat_map(|policy| {
        let planted = NO_DEBT.into_iter();
        planted.map(move |(command, value)| (policy, command, value))
    });
    debts.chain(OTHERS)
}

pub(crate) fn key_of(policy: &str, layout: &str) -> String {
    let hash = Subject::from(&Key::from("alice"));
    format!("throttle:{layout}:{{{hash}}}:{policy}")
}

pub(crate) fn plant(server: &Server, key: &str, command: &str, value: &[&str]) {
    server.query::<redis::Value>((command, key, value));
}

pub(crate) fn dump(server: &Server, key: &str) -> Option<Vec<u8>> {
    server.query(("DUMP", key))
}

pub(crate) fn delete(server: &Server, key: &str) {
    assert_eq!(server.query::<i64>(("DEL", key)), 1);
}

/// All actions on a key, except forgetting it.
fn actions() -> [Action; 9] {
    let credit = |taken_at| Action::Credit {
        permits: 1,
        taken_at,
    };
    [
        Action::look(),
        Action::acquire(1),
        Action::consume(1),
        Action::Charge(1),
        credit(None),
        credit(Some(Micros::ZERO)),
        Action::Cancel {
            permits: 1,
            receipt: Receipt::default(),
        },
        Action::Renew(LeaseId::new()),
        Action::Release(LeaseId::new()),
    ]
}

async fn act(
    store: &RedisStore,
    policy: &str,
    algorithm: Algorithm,
    action: Action,
) -> Result<Outcome, StoreError> {
    let policy = PolicyId::new(policy);
    let check = check_of(&policy, "alice", algorithm, action);
    let answer = answer_of(store, &[check]).await;
    answer.map(|decisions| decisions[0].outcome())
}

/// Plants a value for a policy. None of the actions reads it as this crate's, nor changes it.
async fn assert_is_corrupt(
    server: &Server,
    store: &RedisStore,
    (policy, command, value): (&str, &str, &[&str]),
    actions: impl IntoIterator<Item = Action>,
) {
    let (_, layout, limit) = LIMITS
        .into_iter()
        .find(|(name, _, _)| *name == policy)
        .unwrap();
    let (key, algorithm) = (key_of(policy, layout), Algorithm::try_from(&limit).unwrap());
    plant(server, &key, command, value);
    let before = dump(server, &key);
    for action in actions {
        let error = act(store, policy, algorithm, action).await;
        let kind = error.map_err(|error| error.kind());
        let case = format!("{policy} {command} {value:?} {action:?}");
        assert_eq!(kind, Err(StoreErrorKind::CorruptValue), "{case}");
        assert_eq!(dump(server, &key), before, "{case}");
    }
    delete(server, &key);
}

/// Whatever is done, it is neither read as this crate's, nor overwritten, nor deleted.
#[tokio::test]
async fn a_corrupt_value_fails_every_action_and_is_not_changed() {
    let server = Server::start();
    let store = server.store().await;
    for planted in cases() {
        assert_is_corrupt(&server, &store, planted, actions()).await;
    }
}

/// Only an action that reads them finds that they do not match.
#[tokio::test]
async fn malformed_leases_fail_their_questions_and_stay_as_they_are() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let key = key_of("leases", "concurrency2");
    let algorithm = Algorithm::try_from(&Limit::concurrency(3)).unwrap();
    let far = "4102444800000000";
    let release = Action::Release(LeaseId::from(NonZeroU64::MIN));
    let cases: [(Action, &[&str]); 3] = [
        // Three permits, for one lease that has one.
        (Action::acquire(1), &["-3", "held", far, "1"]),
        // More than all have.
        (release, &["-1", "held", far, "1", "-2", "=1"]),
        // A lease of none.
        (release, &["-1", "held", far, "1", "0", "=1"]),
    ];
    for (action, planted) in cases {
        plant(&server, &key, "ZADD", planted);
        let before = dump(&server, &key);
        let error = act(&store, "leases", algorithm, action).await;
        let kind = error.map_err(|error| error.kind());
        assert_eq!(kind, Err(StoreErrorKind::CorruptValue), "{planted:?}");
        assert_eq!(dump(&server, &key), before, "{planted:?}");
        delete(&server, &key);
    }
}

/// It has lapsed by the limit's own window, but not by the longer one it was charged with.
#[tokio::test]
async fn a_wrong_total_of_what_has_lapsed_fails_its_question() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = since_epoch.as_micros();
    let [lapsed, now, expires] =
        [now - 2 * NINETY.as_micros(), now, now + DAY.as_micros()].map(|at| at.to_string());
    let slices_of = |total| vec![format!("{expires}:{total}:{lapsed}:4")];
    let log = [&expires, "10", &now, "5", &lapsed, "9"].map(str::to_owned);
    let back = Action::Credit {
        permits: 2,
        taken_at: None,
    };
    for (policy, command, value, action) in [
        ("slices", "SET", slices_of(3), Action::look()),
        ("slices", "SET", slices_of(5), Action::look()),
        ("log", "RPUSH", log.to_vec(), back),
    ] {
        let value: Vec<_> = value.iter().map(String::as_str).collect();
        assert_is_corrupt(&server, &store, (policy, command, &value), [action]).await;
    }
}

/// Forgetting a key is asked for by name, and is the way to get rid of what should not be there.
#[tokio::test]
async fn a_reset_forgets_also_what_is_not_ours() {
    let server = Server::start();
    let store = server.store().await;
    for (policy, layout, limit) in LIMITS {
        let (key, algorithm) = (key_of(policy, layout), Algorithm::try_from(&limit).unwrap());
        plant(&server, &key, "HSET", &["a", "b"]);
        let reset = act(&store, policy, algorithm, Action::Reset).await.unwrap();
        assert_eq!(reset, Outcome::Allowed, "{policy}");
        assert_eq!(dump(&server, &key), None);
    }
}

#[tokio::test]
async fn a_value_that_is_not_ours_fails_its_key_alone() {
    let server = Server::start();
    let limiter = limiter(&server, policies()).await;
    let failed = Outcome::FailedClosed(StoreErrorKind::CorruptValue);
    for (policy, layout, _) in LIMITS {
        let key = key_of(policy, layout);
        plant(&server, &key, "HSET", &["a", "b"]);
        let decision = limiter.check(policy, "alice").await.unwrap();
        assert_eq!(decision.outcome(), failed, "{policy}");
        let neighbour = limiter.check(policy, "bob").await.unwrap();
        assert_eq!(neighbour.outcome(), Outcome::Allowed, "{policy}");
        delete(&server, &key);
    }
}

/// A corrupt penalty also fails the question, before anything of it is charged.
#[tokio::test]
async fn a_corrupt_penalty_fails_its_policy_and_is_not_changed() {
    let server = Server::start();
    let policy = Policy::new("login", Limit::gcra(3, DAY)).penalty(Penalty::after(3, DAY, DAY));
    let limiter = limiter(&server, [policy]).await;
    let (key, guarded) = (key_of("login", "penalty2"), key_of("login", "gcra2"));
    for (command, value) in [
        ("SET", ["hello"].as_slice()),
        ("SET", &["7"]),
        ("SET", &["1:2"]),
        ("SET", &["1:2:3:four"]),
        ("SET", &["1::3"]),
        ("SET", &["99999999999999999999:99999999999999999999:5"]),
        ("SET", &["1152921504606846976:2:3"]),
        ("SET", &["4102444800000000:4102444800000001:5"]),
        ("SET", &["4102444800000000:2:31622400000001"]),
        ("SET", &["4102444800000000:2:3:4102444800000001"]),
        ("RPUSH", &["1"]),
        ("HSET", &["a", "b"]),
    ] {
        plant(&server, &key, command, value);
        let before = dump(&server, &key);
        let decision = limiter.check("login", "alice").await.unwrap();
        let failed = Outcome::FailedClosed(StoreErrorKind::CorruptValue);
        assert_eq!(decision.outcome(), failed, "{command} {value:?}");
        assert_eq!(dump(&server, &key), before);
        assert_eq!(dump(&server, &guarded), None);
        delete(&server, &key);
    }
}

/// A log that is not empty for years reaches the bound of its running totals.
#[tokio::test]
async fn sliding_log_totals_wrap_around() {
    let server = Server::start();
    let limit = Limit::sliding_log(10, DAY);
    let limiter = limiter(&server, [Policy::new("log", limit)]).await;
    let _ = limiter.check_cost("log", "alice", 1).await.unwrap();
    let key = server.keys().remove(0);
    let list = |from: i64, to: i64| server.query::<Vec<u64>>(("LRANGE", &key, from, to));
    let [expires, _, at, _] = list(0, -1)[..] else {
        panic!("a log of one entry has four items");
    };
    let last = (1_u64 << 52) - 1;
    let mut replant = redis::pipe();
    replant.cmd("DEL").arg(&key);
    replant
        .cmd("RPUSH")
        .arg(&key)
        .arg(&[expires, last, at, last - 2]);
    replant.cmd("PEXPIRE").arg(&key).arg(60_000);
    let mut connection = redis::Client::open(server.url())
        .unwrap()
        .get_connection()
        .unwrap();
    replant.query::<redis::Value>(&mut connection).unwrap();

    let decision = limiter.check_cost("log", "alice", 2).await.unwrap();
    assert_eq!(decision.remaining(), 6);
    assert_eq!(list(1, 1), [1], "the total began anew");
    let store = server.store().await;
    let back = Action::Credit {
        permits: 2,
        taken_at: Some(Micros::new(at)),
    };
    let algorithm = Algorithm::try_from(&limit).unwrap();
    let given_back = act(&store, "log", algorithm, back).await.unwrap();
    assert_eq!(given_back, Outcome::Allowed);
    assert_eq!(list(1, 1), [last], "the total before it began anew");
    let decision = limiter.check_cost("log", "alice", 3).await.unwrap();
    assert_eq!(decision.remaining(), 5);
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
