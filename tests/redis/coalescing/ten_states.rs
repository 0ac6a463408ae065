//! Ten states that questions are about, each with a key of its own.

use proptest::prelude::*;
use tower_throttle::store::PolicyId;
use tower_throttle::{Limit, Micros};

use super::model::{Place, Question, States, in_runs};

pub(super) const STATES: usize = 10;
/// The rates of one limit.
pub(super) const RATES: [usize; 2] = [8, 9];

/// With limits of their own.
pub(super) fn ten_states(case: usize, limits: &[Limit]) -> States {
    let places = limits.iter().enumerate().map(|(state, limit)| Place {
        policy: policy(case, state),
        subject: match state {
            0..6 if state % 2 == 0 => "alice",
            _ => "bob",
        },
        limit: *limit,
    });
    States::new(places.collect())
}

fn policy(case: usize, state: usize) -> PolicyId {
    let name = match RATES.contains(&state) {
        true => format!("case-{case}-rates"),
        false => format!("case-{case}-{state}"),
    };
    let policy = PolicyId::new(&name);
    if state == RATES[1] {
        policy.with_extra_rate(Micros::new(60_000_000))
    } else {
        policy
    }
}

/// A question about these states, or some more.
pub(super) fn question(states: Vec<(usize, bool)>, cost: u64) -> Question {
    // A limit is asked with all its rates. In shadow it would go by the composed script.
    let (rates, mut states): (Vec<_>, Vec<_>) = states
        .into_iter()
        .partition(|(state, _)| RATES.contains(state));
    if !rates.is_empty() {
        states.extend(RATES.map(|rate| (rate, false)));
    }
    Question { states, cost }
}

/// Each about several states.
pub(super) fn questions() -> impl Strategy<Value = Vec<Question>> {
    let states = prop::sample::subsequence((0..STATES).collect::<Vec<_>>(), 2..5).prop_shuffle();
    let shadows = prop_oneof![
        6 => prop::collection::vec(prop::bool::weighted(0.25), 4),
        1 => Just(vec![true; 4]),
    ];
    let any = (states, shadows, 1_u64..6).prop_map(|(states, shadows, cost)| {
        question(states.into_iter().zip(shadows).collect(), cost)
    });
    let hot = prop::bool::ANY
        .prop_map(|is_shadow| question(vec![(0, false), (1, is_shadow), (2, false)], 1));
    in_runs(prop_oneof![any, hot])
}
