//! Reads the replies of scripts. The composed script replies five integers for each check, and the
//! instant after all of them.

use redis::Value;

use crate::algorithm::Reading;
use crate::error::{StoreError, StoreErrorKind};
use crate::time::Micros;

mod expected;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;
mod judged;

pub(super) use expected::Expected;
pub(super) use judged::{Judged, judged};

const INTEGERS_A_CHECK: usize = 5;

/// The answers in a reply.
///
/// # Errors
///
/// A reply of any other shape.
pub(super) fn answers(reply: &Value) -> Result<&[Value], StoreError> {
    match reply {
        Value::Array(answers) => Ok(answers),
        _ => Err(bad("no array")),
    }
}

/// The same for a reply that ends with its instant, in microseconds.
///
/// # Errors
///
/// A reply of any other shape.
pub(super) fn dated_answers(reply: &Value) -> Result<(&[Value], u64), StoreError> {
    let dated = answers(reply)?.split_last();
    let dated = dated.and_then(|(at, answers)| Some((answers, integer(at)?)));
    dated.ok_or_else(|| bad("no instant behind the answers"))
}

/// The answers by key, if there are as many for each as were asked for.
///
/// # Errors
///
/// If there is another number of answers.
pub(super) fn by_key(
    answers: &[Value],
    answers_each: impl Iterator<Item = usize>,
) -> Result<Vec<&[Value]>, StoreError> {
    let another_length = || bad("an array of another length");
    let mut left = answers;
    let mut by_key = Vec::with_capacity(answers.len());
    for answers in answers_each {
        let (of_key, behind) = left.split_at_checked(answers).ok_or_else(another_length)?;
        by_key.push(of_key);
        left = behind;
    }
    left.is_empty().then_some(by_key).ok_or_else(another_length)
}

fn integers<T: FromIterator<u64>>(answers: &[Value]) -> Result<T, StoreError> {
    let integers = answers.iter().map(integer).collect::<Option<_>>();
    integers.ok_or_else(|| bad("something else than integers of at least zero"))
}

fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(integer) => u64::try_from(*integer).ok(),
        _ => None,
    }
}

fn reading(fits: bool, row: &[u64], at_us: u64) -> Reading {
    Reading {
        fits,
        wait: Micros::new(row[1]),
        level: [row[2], row[3]],
        next: Micros::new(row[4]),
        at: Micros::new(at_us),
    }
}

pub(super) fn bad(what: &str) -> StoreError {
    StoreError::with_source(
        StoreErrorKind::BadReply,
        format!("the script replied {what}"),
    )
}
