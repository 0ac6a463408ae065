//! The same random histories of one process through a store, with and without remembered denials.
//!
//! `HISTORIES` sets how many histories are run, 1 000 by default, and a tenth of that on Redis.

use std::time::Duration;

use proptest::prelude::*;
use tower_throttle::algorithm::{Action, Algorithm, Patience, Take};
use tower_throttle::{
    Check, Clock as _, Decision, Decisions, DenyCache, Key, Limit, MINUTE, ManualClock,
    MemoryStore, Micros, Outcome, Penalty, PolicyId, Rate, Receipt, SECOND, Store, Subject,
};

use super::support::bench::answer;
use super::support::drawn::drawn;
use super::support::redis::Server;
use super::told_of_denial;

const POLICIES: usize = 3;

#[derive(Clone, Debug)]
struct History {
    kinds: [(u8, Duration); POLICIES],
    permits: [u32; POLICIES],
    /// Which policies have a further rate: more permits in a longer time.
    further_rates: [bool; POLICIES],
    penalties: [Option<Penalty>; POLICIES],
    shadows: [bool; POLICIES],
    /// Which policies are in a group, as far as they can be.
    in_group: [bool; POLICIES],
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    time: Time,
    /// A policy's limit is changed before the step.
    change: Option<(usize, u32)>,
    keys: [u8; POLICIES],
    acts: [Option<Act>; POLICIES],
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Take {
        cost: u32,
        patience: Patience,
        is_final: bool,
    },
    Charge(u32),
    Credit(u32),
    Refund(u32),
    Cancel(u32),
    Reset,
}

#[derive(Clone, Copy, Debug)]
enum Time {
    Stands,
    On(Duration),
    Back(Duration),
    /// To the end of the longest wait, or this much before.
    ToRetry(Duration),
}

