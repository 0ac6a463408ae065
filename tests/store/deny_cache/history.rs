//! The same random histories of one process through a store, with and without remembered denials.
//!
//! `HISTORIES` sets how many histories are run, 1 000 by default, and a tenth of that on Redis.

use std::array::from_fn;
use std::time::Duration;

use proptest::prelude::*;
use tower_throttle::store::{Action, Wait};
use tower_throttle::store::{Check, Decisions, DenyCache, Store};
use tower_throttle::{
    Clock as _, Decision, Limit, MINUTE, ManualClock, MemoryStore, Micros, Outcome, Penalty, Rate,
    SECOND,
};

use super::facts_of_denial;
use support::bench::answer;
use support::drawn::drawn;
use support::history::{Act, Course, History, POLICIES, Step, Time, is_penalty, receipts};
use support::redis::Server;

/// What limits a policy, whatever the number of permits.
#[derive(Clone, Copy, Debug)]
struct Kind {
    number: u8,
    period: Duration,
    /// More permits in a longer time.
    has_further_rate: bool,
}

impl Kind {
    fn limit(self, permits: u64) -> Limit {
        self.limit_in(self.period, permits)
    }

    fn extra_rate(self, permits: u64) -> Option<Limit> {
        let is_there = self.has_further_rate;
        is_there.then(|| self.limit_in(3 * self.period, permits + 2))
    }

    fn limit_in(self, period: Duration, permits: u64) -> Limit {
        let rate = Rate::new(permits, period);
        match self.number {
            0 => Limit::gcra(permits, period),
            1 => Limit::token_bucket(permits, rate),
            2 => Limit::leaky_bucket(permits, rate),
            3 => Limit::leaky_bucket(permits, rate).without_delay(),
            4 => Limit::fixed_window(permits, period),
            5 => Limit::fixed_window(permits, period).aligned(),
            6 => Limit::sliding_log(permits, period),
            7 => Limit::sliding_window(permits, period),
            8 => Limit::sliding_counter(permits, period),
            _ => Limit::concurrency(permits).lease(period),
        }
    }
}

fn kinds() -> impl Strategy<Value = Kind> {
    let period = prop_oneof![
        Just(Duration::from_micros(70_001)),
        Just(SECOND),
        Just(7 * SECOND),
        Just(MINUTE),
    ];
    let kind = (0_u8..10, period, prop::bool::weighted(0.3));
    kind.prop_map(|(number, period, has_further_rate)| Kind {
        number,
        period,
        has_further_rate,
    })
}

fn histories() -> impl Strategy<Value = History> {
    let penalty = (1_u32..4, 1_u32..9).prop_map(|(denials, secs)| {
        Penalty::after(denials, MINUTE, secs * SECOND).doubling_up_to(MINUTE)
    });
    let penalty = prop::option::weighted(0.2, penalty);
    let shadows = prop_oneof![
        3 => Just([false; POLICIES]),
        3 => any::<[bool; POLICIES]>(),
        1 => Just([true; POLICIES]),
    ];
    let kinds_and_shadows = ([(); POLICIES].map(|()| kinds()), shadows);
    let steps = kinds_and_shadows.prop_flat_map(|(kinds, shadows)| {
        let steps = prop::collection::vec(steps(kinds, shadows), 80);
        (Just(kinds), Just(shadows), steps)
    });
    (
        steps,
        [1_u64..8, 1..8, 1..8],
        [penalty.clone(), penalty.clone(), penalty],
        any::<[bool; POLICIES]>(),
    )
        .prop_map(
            |((kinds, shadows, steps), permits, mut penalties, in_group)| {
                if shadows.contains(&false) {
                    // A penalty in shadow does not hear of every denial beside enforced policies.
                    for policy in (0..POLICIES).filter(|policy| shadows[*policy]) {
                        penalties[policy] = None;
                    }
                }
                History {
                    limits: from_fn(|policy| kinds[policy].limit(permits[policy])),
                    extra_rates: from_fn(|policy| kinds[policy].extra_rate(permits[policy])),
                    penalties,
                    in_group,
                    steps,
                }
            },
        )
}

