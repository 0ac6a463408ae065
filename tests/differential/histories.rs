//! Random histories: what three policies are asked, and when.

use std::num::NonZeroU64;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use tower_throttle::algorithm::{Action, Algorithm, LeaseId, Patience, Take};
use tower_throttle::{
    Check, Clock as _, DAY, Decision, Decisions, HOUR, Limit, MINUTE, ManualClock, Micros, Penalty,
    PolicyId, Rate, Receipt, SECOND, Subject,
};

const STEPS: usize = 50;
pub(crate) const POLICIES: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct History {
    pub limits: [Limit; POLICIES],
    /// A further rate of each policy's limit, if it has one; of any algorithm, as the store does
    /// not mind.
    pub further_rates: [Option<Limit>; POLICIES],
    /// Each policy's penalty, if it has one.
    pub penalties: [Option<Penalty>; POLICIES],
    /// The policies that are in a group.
    pub in_group: [bool; POLICIES],
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub time: Time,
    /// A policy's limit is replaced before the step.
    pub change: Option<(usize, Limit)>,
    pub key: u8,
    /// The action on each policy that is asked.
    pub acts: [Option<Act>; POLICIES],
    /// The policies that are asked in shadow.
    pub shadows: [bool; POLICIES],
}

/// An action on a policy's permits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Take {
        cost: u32,
        patience: Patience,
        lease: Option<LeaseId>,
        is_final: bool,
    },
    Charge(u32),
    Credit {
        permits: u32,
        /// Whether the time at which they were taken is given: that of the last take.
        known: bool,
    },
    /// Of the last take.
    Refund(u32),
    Cancel(u32),
    Withdraw(u32),
    Reset,
    Renew(LeaseId),
    Release(LeaseId),
}

/// How the clock moves before a step.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    Stands,
    On(Duration),
    Back(Duration),
    /// To the announced end of the last wait, or this much before.
    ToRetry {
        early_us: u64,
    },
    /// To the announced reset of the last step, or this much before.
    ToReset {
        early_us: u64,
    },
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
        6 => 1_u32..=12,
        2 => prop_oneof![Just(300_000), Just(999_983), Just(10_000_000)],
        1 => Just(u32::MAX),
    ];
    let most = prop::option::of(prop_oneof![4 => 1_u32..=12, 1 => Just(1_000)]);
    let slices = prop_oneof![Just(1), Just(2), Just(3), Just(10), Just(60)];
    (0..11, permits, period, most, slices)
        .prop_map(|(algorithm, permits, period, most, slices)| {
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
                _ => Limit::gcra(permits, period).burst(capacity),
            };
            // A bucket that takes centuries to fill is no valid limit.
            Algorithm::try_from(&limit).map_or(Limit::gcra(permits, period), |_| limit)
        })
        .boxed()
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
        3 => 2_u32..=12,
        1 => 1_u32..400_000,
        1 => any::<u32>(),
        1 => (0_u32..32).prop_map(|bit| 1 << bit),
    ];
    let longest = prop_oneof![
        (0_u64..3_000_000).prop_map(Micros::new),
        Just(Micros::from(DAY)),
        Just(Micros::new(u64::MAX)),
    ];
    let patience = prop_oneof![
        3 => Just(Patience::None),
        1 => longest.clone().prop_map(Patience::UntilItFits),
        1 => longest.prop_map(Patience::UntilPaid),
    ];
    let id = (1_u64..8).prop_map(|id| LeaseId::from(NonZeroU64::new(id).unwrap()));
    let take = (
        cost.clone(),
        patience,
        prop::option::weighted(0.8, id.clone()),
        any::<bool>(),
    )
        .prop_map(|(cost, patience, lease, is_final)| Act::Take {
            cost,
            patience,
            lease,
            is_final,
        });
    let takes = prop_oneof![10 => take, 1 => cost.clone().prop_map(Act::Charge)];
    let gives_back = prop_oneof![
        2 => cost.clone().prop_map(Act::Charge),
        3 => (cost.clone(), any::<bool>())
            .prop_map(|(permits, known)| Act::Credit { permits, known }),
        2 => cost.clone().prop_map(Act::Refund),
        1 => cost.clone().prop_map(Act::Cancel),
        2 => cost.prop_map(Act::Withdraw),
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
    ];
    let time = prop_oneof![
        8 => Just(Time::Stands),
        8 => span.clone().prop_map(Time::On),
        1 => span.prop_map(Time::Back),
        4 => (0_u64..=1).prop_map(|early_us| Time::ToRetry { early_us }),
        1 => (0_u64..=1).prop_map(|early_us| Time::ToReset { early_us }),
    ];
    let change = prop::option::weighted(0.06, (0..POLICIES, limits()));
    let [take, give_back] = acts().map(|act| {
        let act = prop::option::weighted(0.9, act);
        [act.clone(), act.clone(), act]
    });
    let acts = prop_oneof![2 => take, 1 => give_back];
    // Often about a single policy, like most requests.
    let only = prop::option::weighted(0.4, 0..POLICIES);
    let acts = (acts, only).prop_map(|(mut acts, only)| {
        if let Some(only) = only {
            let others = acts.iter_mut().enumerate().filter(|(at, _)| *at != only);
            others.for_each(|(_, act)| *act = None);
        }
        acts
    });
    let shadows = prop_oneof![
        3 => Just([false; POLICIES]),
        3 => any::<[bool; POLICIES]>(),
        1 => Just([true; POLICIES]),
    ];
    (time, change, 0_u8..2, acts, shadows).prop_map(|(time, change, key, acts, shadows)| Step {
        time,
        change,
        key,
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
            |(limits, further_rates, penalties, in_group, steps)| History {
                limits,
                further_rates,
                penalties,
                in_group,
                steps,
            },
        )
}

