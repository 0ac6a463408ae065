//! Values drawn from a strategy, for tests that are async: proptest itself runs none.

use proptest::strategy::{Strategy, ValueTree as _};
use proptest::test_runner::TestRunner;

/// As many as are asked for, never the same ones as the last time.
pub fn drawn<S: Strategy>(of: S) -> impl Iterator<Item = S::Value> {
    let mut runner = TestRunner::default();
    std::iter::repeat_with(move || of.new_tree(&mut runner).unwrap().current())
}
