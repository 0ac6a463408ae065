//! The script's reply: four integers for each check and the instant, turned into decisions.

use redis::Value;
use smallvec::SmallVec;

use crate::algorithm::{Action, Algorithm, Reading, decide};
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::store::Check;
use crate::time::Micros;

const INTEGERS_A_CHECK: usize = 4;

/// What was asked, to read the reply by.
pub(super) struct Expected(SmallVec<[(Algorithm, Action); 4]>);

impl Expected {
    pub(super) fn of(checks: &[Check<'_>]) -> Self {
        let asked = checks.iter().map(|check| (check.algorithm, check.action));
        Self(asked.collect())
    }

    /// # Errors
    ///
    /// A reply of any other shape: it is a store error, never a guess.
    pub(super) fn read(&self, reply: Value) -> Result<Decisions, StoreError> {
        let Value::Array(values) = reply else {
            return Err(bad_reply("no array"));
        };
        let integers: SmallVec<[u64; 16]> = values
            .iter()
            .map(integer)
            .collect::<Option<_>>()
            .ok_or_else(|| bad_reply("something else than integers of at least zero"))?;
        let Some((at, rows)) = integers.split_last() else {
            return Err(bad_reply("an empty array"));
        };
        if rows.len() != self.0.len() * INTEGERS_A_CHECK {
            return Err(bad_reply("an array of another length"));
        }
        let readings: SmallVec<[Reading; 4]> = rows
            .chunks_exact(INTEGERS_A_CHECK)
            .map(|row| reading(row, Micros::new(*at)))
            .collect::<Option<_>>()
            .ok_or_else(|| bad_reply("neither yes nor no"))?;
        let asked = self.0.iter().map(|(algorithm, action)| (algorithm, action));
        Ok(decide(asked, &readings))
    }
}

fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(integer) => u64::try_from(*integer).ok(),
        _ => None,
    }
}

fn reading(row: &[u64], at: Micros) -> Option<Reading> {
    Some(Reading {
        fits: match row[0] {
            0 => false,
            1 => true,
            _ => return None,
        },
        wait: Micros::new(row[1]),
        level: [row[2], row[3]],
        at,
    })
}

fn bad_reply(what: &str) -> StoreError {
    StoreError::with_source(
        StoreErrorKind::BadReply,
        format!("the script replied {what}"),
    )
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::limit::{Limit, per_second};
    use crate::time::SECOND;

    fn expected(limits: &[Limit]) -> Expected {
        let asked = limits
            .iter()
            .map(|limit| (Algorithm::try_from(limit).unwrap(), Action::take(1)));
        Expected(asked.collect())
    }

    fn integers(integers: &[i64]) -> Value {
        Value::Array(integers.iter().copied().map(Value::Int).collect())
    }

    #[test]
    fn what_is_left_is_counted_after_the_charge_only_when_every_check_fits() {
        let expected = expected(&[
            Limit::fixed_window(5, SECOND),
            Limit::fixed_window(9, SECOND),
        ]);
        let left = |reply: &[i64]| {
            let decisions = expected.read(integers(reply)).unwrap();
            [decisions[0].remaining(), decisions[1].remaining()]
        };
        assert_eq!(left(&[1, 0, 2, 500_000, 1, 0, 3, 500_000, 7]), [2, 5]);
        assert_eq!(left(&[1, 0, 2, 500_000, 0, 500_000, 9, 500_000, 7]), [3, 0]);
    }

    #[test]
    fn a_reply_of_another_shape_is_an_error() {
        let expected = expected(&[Limit::gcra(1, SECOND)]);
        for reply in [
            Value::Nil,
            Value::Okay,
            Value::Int(1),
            integers(&[]),
            integers(&[1, 0, 0, 0]),
            integers(&[1, 0, 0, 0, 7, 7]),
            integers(&[2, 0, 0, 0, 7]),
            integers(&[0, -1, 0, 0, 7]),
            Value::Array(vec![Value::Nil; 5]),
        ] {
            let error = expected.read(reply).unwrap_err();
            assert_eq!(error.kind(), StoreErrorKind::BadReply);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn any_reply_is_decisions_or_an_error(data in prop::collection::vec(any::<u8>(), 0..96)) {
            fuzzing::redis_reply(&data);
        }
    }

    #[test]
    fn the_seeds_of_the_fuzz_target_hold() {
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/redis_reply");
        let seeds = std::fs::read_dir(seeds).expect("the target has seeds");
        for seed in seeds {
            fuzzing::redis_reply(&std::fs::read(seed.unwrap().path()).unwrap());
        }
    }

    proptest! {
        #[test]
        fn no_integers_whatever_panic(
            fits in 0_i64..=1,
            others in prop::collection::vec(
                prop_oneof![0_i64..10, 0..=i64::from(u32::MAX), 0..=i64::MAX], 4,
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
