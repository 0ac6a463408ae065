//! Random histories.

use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use tower_throttle::store::{Algorithm, LeaseId, Wait};
use tower_throttle::{DAY, HOUR, Limit, MINUTE, Micros, Penalty, Rate, SECOND};

use support::history::{Act, History, POLICIES, Step, Time};

const STEPS: usize = 50;

/// The largest limit.
const MOST: u64 = 999_999_999_999_999;

/// Numbers of every magnitude.
fn magnitudes() -> impl Strategy<Value = u64> {
    (0_u64..50, any::<u64>())
        .prop_map(|(bits, number)| ((1 << bits) + number % (1 << bits)).min(MOST))
}

fn limits() -> BoxedStrategy<Limit> {
    let period = prop_oneof![
        Just(Duration::from_millis(1)),
        Just(Duration::from_micros(7_001)),
        Just(SECOND),
        Just(7 * SECOND),
        Just(MINUTE),
        Just(DAY),
        Just(366 * DAY),
    ];
    let permits = prop_oneof![
        6 => 1_u64..=12,
        2 => prop_oneof![Just(300_000), Just(999_983), Just(10_000_000)],
        1 => Just(MOST),
        1 => magnitudes(),
    ];
    let most = prop::option::of(prop_oneof![4 => 1_u64..=12, 1 => Just(1_000)]);
    let slices = prop_oneof![Just(1), Just(2), Just(3), Just(10), Just(60)];
    let many_kinds = if cfg!(feature = "calendar") { 14 } else { 11 };
    (0..many_kinds, permits, period, most, slices, 0..9_u8)
        .prop_map(|(algorithm, permits, period, most, slices, calendar)| {
            let rate = Rate::new(permits, period);
            let capacity = most.unwrap_or(permits);
            let limit = match algorithm {
                0 => Limit::fixed_window(permits, period),
                1 => Limit::fixed_window(permits, period).aligned(),
                2 => Limit::sliding_log(permits, period),
                3 => Limit::sliding_counter(permits, period),
                4 | 5 => Limit::sliding_window(permits, period).slices(slices),
                6 => Limit::token_bucket(capacity, rate),
                7 => Limit::leaky_bucket(capacity, rate),
                8 => Limit::leaky_bucket(capacity, rate).without_delay(),
                9 => Limit::concurrency(permits).lease(period),
                11.. => by_calendar(permits, calendar),
                _ => Limit::gcra(permits, period).burst(capacity),
            };
            // A bucket that takes centuries to fill is no valid limit, nor is too high a rate.
            let other = Limit::sliding_counter(permits, period);
            Algorithm::try_from(&limit).map_or(other, |_| limit)
        })
        .boxed()
}

/// Of calendars whose boundaries are close together, as those of processes with other time-zone data,
/// and of others.
#[cfg(feature = "calendar")]
fn by_calendar(permits: u64, calendar: u8) -> Limit {
    use tower_throttle::{Calendar, Weekday};

    let zone = |calendar: Calendar, name| calendar.zone(name).unwrap();
    let calendar = match calendar {
        0 => Calendar::day(),
        1 => zone(Calendar::day(), "Europe/Berlin"),
        2 => zone(Calendar::day(), "Europe/London"),
        3 => zone(Calendar::day(), "Pacific/Auckland"),
        4 => Calendar::week(),
        5 => zone(Calendar::week().first_day(Weekday::Sunday), "Europe/Lisbon"),
        6 => Calendar::month(),
        7 => zone(Calendar::month(), "Europe/Berlin"),
        _ => zone(Calendar::month().anchor(31), "America/New_York"),
    };
    Limit::calendar(permits, calendar)
}

#[cfg(not(feature = "calendar"))]
fn by_calendar(permits: u64, _: u8) -> Limit {
    Limit::fixed_window(permits, DAY)
}

fn penalties() -> impl Strategy<Value = Option<Penalty>> {
    let time = prop_oneof![
        Just(Duration::from_millis(1)),
        Just(SECOND),
        Just(MINUTE),
        Just(DAY),
    ];
    let penalty =
        (1_u32..4, time.clone(), time, 0_u32..4).prop_map(|(denials, within, ban, doublings)| {
            let penalty = Penalty::after(denials, within, ban);
            match doublings {
                0 => penalty,
                // Not a power of two, so that the last doubling is cut short.
                _ => penalty.doubling_up_to(ban * 3 * doublings),
            }
        });
    prop::option::weighted(0.3, penalty)
}