impl History {
    /// Whether several states may share a key.
    pub(crate) fn shares_keys(&self) -> bool {
        self.in_group.contains(&true) || self.further_rates.iter().any(Option::is_some)
    }
}

/// A history while it runs for one subject.
pub(crate) struct Course<'a> {
    history: &'a History,
    policies: [PolicyId; POLICIES],
    further_rates: [PolicyId; POLICIES],
    limits: [Limit; POLICIES],
    /// For the first rates, then for the further ones.
    receipts: [Receipt; 2 * POLICIES],
}

impl<'a> Course<'a> {
    pub(crate) fn of(history: &'a History) -> Self {
        let policy = |at: usize| {
            let policy = PolicyId::new(NAMES[at]);
            match history.in_group[at] {
                true => policy.in_group("g"),
                false => policy,
            }
        };
        Self {
            history,
            policies: std::array::from_fn(policy),
            further_rates: std::array::from_fn(|at| policy(at).with_further_rate(HOUR.into())),
            limits: history.limits,
            receipts: [Receipt::default(); 2 * POLICIES],
        }
    }

    pub(crate) fn change(&mut self, step: &Step) {
        if let Some((policy, limit)) = step.change {
            self.limits[policy] = limit;
        }
    }

    /// The checks of a step.
    pub(crate) fn checks(
        &self,
        step: &Step,
        subject: Subject,
        is_asked: impl Fn(usize) -> bool,
    ) -> Vec<Check<'_>> {
        let mut checks = Vec::new();
        for (policy, act) in step.acts.iter().enumerate() {
            let Some(act) = act.filter(|_| is_asked(policy)) else {
                continue;
            };
            let check = Check::new(
                &self.policies[policy],
                subject,
                Algorithm::try_from(&self.limits[policy]).unwrap(),
                act.action(self.receipts[policy]),
            )
            .in_shadow(step.shadows[policy]);
            checks.push(check);
            if let Some(limit) = &self.history.further_rates[policy] {
                let mut check = check.with_action(act.action(self.receipts[POLICIES + policy]));
                check.policy = &self.further_rates[policy];
                check.algorithm = Algorithm::try_from(limit).unwrap();
                checks.push(check);
            }
            let guards = matches!(check.action, Action::Take(_) | Action::Reset);
            let penalty = self.history.penalties[policy].as_ref();
            if let Some(penalty) = penalty.filter(|_| guards) {
                let mut check = check;
                check.algorithm = Algorithm::try_from(penalty).unwrap();
                checks.push(check);
            }
        }
        checks
    }

    /// Notes what was taken last.
    pub(crate) fn answered(&mut self, receipts: &[(usize, Receipt)]) {
        for (rate, receipt) in receipts {
            self.receipts[*rate] = *receipt;
        }
    }
}

/// What was taken under each rate of each policy, if anything was asked for.
pub(crate) fn receipts(checks: &[Check<'_>], decisions: &Decisions) -> Vec<(usize, Receipt)> {
    let each = checks.iter().zip(decisions.iter());
    let has_receipt = |action: &Action| match action {
        Action::Take(take) => take.cost > 0 && !take.is_final,
        action => action.takes() > 0,
    };
    let taken =
        each.filter(|(check, _)| has_receipt(&check.action) && check.algorithm.name() != "penalty");
    taken
        .map(|(check, decision)| {
            let is_further = check.policy.further_rate().is_some();
            let rate = policy_of(check) + if is_further { POLICIES } else { 0 };
            (rate, decision.receipt())
        })
        .collect()
}

const NAMES: [&str; POLICIES] = ["a", "b", "c"];

pub(crate) fn policy_of(check: &Check<'_>) -> usize {
    let mut names = NAMES.iter();
    names.position(|name| *name == check.policy.name()).unwrap()
}

impl Act {
    fn action(self, last: Receipt) -> Action {
        match self {
            Self::Take {
                cost,
                patience,
                lease,
                is_final,
            } => {
                let mut take = Take::new(cost).with_patience(patience);
                take.lease = lease;
                take.is_final = is_final;
                Action::Take(take)
            }
            Self::Charge(permits) => Action::Charge(permits),
            Self::Credit { permits, known } => Action::Credit {
                permits,
                taken_at: known.then(|| last.taken_at()),
            },
            Self::Refund(permits) => Action::Refund {
                permits,
                receipt: last,
            },
            Self::Cancel(permits) => Action::Cancel {
                permits,
                receipt: last,
            },
            Self::Withdraw(permits) => Action::Withdraw {
                permits,
                receipt: last,
            },
            Self::Reset => Action::Reset,
            Self::Renew(lease) => Action::Renew(lease),
            Self::Release(lease) => Action::Release(lease),
        }
    }
}

impl Time {
    pub(crate) fn pass(self, clock: &ManualClock, last: Option<&Decisions>) {
        let longest = |wait: fn(&Decision) -> Option<Duration>| {
            last.and_then(|decisions| decisions.iter().filter_map(wait).max())
                .unwrap_or_default()
        };
        match self {
            Self::Stands => {}
            Self::On(span) => clock.advance(span),
            Self::Back(span) => clock.step_back(span),
            Self::ToRetry { early_us } => {
                let wait = longest(Decision::retry_after);
                clock.advance(wait.saturating_sub(Duration::from_micros(early_us)));
            }
            Self::ToReset { early_us } => {
                let reset = longest(|decision| Some(decision.reset_after()));
                clock.advance(reset.saturating_sub(Duration::from_micros(early_us)));
            }
        }
        // Within the years in which the crate is exact, and ahead of the server's clock.
        let (first, last) = (ManualClock::new().now(), Micros::new(5_200_000_000_000_000));
        clock.set(clock.now().clamp(first, last));
    }
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
