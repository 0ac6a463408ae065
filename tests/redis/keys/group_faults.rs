//! A group's key on a server that is full, or that somebody else has overwritten: the effect on its
//! policies, and on all others.

use futures_util::future::join_all;
use tower_throttle::store::Action;
use tower_throttle::{
    BreakerState, DAY, FailureMode, Limit, Limiter, Outcome, Policy, SECOND, StoreErrorKind,
};

use crate::keys::corrupt::{delete, dump, plant};
use crate::keys::groups::{TAKES, group_key, grouped, try_ask};
use support::bench::Bench;
use support::redis::Server;

/// The first of each pair is used up; the other has much left.
const PAIRS: [[Limit; 2]; 3] = [
    [Limit::gcra(2, DAY), Limit::gcra(9, DAY)],
    [Limit::gcra(2, DAY), Limit::fixed_window(9, DAY)],
    [
        Limit::sliding_window(2, DAY),
        Limit::sliding_counter(9, DAY),
    ],
];

#[tokio::test]
async fn a_full_server_still_denies_and_writes_nothing() {
    for [few, many] in PAIRS {
        for take in TAKES {
            let bench = Bench::redis().await;
            // Every question must reach the server.
            let store = bench
                .server()
                .builder()
                .clock_for_tests(bench.clock.clone());
            let store = store.connect().await.unwrap().without_deny_cache();
            let [a, b] = ["a", "b"].map(grouped);
            let all = |action| [(&a, few, action), (&b, many, action)];
            for _ in 0..2 {
                assert!(
                    try_ask(&store, &all(take(1)), "")
                        .await
                        .unwrap()
                        .all_allow()
                );
            }
            bench.server().set_full(true);
            let before = dump(bench.server(), &group_key());
            for _ in 0..3 {
                let denied = try_ask(&store, &all(take(1)), "").await.unwrap();
                let outcomes = denied.iter().map(|decision| decision.outcome());
                let expected = [Outcome::Denied, Outcome::Allowed];
                assert_eq!(outcomes.collect::<Vec<_>>(), expected, "{few:?}");
                assert_eq!(denied[1].remaining(), 7, "{few:?}: as it was before");
                let alone = try_ask(&store, &[(&b, many, take(1))], "").await;
                assert_eq!(alone.unwrap_err(), StoreErrorKind::Full, "{many:?}");
                assert_eq!(dump(bench.server(), &group_key()), before);
            }
            bench.server().set_full(false);
            let looked = try_ask(&store, &all(Action::look()), "").await.unwrap();
            let left = looked.iter().map(|decision| decision.remaining());
            assert_eq!(left.collect::<Vec<_>>(), [0, 7], "{few:?}");
        }
    }
}

/// One policy of each failure mode in a group, and one beside it.
async fn limiter(server: &Server) -> Limiter {
    let limit = Limit::gcra(1_000, DAY);
    let grouped = |name, mode| {
        let policy = Policy::new(name, limit).group("client");
        policy.on_store_failure(mode)
    };
    let policies = [
        grouped("open", FailureMode::Allow),
        grouped("closed", FailureMode::Deny),
        grouped("local", FailureMode::Local { share: 0.5 }),
        Policy::new("beside", limit),
    ];
    let store = server.store().await.without_deny_cache();
    let builder = Limiter::builder(store, policies);
    // On a busy machine an answer may be late.
    builder.timeout(20 * SECOND).build().unwrap()
}

/// Asserts that each policy of the group follows its failure mode for this reason, about Alice.
async fn assert_follow_modes(limiter: &Limiter, why: StoreErrorKind) {
    let check = async |policy| limiter.check(policy, "alice").await.unwrap();
    let open = check("open").await;
    assert_eq!(open.outcome(), Outcome::FailedOpen(why));
    let closed = check("closed").await;
    assert_eq!(closed.outcome(), Outcome::FailedClosed(why));
    assert_eq!(closed.retry_after(), Some(SECOND));
    let local = check("local").await;
    assert!(local.is_local() && local.is_allowed(), "{local:?}");
}

#[tokio::test]
async fn a_take_a_full_server_cannot_write_follows_the_failure_mode() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    server.set_full(true);
    // Far more often than the circuit breaker would tolerate.
    for _ in 0..20 {
        assert_follow_modes(&limiter, StoreErrorKind::Full).await;
    }
    assert_eq!(limiter.breaker_state(), BreakerState::Closed);
    server.set_full(false);
    for policy in ["open", "closed", "local"] {
        let counted = limiter.check(policy, "alice").await.unwrap();
        assert_eq!(counted.remaining(), 999, "{policy}: counted meanwhile");
    }
}

#[tokio::test]
async fn a_corrupt_group_key_fails_only_its_policies_and_subject() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let key = group_key();
    let planted: [(&str, &[&str]); 4] = [
        ("SET", &["hello"]),
        ("SET", &["4102444800000000"]),
        ("RPUSH", &["1"]),
        ("ZADD", &["1", "gcra1:open"]),
    ];
    for (round, (command, value)) in (1..).zip(planted) {
        plant(&server, &key, command, value);
        let before = dump(&server, &key);
        // All in flight together, so that they share what can be shared.
        let others = (0..50).map(async |_| {
            let bob = limiter.check("closed", "bob").await.unwrap();
            let beside = limiter.check("beside", "alice").await.unwrap();
            [bob.outcome(), beside.outcome()]
        });
        let alice = (0..20).map(|_| assert_follow_modes(&limiter, StoreErrorKind::CorruptValue));
        let (others, _) = tokio::join!(join_all(others), join_all(alice));
        assert_eq!(others, [[Outcome::Allowed; 2]; 50], "{command} {value:?}");
        assert_eq!(limiter.breaker_state(), BreakerState::Closed);
        assert_eq!(dump(&server, &key), before, "{command} {value:?}");
        delete(&server, &key);
        for (policy, subject) in [("closed", "bob"), ("beside", "alice")] {
            let left = limiter.peek(policy, subject).await.unwrap().remaining();
            assert_eq!(left, 1_000 - 50 * round, "{policy}");
        }
    }
}
