//! Values drawn from a strategy for async tests, which proptest itself cannot run.

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::TestRunner;

/// An endless supply, different in each run.
pub fn drawn<S: Strategy>(of: S) -> impl Iterator<Item = S::Value> {
    let mut runner = TestRunner::default();
    std::iter::repeat_with(move || of.new_tree(&mut runner).unwrap().current())
}
