//! Values in this crate's form, with numbers that it never writes.

use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use tower_throttle::store::PolicyId;
use tower_throttle::store::{Action, Algorithm, LeaseId};
use tower_throttle::{
    BreakerState, DAY, Limit, MINUTE, Penalty, RedisStore, SECOND, StoreErrorKind,
};

use crate::keys::corrupt::{key_of, plant};
use crate::keys::groups::{entry, group_key, grouped, id_of, plant_record};
use crate::keys::{LIMITS, NINETY, limiter};
use support::asking::{answer_of, check_of};
use support::drawn::drawn;
use support::redis::Server;

/// Numbers around which something changes.
fn numbers() -> impl Strategy<Value = String> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = since_epoch.as_micros() as i128;
    let (ninety, day) = (NINETY.as_micros() as i128, DAY.as_micros() as i128);
    let near_now = [
        -day,
        -2 * ninety,
        -ninety,
        -1_000_000,
        0,
        1_000_000,
        ninety,
        2 * ninety,
    ];
    let near_now = near_now.map(|from_now| (now + from_now).to_string());
    let others = [
        "0",
        "1",
        "2",
        "5",
        "90000000",
        "4294967295",
        "4294967296",
        "999999999999999",
        "1000000000000000",
        "31622400000000",
        "4102444800000000",
        "7999999999999999",
        "9007199254740991",
        "9007199254740992",
        "1152921504606846976",
        "99999999999999999999",
        "inf",
        "-inf",
        "nan",
        "-1",
        "-5",
        "1.5",
        "1e20",
        "-1e20",
    ];
    let others = others.map(str::to_owned);
    prop_oneof![
        prop::sample::select(near_now.to_vec()),
        prop::sample::select(others.to_vec()),
    ]
}

/// The command and its arguments after the key: as the algorithm writes it, apart from the numbers.
fn planted(layout: &str) -> BoxedStrategy<(&'static str, Vec<String>)> {
    let many = |numbers_each| prop::collection::vec(numbers(), numbers_each);
    match layout {
        "sliding_log2" => many(3..9).prop_map(|list| ("RPUSH", list)).boxed(),
        "concurrency2" => many(1..6)
            .prop_map(|scores| {
                let members = ["held", "1", "=1", "2", "=2"];
                let scores = scores.into_iter().filter(|score| score != "nan");
                let pairs = scores.zip(members);
                let pairs = pairs.flat_map(|(score, member)| [score, member.to_owned()]);
                ("ZADD", pairs.collect::<Vec<_>>())
            })
            .prop_filter("nothing", |(_, pairs)| !pairs.is_empty())
            .boxed(),
        _ => many(1..8)
            .prop_map(|parts| ("SET", vec![parts.join(":")]))
            .boxed(),
    }
}

fn actions() -> impl Strategy<Value = Action> {
    let lease = || LeaseId::from(std::num::NonZeroU64::MIN);
    let credit = |permits| Action::Credit {
        permits,
        taken_at: None,
    };
    prop_oneof![
        Just(Action::look()),
        (1_u64..6).prop_map(Action::acquire),
        (1_u64..6).prop_map(Action::consume),
        (1_u64..6).prop_map(Action::Charge),
        (1_u64..6).prop_map(credit),
        Just(Action::Renew(lease())),
        Just(Action::Release(lease())),
    ]
}

/// How the store fails, if it does.
async fn act(
    store: &RedisStore,
    policy: &PolicyId,
    done: &[(Algorithm, Action)],
) -> Option<StoreErrorKind> {
    let checks = done
        .iter()
        .map(|(algorithm, action)| check_of(policy, "alice", *algorithm, *action));
    let answer = answer_of(store, &checks.collect::<Vec<_>>()).await;
    answer.err().map(|error| error.kind())
}

/// Nothing of this crate's is kept for longer.
const LONGEST_MS: i64 = (1 << 53) / 1_000;

/// Unless it is gone.
fn assert_expires(server: &Server, key: &str, case: &str) {
    const IS_GONE: i64 = -2;
    let pttl: i64 = server.query(("PTTL", key));
    let expires = pttl == IS_GONE || (0..=LONGEST_MS).contains(&pttl);
    assert!(expires, "{case}: expires in {pttl} ms");
}

const CASES: usize = 150;

