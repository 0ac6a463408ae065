//! Policies of a group that are in shadow.

use tower_throttle::store::Action;
use tower_throttle::store::PolicyId;
use tower_throttle::{DAY, Limit, Outcome, StoreErrorKind};

use crate::keys::groups::{group_key, grouped, left, try_ask};
use support::bench::Bench;

#[tokio::test]
async fn in_shadow_a_policy_of_a_group_counts_and_holds_up_nobody() {
    let bench = Bench::redis().await;
    let [a, b] = ["a", "b"].map(grouped);
    let [few, many] = [2, 5].map(|permits| Limit::gcra(permits, DAY));
    for (of_a, of_b) in [(1, 4), (0, 3), (0, 2)] {
        let both = [
            (&a, few, Action::consume(1)),
            (&b, many, Action::consume(1)),
        ];
        let decisions = try_ask(bench.store(), &both, "a").await.unwrap();
        assert!(decisions[1].is_allowed());
        assert_eq!(left(&bench, &a, few).await, of_a);
        assert_eq!(left(&bench, &b, many).await, of_b);
    }
    assert_eq!(bench.server().keys(), [group_key()]);
}

/// Even if policies outside the group stand in between.
#[tokio::test]
async fn a_group_is_written_once_with_any_shadow_policies() {
    let bench = Bench::redis().await;
    let many = Limit::gcra(1_000, DAY);
    let [a, b, d] = ["a", "b", "d"].map(grouped);
    let c = PolicyId::new("c");
    let all = [&a, &b, &c, &d].map(|policy| (policy, many, Action::consume(1)));
    let mut taken = 0;
    for in_shadow in ["a", "d", "ab", "ad", "abd", "abcd", "c", "cd"] {
        // A script that had to be sent to the server is run only once.
        for _ in 0..2 {
            let before = bench.server().calls("set");
            let decisions = try_ask(bench.store(), &all, in_shadow).await.unwrap();
            let written = bench.server().calls("set") - before;
            assert_eq!(written, 2, "the group's key, and that of c: {in_shadow}");
            taken += 1;
            let remaining = decisions.iter().map(|decision| decision.remaining());
            assert_eq!(remaining.collect::<Vec<_>>(), [1_000 - taken; 4]);
            for policy in [&a, &b, &c, &d] {
                assert_eq!(left(&bench, policy, many).await, 1_000 - taken);
            }
        }
    }
    assert_eq!(bench.stored(), 2);
}

/// A check in shadow counts by itself, and if it is denied it is not written with the others.
#[tokio::test]
async fn a_group_in_shadow_keeps_what_fits_and_nothing_else() {
    let bench = Bench::redis().await;
    let [few, many] = [Limit::sliding_window(1, DAY), Limit::gcra(9, DAY)];
    let [a, b, c] = ["a", "b", "c"].map(grouped);
    for (in_shadow, of_a, of_b, of_c) in [("ab", 0, 8, 8), ("ab", 0, 7, 7), ("abc", 0, 6, 6)] {
        let all = [(&a, few), (&b, many), (&c, many)];
        let all = all.map(|(policy, limit)| (policy, limit, Action::consume(1)));
        try_ask(bench.store(), &all, in_shadow).await.unwrap();
        assert_eq!(left(&bench, &a, few).await, of_a);
        assert_eq!(left(&bench, &b, many).await, of_b);
        assert_eq!(left(&bench, &c, many).await, of_c);
    }
    // Denied by an enforced policy, so none of them is charged.
    let one = Limit::gcra(1, DAY);
    let c = grouped("other");
    for _ in 0..3 {
        let all = [
            (&b, many, Action::consume(1)),
            (&c, one, Action::consume(1)),
        ];
        try_ask(bench.store(), &all, "b").await.unwrap();
    }
    assert_eq!(left(&bench, &b, many).await, 5);
}

#[tokio::test]
async fn on_a_full_server_each_shadow_of_a_group_fails_alone() {
    let bench = Bench::redis().await;
    let limit = Limit::gcra(9, DAY);
    let own = PolicyId::new("own");
    let [a, b] = ["a", "b"].map(grouped);
    bench.server().set_full(true);
    // The enforced policy only looks.
    let take = Action::consume(1);
    let all = [
        (&a, limit, take),
        (&own, limit, Action::look()),
        (&b, limit, take),
    ];
    let found = try_ask(bench.store(), &all, "ab").await.unwrap();
    let refused = Outcome::FailedOpen(StoreErrorKind::Full);
    let outcomes: Vec<_> = found.iter().map(|decision| decision.outcome()).collect();
    assert_eq!(outcomes, [refused, Outcome::Allowed, refused]);
    assert_eq!(bench.server().keys(), [""; 0]);
    bench.server().set_full(false);
    try_ask(bench.store(), &all, "ab").await.unwrap();
    assert_eq!(bench.server().keys(), [group_key()]);
}
