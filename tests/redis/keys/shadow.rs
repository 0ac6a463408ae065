//! A failure of a check in shadow concerns that check alone.

use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Decisions, PolicyId};
use tower_throttle::{
    DAY, Limit, Micros, Outcome, Penalty, RedisStore, StoreError, StoreErrorKind,
};

use crate::keys::LIMITS;
use crate::keys::corrupt::{cases, delete, dump, key_of, plant};
use support::asking::{answer_of, check_of};
use support::redis::Server;
use support::rights::user_with;

const FOREIGN: Outcome = Outcome::FailedOpen(StoreErrorKind::CorruptValue);
const NOT_PERMITTED: Outcome = Outcome::FailedOpen(StoreErrorKind::Configuration);
const REFUSED: Outcome = Outcome::FailedOpen(StoreErrorKind::Busy);
const FULL: Outcome = Outcome::FailedOpen(StoreErrorKind::Full);

/// One permit for Alice under each of these policies, all in shadow except "own".
async fn ask(store: &RedisStore, asked: &[(&str, Algorithm)]) -> Result<Decisions, StoreError> {
    let policies: Vec<_> = asked.iter().map(|(name, _)| PolicyId::new(name)).collect();
    let checks: Vec<_> = asked
        .iter()
        .zip(&policies)
        .map(|((name, algorithm), policy)| {
            check_of(policy, "alice", *algorithm, Action::acquire(1)).in_shadow(*name != "own")
        })
        .collect();
    answer_of(store, &checks).await
}

fn outcomes(answer: Result<Decisions, StoreError>) -> Result<Vec<Outcome>, StoreErrorKind> {
    match answer {
        Ok(decisions) => Ok(decisions
            .iter()
            .map(|decision| decision.outcome())
            .collect()),
        Err(error) => Err(error.kind()),
    }
}

fn algorithm(limit: Limit) -> Algorithm {
    Algorithm::try_from(&limit).unwrap()
}

#[tokio::test]
async fn a_corrupt_value_fails_no_other_check_and_stays() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let own = ("own", algorithm(Limit::fixed_window(1_000_000, DAY)));
    let mut taken = 0;
    for (policy, command, value) in cases() {
        let (_, layout, limit) = LIMITS
            .into_iter()
            .find(|(name, _, _)| *name == policy)
            .unwrap();
        let key = key_of(policy, layout);
        plant(&server, &key, command, value);
        let before = dump(&server, &key);
        let shadow = (policy, algorithm(limit));
        for asked in [&[own, shadow][..], &[shadow, own], &[shadow]] {
            let case = format!("{policy} {command} {value:?}");
            let decisions = ask(&store, asked).await.expect(&case);
            for ((name, _), decision) in asked.iter().zip(decisions.iter()) {
                if *name == "own" {
                    taken += 1;
                    assert_eq!(decision.remaining(), 1_000_000 - taken, "{case}");
                    assert_eq!(decision.outcome(), Outcome::Allowed, "{case}");
                } else {
                    assert_eq!(decision.outcome(), FOREIGN, "{case}");
                }
            }
            assert_eq!(dump(&server, &key), before, "{case}");
        }
        delete(&server, &key);
    }
    assert!(taken > 100, "only {taken} cases");
}

/// As without shadows: nobody is let in whose limit is unknown.
#[tokio::test]
async fn a_corrupt_enforced_value_fails_all_beside_it_uncounted() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let of_windows = algorithm(Limit::fixed_window(3, DAY));
    let [own, shadow] = ["own", "shadow"].map(|policy| (policy, of_windows));
    let key = key_of("own", "fixed_window2");
    plant(&server, &key, "SET", &["hello"]);
    let before = dump(&server, &key);
    for asked in [[own, shadow], [shadow, own]] {
        let found = outcomes(ask(&store, &asked).await);
        assert_eq!(found, Err(StoreErrorKind::CorruptValue));
    }
    assert_eq!(dump(&server, &key), before);
    assert_eq!(dump(&server, &key_of("shadow", "fixed_window2")), None);
    delete(&server, &key);
}