fn limit_of((kind, period): (u8, Duration), permits: u32) -> Limit {
    let rate = Rate::new(permits, period);
    match kind {
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

fn histories() -> impl Strategy<Value = History> {
    let period = prop_oneof![
        Just(Duration::from_micros(70_001)),
        Just(SECOND),
        Just(7 * SECOND),
        Just(MINUTE),
    ];
    let kind = (0_u8..10, period);
    let penalty = (1_u32..4, 1_u32..9).prop_map(|(denials, secs)| {
        Penalty::after(denials, MINUTE, secs * SECOND).doubling_up_to(MINUTE)
    });
    let penalty = prop::option::weighted(0.2, penalty);
    (
        [kind.clone(), kind.clone(), kind],
        [1_u32..8, 1..8, 1..8],
        [(); POLICIES].map(|()| prop::bool::weighted(0.3)),
        [penalty.clone(), penalty.clone(), penalty],
        prop_oneof![
            3 => Just([false; POLICIES]),
            3 => any::<[bool; POLICIES]>(),
            1 => Just([true; POLICIES]),
        ],
        any::<[bool; POLICIES]>(),
        prop::collection::vec(steps(), 80),
    )
        .prop_map(
            |(kinds, permits, further_rates, mut penalties, shadows, in_group, steps)| {
                if shadows.contains(&false) {
                    // A penalty in shadow does not hear of every denial beside enforced policies.
                    for policy in (0..POLICIES).filter(|policy| shadows[*policy]) {
                        penalties[policy] = None;
                    }
                }
                History {
                    kinds,
                    permits,
                    further_rates,
                    penalties,
                    shadows,
                    in_group,
                    steps,
                }
            },
        )
}

fn steps() -> impl Strategy<Value = Step> {
    let short = (1_u64..400_000).prop_map(Duration::from_micros);
    let long = (1_u64..20_000_000).prop_map(Duration::from_micros);
    let time = prop_oneof![
        6 => Just(Time::Stands),
        6 => short.clone().prop_map(Time::On),
        1 => long.prop_map(Time::On),
        1 => short.prop_map(Time::Back),
        3 => (0_u64..=1).prop_map(|us| Time::ToRetry(Duration::from_micros(us))),
    ];
    let longest = (0_u64..3_000_000).prop_map(Micros::new);
    let patience = prop_oneof![
        4 => Just(Patience::None),
        1 => longest.clone().prop_map(Patience::UntilItFits),
        1 => longest.prop_map(Patience::UntilPaid),
    ];
    let cost = prop_oneof![1 => Just(0_u32), 8 => Just(1), 4 => 2_u32..9];
    // Most are plain, and have scripts of their own.
    let is_plain = prop::bool::weighted(0.6);
    let take = (cost.clone(), patience, is_plain).prop_map(|(cost, patience, is_final)| {
        let patience = if is_final { Patience::None } else { patience };
        Act::Take {
            cost,
            patience,
            is_final,
        }
    });
    let gives_back = prop_oneof![
        cost.clone().prop_map(Act::Charge),
        cost.clone().prop_map(Act::Credit),
        cost.clone().prop_map(Act::Refund),
        cost.prop_map(Act::Cancel),
        Just(Act::Reset),
    ];
    let [take, gives_back] = [take.boxed(), gives_back.boxed()].map(|act| {
        let act = prop::option::weighted(0.6, act);
        [act.clone(), act.clone(), act]
    });
    let key = 0_u8..2;
    (
        time,
        prop::option::weighted(0.04, (0..POLICIES, 1_u32..8)),
        [key.clone(), key.clone(), key],
        prop_oneof![8 => take, 1 => gives_back],
    )
        .prop_map(|(time, change, keys, acts)| Step {
            time,
            change,
            keys,
            acts,
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
    clock.set(ManualClock::new().now());
    let mut grouped = history.in_group.into_iter();
    let policies = ["a", "b", "c"].map(|name| match grouped.next() {
        Some(true) => PolicyId::new(name).in_group("g"),
        _ => PolicyId::new(name),
    });
    let further_rates = policies.each_ref();
    let further_rates = further_rates.map(|policy| policy.with_further_rate(MINUTE.into()));
    let mut permits = history.permits;
    let mut receipts = [Receipt::default(); 2 * POLICIES];
    let mut last: Option<Decisions> = None;
    for (position, step) in history.steps.iter().enumerate() {
        step.time.pass(clock, last.as_ref());
        if let Some((policy, changed)) = step.change {
            permits[policy] = changed;
        }
        let mut checks = Vec::new();
        let mut takers = Vec::new();
        for (policy, act) in step.acts.iter().enumerate() {
            let Some(act) = act else { continue };
            let key = Key::all([Key::from(number), Key::from(step.keys[policy])]);
            let limit = limit_of(history.kinds[policy], permits[policy]);
            let check = Check::new(
                &policies[policy],
                Subject::from(&key),
                Algorithm::try_from(&limit).unwrap(),
                act.action(receipts[policy]),
            )
            .in_shadow(history.shadows[policy]);
            if check.action.takes() > 0 {
                takers.push((policy, checks.len()));
            }
            checks.push(check);
            if history.further_rates[policy] {
                let (kind, period) = history.kinds[policy];
                let further = limit_of((kind, 3 * period), permits[policy] + 2);
                let rate = POLICIES + policy;
                if check.action.takes() > 0 {
                    takers.push((rate, checks.len()));
                }
                let mut check = check.with_action(act.action(receipts[rate]));
                check.policy = &further_rates[policy];
                check.algorithm = Algorithm::try_from(&further).unwrap();
                checks.push(check);
            }
            let penalty = history.penalties[policy].as_ref();
            let action = match check.action {
                Action::Take(take) => Action::take(take.cost.min(1)),
                action => action,
            };
            let guards = matches!(action, Action::Take(_) | Action::Reset);
            if let Some(penalty) = penalty.filter(|_| guards) {
                let mut check = check.with_action(action);
                check.algorithm = Algorithm::try_from(penalty).unwrap();
                checks.push(check);
            }
        }
        if checks.is_empty() {
            continue;
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
            for (rate, check) in takers {
                receipts[rate] = expected[check].receipt();
            }
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
                    && !(name.starts_with("sliding") && check.action.takes() > 1) =>
            {
                return Err(format!("{name}: too short a wait"));
            }
            _ if !as_it_was && told_of_denial(found) != told_of_denial(expected) => {
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

impl Act {
    fn action(self, last: Receipt) -> Action {
        match self {
            Self::Take {
                cost,
                patience,
                is_final,
            } => {
                let mut take = Take::new(cost).with_patience(patience);
                take.is_final = is_final;
                Action::Take(take)
            }
            Self::Charge(permits) => Action::Charge(permits),
            Self::Credit(permits) => Action::Credit {
                permits,
                taken_at: None,
            },
            Self::Refund(permits) => Action::Refund {
                permits,
                receipt: last,
            },
            Self::Cancel(permits) => Action::Cancel {
                permits,
                receipt: last,
            },
            Self::Reset => Action::Reset,
        }
    }
}

impl Time {
    fn pass(self, clock: &ManualClock, last: Option<&Decisions>) {
        match self {
            Self::Stands => {}
            Self::On(span) => clock.advance(span),
            Self::Back(span) => clock.step_back(span),
            Self::ToRetry(early) => {
                let waits = last.iter().flat_map(|decisions| decisions.iter());
                let waits = waits.filter_map(|decision| decision.retry_after());
                clock.advance(waits.max().unwrap_or_default().saturating_sub(early));
            }
        }
    }
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