fn steps(kinds: [Kind; POLICIES], shadows: [bool; POLICIES]) -> impl Strategy<Value = Step> {
    let short = (1_u64..400_000).prop_map(Duration::from_micros);
    let long = (1_u64..20_000_000).prop_map(Duration::from_micros);
    // A denial by the store may repair what a clock that was ahead has left, and one from memory does
    // not. So it steps back by far less than a window; a counter may be repaired even then.
    let has_counter = kinds.iter().any(|kind| kind.number == 8);
    let back = short.clone().prop_map(move |span| match has_counter {
        true => Time::Stands,
        false => Time::Back(span / 100),
    });
    let time = prop_oneof![
        6 => Just(Time::Stands),
        6 => short.clone().prop_map(Time::On),
        1 => long.prop_map(Time::On),
        1 => back,
        3 => (0_u64..=1).prop_map(|early_us| Time::ToRetry { early_us }),
    ];
    let longest = (0_u64..3_000_000).prop_map(Micros::new);
    let wait = prop_oneof![
        4 => Just(Wait::None),
        1 => longest.clone().prop_map(Wait::Strict),
        1 => longest.prop_map(Wait::Burst),
    ];
    let cost = prop_oneof![1 => Just(0_u64), 8 => Just(1), 4 => 2_u64..9];
    // Most are plain, and have scripts of their own.
    let is_plain = prop::bool::weighted(0.6);
    let take = (cost.clone(), wait, is_plain, prop::bool::weighted(0.3));
    let take = take.prop_map(|(cost, wait, is_final, takes_fewer)| {
        let wait = if is_final { Wait::None } else { wait };
        Act::Acquire {
            cost,
            wait,
            lease: None,
            is_final,
            takes_fewer,
        }
    });
    let credit = |permits| Act::Credit {
        permits,
        known: false,
    };
    let gives_back = prop_oneof![
        cost.clone().prop_map(Act::Charge),
        cost.clone().prop_map(credit),
        cost.clone().prop_map(Act::Refund),
        cost.prop_map(Act::Cancel),
        Just(Act::Reset),
    ];
    let [take, gives_back] = [take.boxed(), gives_back.boxed()].map(|act| {
        let act = prop::option::weighted(0.6, act);
        [act.clone(), act.clone(), act]
    });
    let change = prop::option::weighted(0.04, (0..POLICIES, 1_u64..8));
    let changes = change.prop_map(move |change| {
        let of_both = change.map(|(policy, permits)| {
            let kind = kinds[policy];
            let further = kind.extra_rate(permits);
            let further = further.map(|limit| (POLICIES + policy, limit));
            [Some((policy, kind.limit(permits))), further]
        });
        of_both.into_iter().flatten().flatten().collect()
    });
    let key = 0_u8..2;
    (
        time,
        changes,
        [key.clone(), key.clone(), key],
        prop_oneof![8 => take, 1 => gives_back],
    )
        .prop_map(move |(time, changes, keys, acts)| Step {
            time,
            changes,
            keys,
            acts: match acts.iter().flatten().count() {
                1 => acts,
                _ => acts.map(|act| act.map(Act::in_full)),
            },
            shadows,
        })
}

/// Runs a history on both. The error is the first step on which they disagree.
async fn run(
    history: &History,
    clock: &ManualClock,
    plain: &impl Store,
    cached: &impl Store,
    number: u64,
) -> Result<(), String> {
    // Later than the first instant, before which no step goes back.
    clock.set(ManualClock::new().now().saturating_add(SECOND.into()));
    let mut course = Course::of(history);
    let mut last: Option<Decisions> = None;
    for (position, step) in history.steps.iter().enumerate() {
        step.time.pass(clock, last.as_ref());
        course.change(step);
        let mut checks = course.checks(step, number);
        if checks.is_empty() {
            continue;
        }
        // As a limiter asks.
        for check in checks.iter_mut().filter(|check| is_penalty(check)) {
            if let Action::Acquire(take) = check.action {
                check.action = Action::acquire(take.cost.min(1));
            }
        }
        let expected = answer(plain.ask(&checks)).await;
        let found = answer(cached.ask(&checks)).await;
        if let Err(how) = agree(&checks, &expected, &found) {
            return Err(format!(
                "{how}: step {position} at {:?}\n{checks:#?}\nplain: {expected:#?}\n\
                 cached: {found:#?}",
                clock.now()
            ));
        }
        if allow(&checks, &expected) {
            let taken = receipts(&checks, &expected);
            course.answered(&taken);
        }
        last = Some(expected);
    }
    Ok(())
}

