//! What is done with a few keys, drawn at random.

use std::thread::panicking;

use proptest::prelude::*;

use super::policies::{Drawn, MOST, drawn_policies};

#[derive(Clone, Debug)]
pub(crate) struct History {
    pub(crate) policies: Vec<Drawn>,
    pub(crate) steps: Vec<Step>,
    /// Whether all requests cost the same, and have the same tier.
    pub(crate) are_equal: bool,
    /// Before which step the limits change.
    pub(crate) changes_at: Option<usize>,
    /// The deadline of the last request, where it is sent over gRPC with one.
    pub(crate) deadline_ms: u32,
}

/// A request, and what happens before.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) pause_us: u64,
    pub(crate) operation: Operation,
    /// On which policy.
    pub(crate) on: usize,
    /// What it costs under each policy.
    pub(crate) costs: [u64; MOST],
    /// Its key under some of the policies; there are two.
    pub(crate) other: u8,
    /// Whether it has a higher limit under some of the policies.
    pub(crate) is_premium: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    None,
    Charge(u64),
    Credit(u64),
    Reset,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![
        5 => Just(0_u64),
        4 => 0_u64..400_000,
        2 => 0_u64..6_000_000,
        1 => Just(333_333_u64),
    ];
    let operation = prop_oneof![
        12 => Just(Operation::None),
        1 => (1_u64..6).prop_map(Operation::Charge),
        1 => (1_u64..4).prop_map(Operation::Credit),
        1 => Just(Operation::Reset),
    ];
    let cost = || prop_oneof![6 => Just(1_u64), 2 => Just(2_u64), 1 => 0_u64..8];
    let costs = [cost(), cost(), cost()];
    let is_premium = prop::bool::weighted(0.3);
    let step = (pause, operation, 0..MOST, costs, 0_u8..2, is_premium);
    let step = step.prop_map(|(pause_us, operation, on, costs, other, is_premium)| Step {
        pause_us,
        operation,
        on,
        costs,
        other,
        is_premium,
    });
    prop::collection::vec(step, 1..14)
}

pub(crate) fn histories(may_wait: bool) -> impl Strategy<Value = History> {
    let changes_at = prop::option::weighted(0.2, 0_usize..12);
    let drawn = (
        drawn_policies(may_wait),
        steps(),
        any::<bool>(),
        changes_at,
        0_u32..4_000,
    );
    drawn.prop_map(
        |(policies, mut steps, are_equal, changes_at, deadline_ms)| {
            if are_equal {
                let (costs, is_premium) = (steps[0].costs, steps[0].is_premium);
                for step in &mut steps {
                    (step.costs, step.is_premium) = (costs, is_premium);
                }
            }
            History {
                policies,
                steps,
                are_equal,
                changes_at,
                deadline_ms,
            }
        },
    )
}

/// Shows a history if the test fails before this is dropped.
pub(crate) struct ShownOnFailure<'a>(pub(crate) &'a History);

impl Drop for ShownOnFailure<'_> {
    fn drop(&mut self) {
        if panicking() {
            eprintln!("{:#?}", self.0);
        }
    }
}
