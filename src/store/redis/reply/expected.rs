//! `Expected`: what a question asked the composed script, to read its reply and decide.

use redis::Value;
use smallvec::SmallVec;

use super::{INTEGERS_A_CHECK, bad, dated_answers, integers, reading};
use crate::algorithm::{Action, Algorithm, Ask, Reading, decide, decide_denied};
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Check;

/// The question, by which its reply is read.
pub(in crate::store::redis) struct Expected {
    pub(super) asked: SmallVec<[Asked; 4]>,
    /// Whether a check on another node denies.
    is_denied_elsewhere: bool,
}

pub(super) struct Asked {
    pub(super) algorithm: Algorithm,
    pub(super) action: Action,
    pub(super) is_shadow: bool,
    pub(super) is_further_rate: bool,
}

impl Asked {
    fn ask(&self) -> Ask<'_> {
        Ask {
            algorithm: &self.algorithm,
            action: &self.action,
            is_shadow: self.is_shadow,
            is_further_rate: self.is_further_rate,
        }
    }
}

impl Expected {
    pub(in crate::store::redis) fn of(checks: &[Check<'_>], is_denied_elsewhere: bool) -> Self {
        let asked = checks.iter().map(|check| Asked {
            algorithm: check.algorithm,
            action: check.action,
            is_shadow: check.is_shadow,
            is_further_rate: check.policy.further_rate().is_some(),
        });
        Self {
            is_denied_elsewhere,
            ..Self::new(asked)
        }
    }

    pub(super) fn new(asked: impl Iterator<Item = Asked>) -> Self {
        Self {
            asked: asked.collect(),
            is_denied_elsewhere: false,
        }
    }

    /// # Errors
    ///
    /// If the reply has another shape: that is a store error, never a guess.
    pub(in crate::store::redis) fn read(&self, reply: Value) -> Result<Decisions, StoreError> {
        let (answers, at) = dated_answers(&reply)?;
        match self.split(answers)? {
            (rows, []) => self.read_rows(rows, at),
            _ => Err(bad("an array of another length")),
        }
    }

    /// The number of checks.
    pub(in crate::store::redis) fn checks(&self) -> usize {
        self.asked.len()
    }

    /// The rows of these checks, and the rest after them.
    ///
    /// # Errors
    ///
    /// If there are fewer rows.
    pub(in crate::store::redis) fn split<'a>(
        &self,
        answers: &'a [Value],
    ) -> Result<(&'a [Value], &'a [Value]), StoreError> {
        let rows = answers.split_at_checked(self.checks() * INTEGERS_A_CHECK);
        rows.ok_or_else(|| bad("an array of another length"))
    }

    /// Reads the rows of these checks, which were decided at this instant.
    ///
    /// # Errors
    ///
    /// If a row is anything else.
    pub(in crate::store::redis) fn read_rows(
        &self,
        rows: &[Value],
        at: u64,
    ) -> Result<Decisions, StoreError> {
        let rows: SmallVec<[u64; 4 * INTEGERS_A_CHECK]> = integers(rows)?;
        let mut unanswered: SmallVec<[(usize, StoreErrorKind); 1]> = SmallVec::new();
        let mut readings: SmallVec<[Reading; 4]> = SmallVec::new();
        let rows = rows.chunks_exact(INTEGERS_A_CHECK);
        for (position, (row, asked)) in rows.zip(&self.asked).enumerate() {
            readings.push(match row[0] {
                fits @ (0 | 1) => reading(fits == 1, row, at),
                code if asked.is_shadow => {
                    let kind = failure(code).ok_or_else(|| bad("an unknown failure"))?;
                    unanswered.push((position, kind));
                    // It affects no other check, and no penalty counts it as a denial.
                    reading(true, row, at)
                }
                _ => return Err(bad("neither yes nor no")),
            });
        }
        let asks = self.asked.iter().map(Asked::ask);
        let mut decisions = match self.is_denied_elsewhere {
            false => decide(asks, &readings),
            true => decide_denied(asks, &readings),
        };
        for (position, kind) in unanswered {
            decisions.fail_open(position, kind);
        }
        Ok(decisions)
    }
}