/// Whether all enforced checks are allowed.
fn allow(checks: &[Check<'_>], decisions: &Decisions) -> bool {
    let mut each = checks.iter().zip(decisions.iter());
    each.all(|(check, decision)| check.is_shadow || decision.is_allowed())
}

/// Compares results and waits with the store's, and everything else that is documented as exact.
fn agree(checks: &[Check<'_>], expected: &Decisions, found: &Decisions) -> Result<(), String> {
    let is_allowed = allow(checks, found);
    if is_allowed != allow(checks, expected) || found.len() != expected.len() {
        return Err("another verdict".to_owned());
    }
    let is_remembered = found.iter().any(Decision::is_remembered);
    if !is_remembered && found != expected {
        return Err("another answer of the store".to_owned());
    }
    for ((check, expected), found) in checks.iter().zip(expected.iter()).zip(found.iter()) {
        let name = check.algorithm.name();
        let is_debt = ["gcra", "token_bucket", "leaky_bucket"].contains(&name);
        let as_it_was = match found.outcome() {
            Outcome::Allowed => !is_debt,
            _ => name.starts_with("sliding"),
        };
        match found.outcome() {
            Outcome::NotAsked => continue,
            outcome if outcome != expected.outcome() => return Err(format!("{name}: outcome")),
            Outcome::Denied | Outcome::Banned
                if (found.delay(), found.reset_after())
                    != (expected.delay(), expected.reset_after())
                    || found.retry_after() > expected.retry_after() =>
            {
                return Err(format!("{name}: wait"));
            }
            // A sliding limit may be known to deny a smaller cost, for less time.
            Outcome::Denied | Outcome::Banned
                if found.retry_after() < expected.retry_after()
                    && !(name.starts_with("sliding") && check.action.acquires() > 1) =>
            {
                return Err(format!("{name}: too short a wait"));
            }
            _ if !as_it_was && facts_of_denial(found) != facts_of_denial(expected) => {
                return Err(format!("{name}: decision"));
            }
            _ if as_it_was && found.remaining() > expected.remaining() => {
                return Err(format!("{name}: more than remains"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn wanted() -> u64 {
    std::env::var("HISTORIES").map_or(1_000, |histories| {
        histories.parse().expect("HISTORIES must be a number")
    })
}

/// Runs this many histories.
async fn compare(
    histories_wanted: u64,
    mut stores: impl AsyncFnMut(&History, u64) -> Result<(), String>,
) {
    for (number, history) in (0..histories_wanted).zip(drawn(histories())) {
        if let Err(how) = stores(&history, number).await {
            panic!("history {number}: {how}");
        }
    }
}

#[tokio::test]
async fn remembered_denials_are_those_that_the_store_would_give() {
    let clock = ManualClock::new();
    let mut hits = 0;
    for age in [SECOND, 1_000 * SECOND] {
        compare(wanted() / 2, async |history, number| {
            let store = || MemoryStore::builder().clock(clock.clone()).build();
            let cached = DenyCache::new(store()).max_age(age);
            let cached = cached.clock_for_tests(clock.clone());
            let told = run(history, &clock, &store(), &cached, number).await;
            hits += cached.hits();
            told
        })
        .await;
    }
    assert!(hits > wanted(), "only {hits} answers came from memory");
}

#[tokio::test]
async fn redis_denies_alike_with_and_without_memory() {
    let (server, clock) = (Server::start(), ManualClock::new());
    let store = async |prefix: &str| {
        let store = server.builder().clock_for_tests(clock.clone());
        store.prefix(prefix).connect().await.unwrap()
    };
    let plain = store("plain").await.without_deny_cache();
    let cached = store("cached").await;
    compare(wanted() / 10, async |history, number| {
        run(history, &clock, &plain, &cached, number).await
    })
    .await;
    let hits = cached.deny_cache_hits();
    assert!(hits > wanted() / 10, "only {hits} answers came from memory");
}
