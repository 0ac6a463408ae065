//! Final takes, which have scripts of their own: alone, together, of several keys, of several
//! states in one.

use std::iter::repeat_n;
use std::time::Duration;

use futures_util::future::join_all;
use proptest::prelude::*;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Check, Decisions, PolicyId};
use tower_throttle::{
    Clock as _, FailureMode, HOUR, Key, Limit, ManualClock, Micros, Rate, SECOND, Subject,
};

use super::{Algorithms, Timed, answer, wanted};
use support::asking::GO_ALONE;
use support::drawn::drawn;
use support::history::Time;
use support::redis::Server;

/// The last of them share a trip.
const SUBJECTS: usize = GO_ALONE + 6;

/// A policy's limit, apart from its algorithm: permits a second, and how many at once.
type Pace = (u64, u64);

#[derive(Clone, Debug)]
struct Taking {
    algorithms: [u8; 2],
    paces: [Pace; 2],
    in_group: [bool; 2],
    steps: Vec<Step>,
}

#[derive(Clone, Debug)]
struct Step {
    time: Time,
    change: Option<(usize, Pace)>,
    /// What is taken under each policy.
    costs: [Option<u64>; 2],
    shadows: [bool; 2],
    /// Whether the first policy has a second rate.
    has_second_rate: bool,
    /// How often each subject asks, all at once.
    times: usize,
    is_charge: bool,
}

/// Never back, so nothing is forgotten meanwhile.
fn times() -> impl Strategy<Value = Time> {
    let span = prop_oneof![
        (1_u64..2_000).prop_map(Duration::from_micros),
        (1_u64..3_000_000).prop_map(Duration::from_micros),
        (1_u64..200).prop_map(Duration::from_secs),
    ];
    prop_oneof![
        8 => Just(Time::Stands),
        8 => span.prop_map(Time::On),
        4 => (0_u64..=1).prop_map(|early_us| Time::ToRetry { early_us }),
        2 => (0_u64..=1).prop_map(|early_us| Time::ToReset { early_us }),
    ]
}

fn takings() -> impl Strategy<Value = Taking> {
    // A microsecond each, a fraction of one, and longer than a second.
    let permits = prop_oneof![Just(1_000_000_u64), Just(300_000), Just(4), Just(1)];
    let pace = (permits, 1_u64..9);
    let step = (
        times(),
        prop::option::weighted(0.1, (0_usize..2, pace.clone())),
        [(); 2].map(|()| prop::option::weighted(0.7, 1_u64..4)),
        prop_oneof![3 => Just([false; 2]), 1 => any::<[bool; 2]>()],
        prop::bool::weighted(0.2),
        1_usize..4,
        prop::bool::weighted(0.1),
    );
    let step = step.prop_map(
        |(time, change, costs, shadows, has_second_rate, times, is_charge)| Step {
            time,
            change,
            costs,
            shadows,
            has_second_rate,
            times,
            is_charge,
        },
    );
    let steps = prop::collection::vec(step, 20);
    let each = ([0_u8..3, 0..3], [pace.clone(), pace], any::<[bool; 2]>());
    (each, steps).prop_map(|((algorithms, paces, in_group), steps)| Taking {
        algorithms,
        paces,
        in_group,
        steps,
    })
}

fn algorithm_of(algorithm: u8, (permits, burst): Pace) -> Algorithm {
    let rate = Rate::new(permits, SECOND);
    let limit = match algorithm {
        0 => Limit::gcra(permits, SECOND).burst(burst),
        1 => Limit::token_bucket(burst, rate),
        _ => Limit::leaky_bucket(burst, rate).without_delay(),
    };
    Algorithm::try_from(&limit).unwrap()
}

/// A history while it runs.
struct Course<'a> {
    taking: &'a Taking,
    /// The first policy, its second rate, the second policy.
    policies: [PolicyId; 3],
    paces: [Pace; 2],
    subjects: [Subject; SUBJECTS],
}

impl<'a> Course<'a> {
    fn of(taking: &'a Taking, number: u64) -> Self {
        let policy = |at: usize| match (PolicyId::new(["a", "b"][at]), taking.in_group[at]) {
            (policy, true) => policy.in_group("g"),
            (policy, false) => policy,
        };
        let subject = |at| Subject::from(&Key::all([number, at as u64].map(Key::from)));
        Self {
            taking,
            policies: [policy(0), policy(0).with_extra_rate(HOUR.into()), policy(1)],
            paces: taking.paces,
            subjects: std::array::from_fn(subject),
        }
    }

