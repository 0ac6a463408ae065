//! The list of the most denied subjects, as an operator reads it.
#![cfg(feature = "memory")]

use std::time::Duration;

use futures_util::FutureExt as _;
use tower_throttle::{
    AlwaysDeny, DAY, FailureMode, Limit, Limiter, MINUTE, ManualClock, MemoryStore, Mode, Policy,
    Subject, TopDenied, TopEntry,
};

use support::http_store::{TestStore, Trip};

const HALF_LIFE: Duration = MINUTE;

fn top(capacity: usize, clock: &ManualClock) -> TopDenied {
    let builder = TopDenied::builder(capacity).half_life(HALF_LIFE);
    builder.clock(clock.clone()).build()
}

/// Denies everything that any of these policies is asked.
fn denying(top: &TopDenied, policies: &[&str]) -> Limiter {
    let policies = policies.iter();
    Limiter::builder(
        AlwaysDeny::new(MINUTE),
        policies.map(|name| Policy::new(*name, Limit::gcra(1, MINUTE))),
    )
    .observe(top.clone())
    .build()
    .unwrap()
}

fn check(limiter: &Limiter, policy: &str, user: &str, times: usize) {
    for _ in 0..times {
        let _ = limiter.check(policy, user).now_or_never().unwrap().unwrap();
    }
}

fn seen(entry: &TopEntry) -> (&str, Subject, u64) {
    (&entry.policy, entry.subject, entry.denials)
}

#[test]
fn the_worst_comes_first_with_its_policy_and_its_hash() {
    let clock = ManualClock::new();
    let top = top(10, &clock);
    let limiter = denying(&top, &["api", "login"]);
    check(&limiter, "api", "alice", 3);
    check(&limiter, "login", "mallory", 7);
    check(&limiter, "api", "mallory", 5);
    let [alice, mallory] = ["alice", "mallory"].map(|user| limiter.subject_of(user));
    let list = top.list();
    let list: Vec<_> = list.iter().map(seen).collect();
    assert_eq!(
        list,
        [
            ("login", mallory, 7),
            ("api", mallory, 5),
            ("api", alice, 3)
        ]
    );
}

#[test]
fn a_hash_is_found_by_hashing_suspects_with_the_same_secret() {
    let top = TopDenied::new(10);
    let limiter = Limiter::builder(
        AlwaysDeny::new(MINUTE),
        [Policy::new("api", Limit::gcra(1, MINUTE))],
    )
    .key_secret("open sesame")
    .observe(top.clone())
    .build()
    .unwrap();
    check(&limiter, "api", "mallory", 1);
    let found = top.list()[0].subject;
    let suspects = ["alice", "bob", "mallory"];
    let is_it = |suspect: &&&str| limiter.subject_of(**suspect) == found;
    assert_eq!(suspects.iter().find(is_it), Some(&"mallory"));
    let without_secret = Subject::from(&tower_throttle::Key::from("mallory"));
    assert_ne!(found, without_secret);
}

#[test]
fn only_denials_count_and_those_in_shadow_count_apart() {
    let top = TopDenied::new(10);
    let limiter = Limiter::builder(
        MemoryStore::new(),
        [
            Policy::new("api", Limit::sliding_log(2, MINUTE)),
            Policy::new("trial", Limit::sliding_log(1, MINUTE)).mode(Mode::Shadow),
        ],
    )
    .observe(top.clone())
    .build()
    .unwrap();
    check(&limiter, "api", "alice", 2);
    check(&limiter, "trial", "alice", 1);
    assert_eq!(top.list().len(), 0);
    check(&limiter, "api", "alice", 2);
    check(&limiter, "trial", "alice", 3);
    let list = top.list();
    let list = list
        .iter()
        .map(|entry| (&*entry.policy, entry.denials, entry.mode));
    let list: Vec<_> = list.collect();
    assert_eq!(
        list,
        [("trial", 3, Mode::Shadow), ("api", 2, Mode::Enforce)]
    );
}

#[test]
fn refusals_for_lack_of_an_answer_count_for_no_subject() {
    let top = TopDenied::new(10);
    let limiter = Limiter::builder(
        TestStore::new(Trip::Fails),
        [Policy::new("api", Limit::gcra(1, MINUTE)).on_store_failure(FailureMode::Deny)],
    )
    .observe(top.clone())
    .build()
    .unwrap();
    check(&limiter, "api", "alice", 3);
    assert_eq!(top.list().len(), 0);
}

