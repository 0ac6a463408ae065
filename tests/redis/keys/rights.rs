//! The rights that the documentation names.

use tower_throttle::store::PolicyId;
use tower_throttle::store::{Acquire, Action, Algorithm, LeaseId, Wait};
use tower_throttle::{DAY, Limit, Micros, Penalty, RedisStore, StoreErrorKind};

use crate::keys::LIMITS;
use support::asking::{check_of, pending_answer_of};
use support::redis::Server;
use support::rights::{documented_rights, set_right, user_with};
use support::until::until;

/// A store of a user with exactly these rights.
fn store_with(server: &Server, rights: impl IntoIterator<Item = &'static str>) -> RedisStore {
    RedisStore::builder(&user_with(server, rights))
        .connect_lazy()
        .unwrap()
}

/// Every action of every algorithm: with one command too few, it fails.
#[tokio::test]
async fn the_documented_rights_suffice_for_every_action() {
    let server = Server::start();
    let store = store_with(&server, documented_rights());
    let penalty = Algorithm::try_from(&Penalty::after(1, DAY, DAY)).unwrap();
    let policy = PolicyId::new("policy");
    let (first, second) = (LeaseId::new(), LeaseId::new());
    let take = |lease| {
        Action::Acquire(
            Acquire::new(2)
                .with_wait(Wait::Burst(Micros::from(DAY)))
                .with_lease(lease),
        )
    };
    let credit = Action::Credit {
        permits: 2,
        taken_at: None,
    };
    for (name, _, limit) in LIMITS {
        let check = |algorithm, action| check_of(&policy, name, algorithm, action);
        let algorithm = Algorithm::try_from(&limit).unwrap();
        for action in [
            take(first),
            take(second),
            Action::Charge(3),
            Action::Renew(first),
            credit,
            Action::Release(first),
            credit,
            Action::Charge(1),
            Action::Reset,
        ] {
            // A penalty stands behind checks that ask, and is forgotten with them.
            let guards = matches!(action, Action::Acquire(_) | Action::Reset);
            let mut checks = vec![check(algorithm, action)];
            checks.extend(guards.then(|| check(penalty, action)));
            let answer = pending_answer_of(&store, &checks);
            let answer = answer.await;
            assert!(answer.is_ok(), "{name} {action:?}: {answer:?}");
        }
    }
    assert_eq!(server.keys(), [""; 0]);
}

/// The connection, and what finds out whether it works, need none besides.
#[tokio::test]
async fn the_documented_rights_suffice_after_any_idle_time() {
    let server = Server::start();
    let store = store_with(&server, documented_rights()).without_deny_cache();
    let policy = PolicyId::new("policy");
    for _ in 0..2 {
        let check = check_of(
            &policy,
            "alice",
            &Limit::gcra(1_000, DAY),
            Action::acquire(1),
        );
        assert!(pending_answer_of(&store, &[check]).await.is_ok());
        tokio::time::pause();
        tokio::time::advance(DAY).await;
        tokio::time::resume();
    }
    // EVAL for a script that is not known yet, and for the probe.
    until("it is probed", async || server.calls("eval") >= 2).await;
    let refused: Vec<redis::Value> = server.query(("ACL", "LOG"));
    assert!(refused.is_empty(), "{refused:?}");
}

/// It may run scripts, but not their commands.
#[tokio::test]
async fn a_missing_right_is_a_configuration_error() {
    let server = Server::start();
    let all_but_one = documented_rights()
        .into_iter()
        .filter(|right| *right != "+zadd");
    let store = store_with(&server, all_but_one);
    let policy = PolicyId::new("policy");
    let answer = pending_answer_of(
        &store,
        &[check_of(
            &policy,
            "alice",
            &Limit::concurrency(1),
            Action::acquire(1),
        )],
    );
    let kind = answer.await.unwrap_err().kind();
    assert_eq!(kind, StoreErrorKind::Configuration);
}

/// Whatever command of a script is refused, existing and new keys are read again as soon as the
/// right is back.
#[tokio::test]
async fn a_right_missing_for_a_while_leaves_no_unreadable_key() {
    let server = Server::start();
    let store = store_with(&server, documented_rights()).without_deny_cache();
    let policy = PolicyId::new("policy");
    let take = async |subject: &str, limit: &Limit| {
        let check = check_of(&policy, subject, limit, Action::acquire(1));
        let answer = pending_answer_of(&store, &[check]).await;
        answer.map_err(|error| error.kind())
    };
    let commands: Vec<_> = documented_rights()
        .into_iter()
        .filter_map(|right| right.strip_prefix('+'))
        .collect();
    let mut refused = 0;
    for command in commands {
        for (name, _, limit) in LIMITS {
            let [known, new] = ["known", "new"].map(|age| format!("{age} {name} {command}"));
            assert!(take(&known, &limit).await.is_ok());
            set_right(&server, &format!("-{command}"));
            for subject in [&known, &new, &known, &new] {
                refused += usize::from(take(subject, &limit).await.is_err());
            }
            set_right(&server, &format!("+{command}"));
            for subject in [&known, &new] {
                let answer = take(subject, &limit).await;
                assert!(answer.is_ok(), "{subject}: {answer:?}");
            }
        }
    }
    assert!(refused > 50, "{refused}");
}