/// Read in place of yes or no if a check in shadow could not be answered: its value could not be
/// read, or not written, for lack of memory, of the right, or because the server refused.
fn failure(code: u64) -> Option<StoreErrorKind> {
    match code {
        2 => Some(StoreErrorKind::ForeignValue),
        3 => Some(StoreErrorKind::Busy),
        4 => Some(StoreErrorKind::Full),
        5 => Some(StoreErrorKind::Configuration),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decision::Outcome;
    use crate::limit::{Limit, per_second};
    use crate::time::SECOND;

    fn expected(limits: &[Limit]) -> Expected {
        let asked = limits.iter().map(|limit| Asked {
            algorithm: Algorithm::try_from(limit).unwrap(),
            action: Action::take(1),
            is_shadow: false,
            is_further_rate: false,
        });
        Expected::new(asked)
    }

    fn integers(integers: &[i64]) -> Value {
        Value::Array(integers.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn remaining_permits_are_counted_after_the_charge_only_if_every_check_fits() {
        let expected = expected(&[
            Limit::fixed_window(5, SECOND),
            Limit::fixed_window(9, SECOND),
        ]);
        let left = |reply: &[i64]| {
            let decisions = expected.read(integers(reply)).unwrap();
            [decisions[0].remaining(), decisions[1].remaining()]
        };
        assert_eq!(left(&[1, 0, 2, 500_000, 0, 1, 0, 3, 500_000, 0, 7]), [2, 5]);
        assert_eq!(
            left(&[1, 0, 2, 500_000, 0, 0, 500_000, 9, 500_000, 0, 7]),
            [3, 0]
        );
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error() {
        let expected = expected(&[Limit::gcra(1, SECOND)]);
        for reply in [
            Value::Nil,
            Value::Okay,
            Value::Int(1),
            integers(&[]),
            integers(&[1, 0, 0, 0, 0]),
            integers(&[1, 0, 0, 0, 7]),
            integers(&[1, 0, 0, 0, 0, 7, 7]),
            integers(&[2, 0, 0, 0, 0, 7]),
            integers(&[0, -1, 0, 0, 0, 7]),
            Value::Array(vec![Value::Nil; 6]),
        ] {
            let error = expected.read(reply).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::BadReply);
        }
    }

    #[test]
    fn a_check_in_shadow_that_failed_is_let_through() {
        let mut expected = expected(&[Limit::gcra(1, SECOND), Limit::gcra(1, SECOND)]);
        let reply = |code| integers(&[code, 0, 0, 0, 0, 0, 5, 0, 0, 0, 7]);
        assert!(expected.read(reply(2)).is_err());
        expected.asked[0].is_shadow = true;
        for (code, kind) in [
            (2, StoreErrorKind::ForeignValue),
            (3, StoreErrorKind::Busy),
            (4, StoreErrorKind::Full),
            (5, StoreErrorKind::Configuration),
        ] {
            let decisions = expected.read(reply(code)).unwrap();
            assert_eq!(decisions[0].outcome(), Outcome::FailedOpen(kind));
            assert_eq!(decisions[1].outcome(), Outcome::Denied);
        }
        assert!(expected.read(reply(6)).is_err());
    }

    proptest! {
        #[test]
        fn no_integers_whatever_panic(
            fits in 0_i64..=1,
            others in prop::collection::vec(
                prop_oneof![0_i64..10, 0..=i64::from(u32::MAX), 0..=i64::MAX], 5,
            ),
        ) {
            let row: Vec<_> = std::iter::once(fits).chain(others).collect();
            for limit in [
                Limit::gcra(3, SECOND),
                Limit::gcra(3, 7 * SECOND),
                Limit::token_bucket(3, per_second(3)),
                Limit::leaky_bucket(3, per_second(3)),
                Limit::fixed_window(3, SECOND),
                Limit::sliding_log(3, SECOND),
                Limit::sliding_window(3, SECOND),
                Limit::sliding_counter(3, SECOND),
                Limit::concurrency(3),
            ] {
                let decisions = expected(&[limit]).read(integers(&row)).unwrap();
                prop_assert!(decisions[0].remaining() <= 3);
            }
        }
    }
}
