//! Permits of several policies at once, and what becomes of them: settled, cancelled or dropped.

use tower_throttle::{CheckError, Denied, Limit, Limiter, MINUTE, Permit};

use crate::operations::limiter_of;
use support::bench::Bench;
use support::limits::in_time;
use support::on_every_store;

on_every_store! {
    all_policies_admit_or_nothing_is_acquired
    what_is_settled_last_is_used_in_place_of_what_was_charged
    what_cannot_be_settled_is_an_error_and_changes_nothing
    asking_twice_about_one_key_is_an_error_naming_the_policy
    a_permit_that_is_cancelled_gives_everything_back
    a_permit_that_is_dropped_gives_back_its_places_alone
}

/// Each with ten permits.
const NAMES: [&str; 3] = ["org", "tokens", "places"];

fn limiter(bench: &Bench) -> Limiter {
    let [org, tokens, places] = NAMES;
    let limits = [
        (org, Limit::gcra(10, MINUTE)),
        (tokens, Limit::fixed_window(10, MINUTE)),
        (places, Limit::concurrency(10)),
    ];
    limiter_of(bench, limits)
}

/// Asks each policy for as many permits, about a key of its own.
async fn ask(limiter: &Limiter, costs: [u64; 3]) -> Result<Permit, Denied> {
    let asked = [0, 1, 2].map(|at| (NAMES[at], format!("of {}", NAMES[at]), costs[at]));
    limiter.admit_all(asked).await
}

/// What each has left, once nothing is on its way back.
async fn left(limiter: &Limiter) -> [u64; 3] {
    assert!(limiter.flush().await);
    let mut left = [0; 3];
    for (left, name) in left.iter_mut().zip(NAMES) {
        let looked = limiter.peek(name, format!("of {name}")).await.unwrap();
        *left = looked.remaining();
    }
    left
}

async fn all_policies_admit_or_nothing_is_acquired(bench: &Bench) {
    let limiter = limiter(bench);
    let permit = ask(&limiter, [1, 6, 4]).await.unwrap();
    let each = permit.verdict().iter();
    let told: Vec<_> = each.map(|(name, it)| (name, it.remaining())).collect();
    assert_eq!(told, [("org", 9), ("tokens", 4), ("places", 6)]);
    for (costs, by) in [
        ([10, 1, 1], "org"),
        ([1, 5, 1], "tokens"),
        ([1, 1, 7], "places"),
        // The longest wait: for ten, three seconds more than for six, and the window's end.
        ([10, 5, 1], "tokens"),
    ] {
        // A deny cache knows by the second time.
        for _ in 0..2 {
            let denied = ask(&limiter, costs).await.unwrap_err();
            assert_eq!(denied.policy(), by, "{costs:?}");
            assert_eq!(denied.error(), None);
            let verdict = denied.verdict().unwrap();
            assert_eq!(verdict.get(by), denied.decision());
            let names: Vec<_> = verdict.iter().map(|(name, _)| name).collect();
            assert_eq!(names, NAMES);
            assert_eq!(left(&limiter).await, [9, 4, 6], "{costs:?}");
        }
    }
    assert!(ask(&limiter, [9, 4, 6]).await.is_ok());
}

async fn what_is_settled_last_is_used_in_place_of_what_was_charged(bench: &Bench) {
    for (name, limit) in in_time(10, MINUTE) {
        let limiter = limiter_of(bench, [(name, limit)]);
        let mut permit = limiter.admit_all([(name, "alice", 4)]).await.unwrap();
        for (actual, left) in [(4, 6), (7, 3), (2, 8), (25, 0), (0, 10), (5, 5)] {
            permit.settle(name, actual).unwrap();
            assert!(limiter.flush().await);
            let looked = limiter.peek(name, "alice").await.unwrap();
            assert_eq!(looked.remaining(), left, "{name}: {actual}");
        }
        drop(permit);
        assert!(limiter.flush().await);
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_eq!(looked.remaining(), 5, "{name}: dropped");
    }
}

async fn what_cannot_be_settled_is_an_error_and_changes_nothing(bench: &Bench) {
    let limiter = limiter(bench);
    let asked = [("tokens", "of tokens", 4), ("places", "of places", 3)];
    let mut permit = limiter.admit_all(asked).await.unwrap();
    // There is a policy of the second name, which was not asked.
    for name in ["tokes", "org"].map(str::to_owned) {
        let refused = permit.settle(&name, 1);
        assert_eq!(refused, Err(CheckError::UnknownPolicy { name }));
    }
    let name = "places".to_owned();
    let refused = permit.settle("places", 1);
    assert_eq!(refused, Err(CheckError::CannotSettle { name }));
    assert_eq!(left(&limiter).await, [10, 6, 7]);
}

async fn asking_twice_about_one_key_is_an_error_naming_the_policy(bench: &Bench) {
    let limiter = limiter(bench);
    let twice = [
        ("org", "of org", 1),
        ("tokens", "of tokens", 1),
        ("tokens", "of tokens", 2),
    ];
    let denied = limiter.admit_all(twice).await.unwrap_err();
    let name = "tokens".to_owned();
    assert_eq!(denied.error(), Some(&CheckError::AskedTwice { name }));
    assert_eq!(denied.policy(), "tokens");
    assert_eq!((denied.decision(), denied.verdict()), (None, None));
    assert_eq!(left(&limiter).await, [10; 3]);

    let two_keys = [("tokens", "of tokens", 1), ("tokens", "of others", 2)];
    assert!(limiter.admit_all(two_keys).await.is_ok());
    assert_eq!(left(&limiter).await, [10, 9, 10]);
}

async fn a_permit_that_is_cancelled_gives_everything_back(bench: &Bench) {
    let limiter = limiter(bench);
    ask(&limiter, [1, 2, 3]).await.unwrap().cancel();
    assert_eq!(left(&limiter).await, [10; 3]);
    let mut settled = ask(&limiter, [1, 2, 3]).await.unwrap();
    settled.settle("tokens", 7).unwrap();
    settled.cancel();
    assert_eq!(left(&limiter).await, [10; 3]);
}

async fn a_permit_that_is_dropped_gives_back_its_places_alone(bench: &Bench) {
    let limiter = limiter(bench);
    let permit = ask(&limiter, [1, 2, 3]).await.unwrap();
    assert_eq!(left(&limiter).await, [9, 8, 7]);
    drop(permit);
    assert_eq!(left(&limiter).await, [9, 8, 10]);
}
