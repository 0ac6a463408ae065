//! `Judged`: the verdicts about takes that are judged one after the other.

use redis::Value;
use smallvec::SmallVec;

use super::{INTEGERS_A_CHECK, bad, dated_answers, integers, reading};
use crate::algorithm::Reading;
use crate::error::StoreError;
use crate::store::redis::error::of_question;
use crate::time::Micros;

/// A verdict about takes that are judged one after the other, by key.
pub(in crate::store::redis) enum Judged {
    /// The reading of the next take.
    One(Reading),
    /// So many takes follow the last one with the same outcome, each after all before it have
    /// taken theirs.
    Alike {
        takes: u64,
        /// How long until a permit comes back after all of them, if they leave none.
        next: Micros,
    },
    /// Nothing was read for the takes of the next key.
    Failed(StoreError),
}

/// The verdicts in a reply about takes that are judged one after the other, however many.
///
/// # Errors
///
/// If the reply has another shape.
pub(in crate::store::redis) fn judged(reply: &Value) -> Result<Vec<Judged>, StoreError> {
    let (mut left, at) = dated_answers(reply)?;
    let mut judged = Vec::with_capacity(left.len() / INTEGERS_A_CHECK);
    while let [first, behind @ ..] = left {
        if let Value::ServerError(error) = first {
            judged.push(Judged::Failed(of_question(error.clone().into())));
            left = behind;
            continue;
        }
        let another_length = || bad("an array of another length");
        let (row, behind) = left
            .split_first_chunk::<INTEGERS_A_CHECK>()
            .ok_or_else(another_length)?;
        let row: SmallVec<[u64; INTEGERS_A_CHECK]> = integers(row)?;
        judged.push(match row[0] {
            fits @ (0 | 1) => Judged::One(reading(fits == 1, &row, at)),
            2 => Judged::Alike {
                takes: row[1],
                next: Micros::new(row[4]),
            },
            _ => return Err(bad("neither yes nor no")),
        });
        left = behind;
    }
    Ok(judged)
}
