//! What is remembered of checks in shadow, and what it answers.

use tower_throttle::store::Decisions;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{DAY, HOUR, Limit, MINUTE, Outcome, Penalty};

use super::Bench;
use support::bench::{Done, answer, ask_in_shadow};

const TAKE: Action = Action::acquire(1);

async fn ask(bench: &Bench, asked: &[Done<'_>]) -> Decisions {
    let is_shadow = |policy: &str| policy.starts_with("shadow");
    answer(ask_in_shadow(&bench.cache, asked, is_shadow)).await
}

fn limit(permits: u64) -> Algorithm {
    Algorithm::try_from(&Limit::gcra(permits, DAY)).unwrap()
}

#[tokio::test]
async fn a_known_denial_in_shadow_denies_no_other_check() {
    let bench = Bench::new();
    let both = [
        ("shadow", limit(1), "alice", TAKE),
        ("wide", limit(20), "alice", TAKE),
    ];
    let asked = async {
        for request in 0..20 {
            let decisions = ask(&bench, &both).await;
            assert_eq!(decisions[0].is_allowed(), request == 0);
            assert!(decisions[1].is_allowed());
        }
    };
    assert_eq!(bench.trips(asked).await, 20, "each is counted");
    let denied = ask(&bench, &both).await;
    assert!(!denied[1].is_allowed());
}

#[tokio::test]
async fn a_shadow_question_that_changes_nothing_comes_from_memory() {
    let bench = Bench::new();
    let both = [
        ("shadow", limit(1), "alice", TAKE),
        ("shadow too", limit(3), "alice", TAKE),
    ];
    let both = async |trips: usize, allowed: [bool; 2]| {
        let asked = async {
            let decisions = ask(&bench, &both).await;
            let found = [0, 1].map(|position: usize| decisions[position].is_allowed());
            assert_eq!(found, allowed);
        };
        assert_eq!(bench.trips(asked).await, trips, "{allowed:?}");
    };
    both(1, [true, true]).await;
    // One of them still counts.
    both(1, [false, true]).await;
    both(1, [false, true]).await;
    both(1, [false, false]).await;
    both(0, [false, false]).await;
}

#[tokio::test]
async fn a_shadow_penalty_counts_denials_of_a_lone_policy() {
    let bench = Bench::new();
    let penalty = Algorithm::try_from(&Penalty::after(10, HOUR, MINUTE)).unwrap();
    let login = [
        ("shadow", limit(1), "eve", TAKE),
        ("shadow", penalty, "eve", TAKE),
    ];
    for _ in 0..11 {
        let decisions = ask(&bench, &login).await;
        assert!(decisions[1].is_allowed());
    }
    let banned = async |trips: usize| {
        let asked = async {
            let decisions = ask(&bench, &login).await;
            assert_eq!(decisions[1].outcome(), Outcome::Banned);
        };
        assert_eq!(bench.trips(asked).await, trips);
    };
    banned(1).await;
    banned(0).await;
}

#[tokio::test]
async fn a_remembered_denial_answers_the_checks_in_shadow_too() {
    let bench = Bench::new();
    let penalty = Algorithm::try_from(&Penalty::after(10, HOUR, MINUTE)).unwrap();
    let asked = |key| {
        [
            ("narrow", limit(1), "alice", TAKE),
            ("shadow", limit(1), key, TAKE),
            ("shadow", penalty, key, TAKE),
            // It never fits.
            ("shadow too", limit(3), key, Action::acquire(4)),
        ]
    };
    ask(&bench, &asked("us")).await;
    assert!(!ask(&bench, &asked("us")).await[0].is_allowed());
    let known = async {
        for (key, of_the_last) in [("us", Outcome::NeverFits), ("them", Outcome::NotAsked)] {
            let decisions = ask(&bench, &asked(key)).await;
            assert_eq!(decisions[0].outcome(), Outcome::Denied);
            assert_eq!(decisions[2].outcome(), Outcome::NotAsked);
            assert_eq!(decisions[3].outcome(), of_the_last);
            assert!(decisions.iter().all(|decision| decision.is_remembered()));
        }
    };
    assert_eq!(bench.trips(known).await, 0);
}