/// Actions that take permits, and those that give them back: no question has both.
fn acts() -> [BoxedStrategy<Act>; 2] {
    let cost = prop_oneof![
        1 => Just(0),
        8 => Just(1),
        3 => 2_u64..=12,
        1 => 1_u64..400_000,
        1 => Just(MOST),
        1 => Just(u64::MAX),
        1 => magnitudes(),
        1 => (0_u64..50).prop_map(|bit| 1 << bit),
    ];
    let longest = prop_oneof![
        (0_u64..3_000_000).prop_map(Micros::new),
        Just(Micros::from(DAY)),
        Just(Micros::new(u64::MAX)),
    ];
    let wait = prop_oneof![
        3 => Just(Wait::None),
        1 => longest.clone().prop_map(Wait::Strict),
        1 => longest.clone().prop_map(Wait::Burst),
    ];
    let id = (1_u64..8).prop_map(|id| LeaseId::from(NonZeroU64::new(id).unwrap()));
    let take = (
        cost.clone(),
        wait,
        prop::option::weighted(0.8, id.clone()),
        any::<bool>(),
        prop::bool::weighted(0.3),
    )
        .prop_map(|(cost, wait, lease, is_final, takes_fewer)| Act::Acquire {
            cost,
            wait,
            lease,
            is_final,
            takes_fewer,
        });
    let takes = prop_oneof![10 => take, 1 => cost.clone().prop_map(Act::Charge)];
    let gives_back = prop_oneof![
        2 => cost.clone().prop_map(Act::Charge),
        3 => (cost.clone(), any::<bool>())
            .prop_map(|(permits, known)| Act::Credit { permits, known }),
        2 => cost.clone().prop_map(Act::Refund),
        1 => cost.clone().prop_map(Act::Cancel),
        2 => cost.clone().prop_map(Act::Withdraw),
        2 => (longest, cost).prop_map(|(time, permits)| Act::Hold { time, permits }),
        1 => Just(Act::Reset),
        1 => id.clone().prop_map(Act::Renew),
        2 => id.prop_map(Act::Release),
    ];
    [takes.boxed(), gives_back.boxed()]
}

fn steps() -> impl Strategy<Value = Step> {
    let span = prop_oneof![
        (1_u64..2_000).prop_map(Duration::from_micros),
        (1_u64..3_000_000).prop_map(Duration::from_micros),
        (1_u64..200).prop_map(Duration::from_secs),
        (1_u64..400).prop_map(|days| DAY * days as u32),
        (1_u64..50).prop_map(|hours| HOUR * hours as u32),
    ];
    let time = prop_oneof![
        8 => Just(Time::Stands),
        8 => span.clone().prop_map(Time::On),
        2 => span.prop_map(Time::Back),
        4 => (0_u64..=1).prop_map(|early_us| Time::ToRetry { early_us }),
        1 => (0_u64..=1).prop_map(|early_us| Time::ToReset { early_us }),
    ];
    let change = prop::option::weighted(0.06, (0..POLICIES, limits()));
    let changes = change.prop_map(Vec::from_iter);
    let [take, give_back] = acts().map(|act| {
        let act = prop::option::weighted(0.9, act);
        [act.clone(), act.clone(), act]
    });
    let acts = prop_oneof![2 => take, 1 => give_back];
    // Often about a single policy, like most requests.
    let only = prop::option::weighted(0.4, 0..POLICIES);
    let acts = (acts, only).prop_map(|(mut acts, only)| match only {
        Some(only) => {
            let others = acts.iter_mut().enumerate().filter(|(at, _)| *at != only);
            others.for_each(|(_, act)| *act = None);
            acts
        }
        None => acts.map(|act| act.map(Act::in_full)),
    });
    let shadows = prop_oneof![
        3 => Just([false; POLICIES]),
        3 => any::<[bool; POLICIES]>(),
        1 => Just([true; POLICIES]),
    ];
    (time, changes, 0_u8..2, acts, shadows).prop_map(|(time, changes, key, acts, shadows)| Step {
        time,
        changes,
        keys: [key; POLICIES],
        acts,
        shadows,
    })
}

pub(crate) fn histories() -> impl Strategy<Value = History> {
    (
        [limits(), limits(), limits()],
        [(); POLICIES].map(|()| prop::option::weighted(0.3, limits())),
        [penalties(), penalties(), penalties()],
        any::<[bool; POLICIES]>(),
        prop::collection::vec(steps(), STEPS),
    )
        .prop_map(
            |(limits, extra_rates, penalties, in_group, steps)| History {
                limits,
                extra_rates,
                penalties,
                in_group,
                steps,
            },
        )
}

/// The smallest history that still diverges, and how.
pub(crate) fn shrink<T: ValueTree<Value = History>>(
    mut tree: T,
    mut diverges: impl FnMut(&History) -> Option<String>,
) -> String {
    let mut smallest = String::new();
    loop {
        let history = tree.current();
        let simpler = match diverges(&history) {
            Some(how) => {
                smallest = format!("{how}\n{history:#?}");
                tree.simplify()
            }
            None => tree.complicate(),
        };
        if !simpler {
            return smallest;
        }
    }
}