#[test]
fn whoever_the_local_share_denies_is_listed_in_an_outage() {
    let top = TopDenied::new(10);
    let local = FailureMode::Local { share: 0.25 };
    let limiter = Limiter::builder(
        TestStore::new(Trip::Fails),
        [Policy::new("api", Limit::fixed_window(4, DAY)).on_store_failure(local)],
    )
    .observe(top.clone())
    .build()
    .unwrap();
    check(&limiter, "api", "mallory", 3);
    let mallory = limiter.subject_of("mallory");
    let list = top.list();
    assert_eq!(
        list.iter().map(seen).collect::<Vec<_>>(),
        [("api", mallory, 2)]
    );
}

#[test]
fn yesterdays_attack_does_not_hide_todays() {
    let clock = ManualClock::new();
    let top = top(10, &clock);
    let limiter = denying(&top, &["api"]);
    check(&limiter, "api", "yesterday", 1_000);
    clock.advance(8 * HALF_LIFE);
    check(&limiter, "api", "today", 5);
    let [yesterday, today] = ["yesterday", "today"].map(|user| limiter.subject_of(user));
    let list = top.list();
    let list: Vec<_> = list.iter().map(seen).collect();
    // 1000 / 2^8 = 3.9.
    assert_eq!(list, [("api", today, 5), ("api", yesterday, 4)]);
}

#[test]
fn entries_that_have_faded_are_gone_without_another_denial() {
    let clock = ManualClock::new();
    let top = top(10, &clock);
    check(&denying(&top, &["api"]), "api", "alice", 4);
    for expected in [Some(2), Some(1), Some(1), None, None] {
        clock.advance(HALF_LIFE);
        // 2, 1, 0.5, 0.25.
        let found = top.list().first().map(|entry| entry.denials);
        assert_eq!(found, expected);
    }
}

#[test]
fn the_time_of_the_latest_denial_is_that_of_the_clock() {
    let clock = ManualClock::new();
    let top = top(10, &clock);
    let limiter = denying(&top, &["api"]);
    check(&limiter, "api", "alice", 1);
    clock.advance(Duration::from_secs(7));
    check(&limiter, "api", "alice", 1);
    let latest = tower_throttle::Clock::now(&clock);
    clock.advance(Duration::from_secs(7));
    assert_eq!(top.list()[0].last_denied, latest);
}

#[test]
fn a_flood_of_subjects_hides_no_heavy_hitter() {
    let clock = ManualClock::new();
    let top = top(20, &clock);
    let limiter = denying(&top, &["api", "login"]);
    check(&limiter, "login", "guesser", 3);
    for flood in 0..5_000 {
        check(&limiter, "api", &format!("made up {flood}"), 1);
        if flood % 10 == 0 {
            check(&limiter, "api", "mallory", 1);
        }
    }
    let list = top.list();
    // 500 of 5500, more than a twentieth; as many may have been taken over from others.
    let mallory = &list[0];
    assert_eq!(mallory.subject, limiter.subject_of("mallory"));
    let range = 500..=500 + 5_500 / 20;
    assert!(range.contains(&mallory.denials), "{mallory:?}");
    assert!(mallory.denials - mallory.overestimate <= 500, "{mallory:?}");
    let guesser = list.iter().find(|entry| &*entry.policy == "login").unwrap();
    assert_eq!((guesser.denials, guesser.overestimate), (3, 0));
    assert!(
        list.len() <= 40,
        "room for 20 of each policy: {}",
        list.len()
    );
}

/// Users subtract one from the other.
#[test]
fn the_denials_of_others_never_exceed_all_denials() {
    let clock = ManualClock::new();
    let top = top(3, &clock);
    let limiter = denying(&top, &["api"]);
    let mut seen = 0;
    for round in 0..200 {
        for user in 0..round % 7 {
            check(&limiter, "api", &format!("{user} of {round}"), round % 5);
        }
        for _ in 0..round % 4 {
            clock.advance(HALF_LIFE);
            for entry in top.list() {
                assert!(entry.overestimate <= entry.denials, "{entry:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 200, "{seen}");
}

#[test]
fn denials_on_many_threads_are_all_counted() {
    let top = TopDenied::new(10);
    let limiter = denying(&top, &["api"]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for turn in 0..1_000 {
                    check(&limiter, "api", ["alice", "bob"][turn % 2], 1);
                }
            });
        }
    });
    let denials: Vec<_> = top.list().iter().map(|entry| entry.denials).collect();
    assert_eq!(denials, [2_000, 2_000]);
}

#[test]
fn no_capacity_is_room_for_one() {
    let top = TopDenied::new(0);
    let limiter = denying(&top, &["api"]);
    check(&limiter, "api", "alice", 1);
    assert_eq!(top.list().len(), 1);
}