/// A corrupt value counts neither as a denial for the penalty nor as a ban.
#[tokio::test]
async fn of_policy_and_penalty_a_corrupt_one_leaves_the_other_at_work() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let own = ("own", algorithm(Limit::gcra(100, DAY)));
    let guarded = ("login", algorithm(Limit::gcra(2, DAY)));
    let penalty = Algorithm::try_from(&Penalty::after(1, DAY, DAY)).unwrap();
    let asked = [own, guarded, ("login", penalty)];
    let [of_policy, of_penalty] = ["gcra2", "penalty2"].map(|layout| key_of("login", layout));

    plant(&server, &of_policy, "HSET", &["a", "b"]);
    let found = outcomes(ask(&store, &asked).await).unwrap();
    assert_eq!(found, [Outcome::Allowed, FOREIGN, Outcome::Allowed]);
    assert_eq!(dump(&server, &of_penalty), None, "no denial was counted");
    delete(&server, &of_policy);

    plant(&server, &of_penalty, "HSET", &["a", "b"]);
    for guarded in [Outcome::Allowed, Outcome::Allowed, Outcome::Denied] {
        let found = outcomes(ask(&store, &asked).await).unwrap();
        assert_eq!(found, [Outcome::Allowed, guarded, FOREIGN]);
    }
    delete(&server, &of_penalty);
}

/// What is unknown is neither room under the whole limit nor a denial.
#[tokio::test]
async fn a_corrupt_shadow_rate_leaves_other_rate_and_penalty_alone() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let (login, alice) = (PolicyId::new("login"), "alice");
    let daily = login.with_extra_rate(Micros::from(DAY));
    // Logs have a key for each rate.
    let limit = Limit::sliding_log(5, DAY);
    let penalty = Penalty::after(1, DAY, DAY);
    let take = Action::acquire(1);
    let asked = [
        check_of(&login, alice, &limit, take).in_shadow(true),
        check_of(&daily, alice, &limit, take).in_shadow(true),
        check_of(&login, alice, &penalty, take).in_shadow(true),
    ];
    assert!(answer_of(&store, &asked).await.unwrap().all_allow());
    let keys = server.keys();
    assert_eq!(keys.len(), 2, "one of each rate: {keys:?}");
    server.query::<i64>(("DEL", &keys));
    for corrupt in &keys {
        plant(&server, corrupt, "HSET", &["a", "b"]);
        let found = outcomes(answer_of(&store, &asked).await).unwrap();
        let failed = found.iter().filter(|outcome| **outcome == FOREIGN).count();
        assert_eq!(failed, 1, "{found:?}");
        assert_eq!(server.keys(), [corrupt.as_str()]);
        delete(&server, corrupt);
    }
}

#[tokio::test]
async fn a_missing_right_to_write_in_shadow_fails_its_check_alone() {
    let server = Server::start();
    // Everything that gcra needs, and that reading a log needs.
    let rights =
        "~throttle:* +eval +evalsha +time +get +mget +exists +set +incrby +del +llen +lindex";
    let url = user_with(&server, rights.split(' '));
    let store = RedisStore::builder(&url).connect_lazy().unwrap();
    let own = ("own", algorithm(Limit::gcra(3, DAY)));
    let log = ("log", algorithm(Limit::sliding_log(3, DAY)));
    for left in [2, 1] {
        let decisions = ask(&store, &[log, own]).await.unwrap();
        assert_eq!(decisions[0].outcome(), NOT_PERMITTED);
        assert_eq!(decisions[1].remaining(), left);
    }
    let alone = outcomes(ask(&store, &[log, log]).await);
    assert_eq!(alone, Err(StoreErrorKind::Configuration));
}

#[tokio::test]
async fn a_former_master_fails_what_is_in_shadow_alone() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let [own, login] = ["own", "login"].map(PolicyId::new);
    let limit = algorithm(Limit::gcra(3, DAY));
    let checks = [
        check_of(&own, "alice", limit, Action::look()),
        check_of(&login, "alice", limit, Action::acquire(1)).in_shadow(true),
    ];
    // A replica of a master that does not exist.
    server.query::<()>(("REPLICAOF", "127.0.0.1", "1"));
    let found = outcomes(answer_of(&store, &checks).await);
    assert_eq!(found, Ok(vec![Outcome::Allowed, REFUSED]));
}

#[tokio::test]
async fn a_server_at_its_memory_bound_still_denies() {
    let server = Server::start();
    let store = server.store().await.without_deny_cache();
    let own = ("own", algorithm(Limit::gcra(1, DAY)));
    let login = ("login", algorithm(Limit::gcra(1, DAY)));
    let penalty = Algorithm::try_from(&Penalty::after(3, DAY, DAY)).unwrap();
    let asked = [own, login, ("login", penalty)];
    assert!(ask(&store, &asked).await.unwrap().all_allow());
    server.set_full(true);
    let found = outcomes(ask(&store, &asked).await).unwrap();
    assert_eq!(found, [Outcome::Denied, Outcome::Denied, FULL]);
    // If all are in shadow, this one is treated like all others.
    let alone = outcomes(ask(&store, &asked[1..]).await);
    assert_eq!(alone, Err(StoreErrorKind::Full));
}