/// A sample of these.
fn some<T: std::fmt::Debug>(of: impl Strategy<Value = T>) -> Vec<T> {
    drawn(of).take(CASES).collect()
}

/// It is either read as this crate's or reported as corrupt: every answer is understood, and
/// everything written expires.
#[tokio::test]
async fn any_value_of_a_key_is_read_or_reported_as_corrupt() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    for (name, layout, limit) in LIMITS {
        let (key, policy) = (key_of(name, layout), PolicyId::new(name));
        let algorithm = Algorithm::try_from(&limit).unwrap();
        let actions = prop::collection::vec(actions(), 3);
        for ((command, value), actions) in some((planted(layout), actions)) {
            server.query::<i64>(("DEL", &key));
            let value: Vec<_> = value.iter().map(String::as_str).collect();
            plant(&server, &key, command, &value);
            server.query::<i64>(("PEXPIRE", &key, 60_000));
            for action in actions {
                let case = format!("{name} {command} {value:?} {action:?}");
                let failure = act(&store, &policy, &[(algorithm, action)]).await;
                let is_known = matches!(failure, None | Some(StoreErrorKind::CorruptValue));
                assert!(is_known, "{case}: {failure:?}");
                assert_expires(&server, &key, &case);
            }
        }
    }
}

#[tokio::test]
async fn any_value_of_a_penaltys_key_is_read_or_reported_as_corrupt() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let (key, policy) = (key_of("login", "penalty2"), PolicyId::new("login"));
    let denied = Algorithm::try_from(&Limit::gcra(1, DAY)).unwrap();
    let penalty = Penalty::after(2, MINUTE, MINUTE).doubling_up_to(DAY);
    let penalty = Algorithm::try_from(&penalty).unwrap();
    for (command, value) in some(planted("penalty2")) {
        plant(&server, &key, command, &[&value[0]]);
        server.query::<i64>(("PEXPIRE", &key, 60_000));
        for cost in [0, 2, 2, 2] {
            let take = Action::acquire(cost);
            let failure = act(&store, &policy, &[(denied, take), (penalty, take)]).await;
            let is_known = matches!(failure, None | Some(StoreErrorKind::CorruptValue));
            assert!(is_known, "{value:?}: {failure:?}");
            assert_expires(&server, &key, &value[0]);
        }
    }
}

/// Also in a record, which is written anew.
#[tokio::test]
async fn any_entry_of_a_record_is_read_or_reported_as_corrupt() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let [policy, neighbour] = ["api", "neighbour"].map(grouped);
    let limit = Algorithm::try_from(&Limit::gcra(7, SECOND)).unwrap();
    let id = id_of(&server, &store, &policy).await;
    let entries = (any::<u32>(), numbers(), prop::collection::vec(actions(), 3));
    for (fraction, us, actions) in some(entries) {
        let record = entry(id, fraction, us.parse().unwrap_or(u64::MAX));
        plant_record(&server, &group_key(), &record);
        for action in actions {
            let case = format!("{us} {fraction} {action:?}");
            for policy in [&policy, &neighbour] {
                for action in [action, Action::consume(1)] {
                    let failure = act(&store, policy, &[(limit, action)]).await;
                    let is_known = matches!(failure, None | Some(StoreErrorKind::CorruptValue));
                    assert!(is_known, "{case}: {failure:?}");
                    assert_expires(&server, &group_key(), &case);
                }
            }
        }
    }
}

#[tokio::test]
async fn no_value_opens_the_circuit_breaker_for_others() {
    let server = Server::start();
    let policies = crate::keys::policies();
    let limiter = limiter(&server, policies).await;
    for (name, command, value) in crate::keys::corrupt::cases() {
        let (_, layout, _) = LIMITS.into_iter().find(|(each, ..)| *each == name).unwrap();
        let key = key_of(name, layout);
        plant(&server, &key, command, value);
        for _ in 0..8 {
            let decision = limiter.check(name, "alice").await.unwrap();
            let failure = decision.store_failure();
            assert_eq!(
                failure,
                Some(StoreErrorKind::CorruptValue),
                "{name} {value:?}"
            );
        }
        assert_eq!(
            limiter.breaker_state(),
            BreakerState::Closed,
            "{name} {value:?}"
        );
        crate::keys::corrupt::delete(&server, &key);
    }
}
