//! Reads the replies of scripts. The composed script replies rows of five integers, and the instant
//! after all of them.

use redis::Value;
use smallvec::SmallVec;

use super::error::of_question;
use crate::algorithm::Reading;
use crate::decision::Decision;
use crate::error::{StoreError, StoreErrorKind};
use crate::time::Micros;

#[cfg(any(test, fuzzing))]
pub(super) mod fuzzing;

const INTEGERS_A_ROW: usize = 5;

/// The decisions on a question, in the order of its checks. Small, as those of a batch are moved.
pub(super) type Decided = SmallVec<[Decision; 1]>;

/// The rows of a reply that were not read yet.
pub(super) struct Rows<'a> {
    left: &'a [Value],
    at: Micros,
}

/// The five integers of a check, or of several acquires that follow one.
pub(super) struct Row {
    integers: [u64; INTEGERS_A_ROW],
    at: Micros,
}

impl<'a> Rows<'a> {
    /// # Errors
    ///
    /// If no instant is behind them.
    pub(super) fn of(reply: &'a Value) -> Result<Self, StoreError> {
        let (left, at) = dated_answers(reply)?;
        let at = Micros::new(at);
        Ok(Self { left, at })
    }

    /// The error in place of the next rows, if there is one.
    pub(super) fn failure(&mut self) -> Option<StoreError> {
        let (first, behind) = self.left.split_first()?;
        let Value::ServerError(error) = first else {
            return None;
        };
        self.left = behind;
        Some(of_question(error.clone().into()))
    }

    /// # Errors
    ///
    /// If what is left is no row.
    pub(super) fn next(&mut self) -> Result<Row, StoreError> {
        let row = self.left.split_first_chunk::<INTEGERS_A_ROW>();
        let (row, behind) = row.ok_or_else(|| bad("an array of another length"))?;
        self.left = behind;
        let mut integers = [0; INTEGERS_A_ROW];
        for (read, value) in integers.iter_mut().zip(row) {
            let no_integer = || bad("something else than integers of at least zero");
            *read = integer(value).ok_or_else(no_integer)?;
        }
        Ok(Row {
            integers,
            at: self.at,
        })
    }

    /// # Errors
    ///
    /// If any are left.
    pub(super) fn end(self) -> Result<(), StoreError> {
        match self.left {
            [] => Ok(()),
            _ => Err(bad("too many rows")),
        }
    }
}

impl Row {
    /// Yes or no, or another answer in place of that.
    pub(super) fn code(&self) -> u64 {
        self.integers[0]
    }

    pub(super) fn reading(&self, fits: bool) -> Reading {
        let [_, wait, level, more, next] = self.integers;
        Reading {
            fits,
            wait: Micros::new(wait),
            level: [level, more],
            next: Micros::new(next),
            at: self.at,
        }
    }

    /// How many acquires follow the one before, and how long until a permit comes back after the last
    /// of them, if that leaves none.
    pub(super) fn together(&self) -> (u64, Micros) {
        let [_, acquires, _, _, next] = self.integers;
        (acquires, Micros::new(next))
    }
}

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

fn integer(value: &Value) -> Option<u64> {
    match value {
        Value::Int(integer) => u64::try_from(*integer).ok(),
        _ => None,
    }
}

pub(super) fn bad(what: &str) -> StoreError {
    StoreError::with_source(
        StoreErrorKind::BadReply,
        format!("the script replied {what}"),
    )
}