    fn check(&self, place: usize, subject: usize, action: Action, is_shadow: bool) -> Check<'_> {
        let at = place / 2;
        let algorithm = self.taking.algorithms[at];
        Check::new(
            &self.policies[place],
            self.subjects[subject],
            match place {
                1 => algorithm_of(algorithm, (2, 12)),
                _ => algorithm_of(algorithm, self.paces[at]),
            },
            action,
        )
        .in_shadow(is_shadow)
        .with_failure_mode(FailureMode::Deny)
    }

    /// What a subject asks; the subjects ask for different amounts.
    fn asked(&self, step: &Step, subject: usize) -> Vec<Check<'_>> {
        let places = (0..3).filter(|place| *place != 1 || step.has_second_rate);
        let checks = places.filter_map(|place| {
            let permits = step.costs[place / 2]? + u64::from(subject.is_multiple_of(3));
            let action = match step.is_charge {
                true => Action::Charge(permits),
                false => Action::consume(permits),
            };
            Some(self.check(place, subject, action, step.shadows[place / 2]))
        });
        checks.collect()
    }

    /// Each key of a subject, and how long until the last of its states is untouched.
    fn keys(
        &self,
        subject: usize,
        algorithms: &mut Algorithms,
        now: Micros,
    ) -> Vec<(String, Duration)> {
        let mut keys: Vec<(String, Duration)> = Vec::new();
        for place in 0..3 {
            let look = self.check(place, subject, Action::look(), false);
            let reset = algorithms.ask(&[look], now)[0].reset_after();
            let subject = self.subjects[subject];
            let key = match (self.taking.in_group[place / 2], place) {
                (true, _) => format!("throttle:group2:{{{subject}}}:g"),
                (false, place) => {
                    let (name, policy) = (look.algorithm.name(), look.policy.name());
                    let rate = if place == 1 { "+3600s" } else { "" };
                    format!("throttle:{name}2{rate}:{{{subject}}}:{policy}")
                }
            };
            match keys.iter_mut().find(|(known, _)| *known == key) {
                Some((_, latest)) => *latest = reset.max(*latest),
                None => keys.push((key, reset)),
            }
        }
        keys
    }
}

/// The milliseconds left of each of these keys, and the instants (in milliseconds) between which
/// they were read.
fn left_of(server: &Server, keys: &[String]) -> ([i64; 2], Vec<i64>) {
    let script = "local function now()
            local clock = redis.call('TIME')
            return clock[1] * 1000 + math.floor(clock[2] / 1000)
        end
        local told = { now() }
        for i, key in ipairs(KEYS) do told[i + 1] = redis.call('PTTL', key) end
        told[#told + 1] = now()
        return told";
    let told: Vec<i64> = server.query(("EVAL", script, keys.len(), keys));
    match &told[..] {
        [before, left @ .., after] => ([*before, *after], left.to_vec()),
        _ => panic!("two instants: {told:?}"),
    }
}

/// In the second in which the last of a key's states is untouched, and not before.
fn assert_expiry(server: &Server, keys: Vec<(String, Duration)>, now: Micros) {
    let (keys, resets): (Vec<_>, Vec<_>) = keys
        .into_iter()
        .filter(|(_, reset)| *reset > Duration::ZERO)
        .unzip();
    let ([before, after], left) = left_of(server, &keys);
    for ((key, reset), left) in keys.iter().zip(resets).zip(left) {
        let until = now.saturating_add(reset.into()).ceil_millis() as i64;
        let case = || format!("{key}: {before}..={after} + {left}, {until}");
        // Only the millisecond of the expiry is known.
        assert!(after + left + 1 >= until, "{}", case());
        assert!(before + left <= until + 1_000, "{}", case());
    }
}

async fn tell(taking: &Taking, number: u64, timed: &Timed, server: &Server) {
    let clock = &timed.clock;
    clock.set(ManualClock::new().now());
    let mut algorithms = Algorithms::default();
    let mut course = Course::of(taking, number);
    let mut last: Option<Decisions> = None;
    for (position, step) in taking.steps.iter().enumerate() {
        step.time.pass(clock, last.as_ref());
        let now = clock.now();
        if let Some((policy, pace)) = step.change {
            course.paces[policy] = pace;
        }
        if step.costs == [None; 2] {
            continue;
        }
        let asked = (0..SUBJECTS).map(|subject| course.asked(step, subject));
        let asked: Vec<_> = asked.collect();
        let each = || asked.iter().flat_map(|checks| repeat_n(checks, step.times));
        let expected: Vec<_> = each().map(|checks| algorithms.ask(checks, now)).collect();
        let found = join_all(each().map(|checks| answer(&timed.store, checks))).await;
        // Of those who ask for the same, any may have come first.
        let sorted = |decisions: &[Decisions]| {
            let mut texts: Vec<_> = decisions.iter().map(|told| format!("{told:?}")).collect();
            texts.sort_unstable();
            texts
        };
        let answers = expected.chunks(step.times).zip(found.chunks(step.times));
        for (subject, (expected, found)) in answers.enumerate() {
            let case = || format!("step {position}, subject {subject} of {taking:#?}");
            assert_eq!(sorted(found), sorted(expected), "{}", case());
        }
        let keys = (0..SUBJECTS).flat_map(|subject| course.keys(subject, &mut algorithms, now));
        assert_expiry(server, keys.collect(), now);
        last = Some(expected[0].clone());
    }
}

#[test]
fn final_takes_are_answered_as_specified_and_expire_when_paid() {
    let (runtime, server, timed) = Timed::alone();
    for (number, taking) in (0..wanted().div_ceil(50)).zip(drawn(takings())) {
        runtime.block_on(tell(&taking, number, &timed, &server));
    }
}
