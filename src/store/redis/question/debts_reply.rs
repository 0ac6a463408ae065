//! Reads what `lua/debts.lua` and `lua/plain.lua` reply.

use redis::Value;
use smallvec::SmallVec;

use super::debts::{DebtQuestion, Keys, OwedBefore};
use crate::algorithm::FixedMicros;
use crate::error::StoreError;
use crate::store::redis::error::of_question;
use crate::store::redis::reply::bad;

/// Where the answers to a question are in the reply.
#[derive(Clone, Copy)]
pub(super) struct SlotPart {
    first: usize,
    keys: Keys,
    acquires: usize,
    repeated: u32,
}

impl SlotPart {
    pub(super) fn new(first: usize, debts: &DebtQuestion, repeated: u32) -> Self {
        Self {
            first,
            keys: debts.keys,
            acquires: debts.acquires.len(),
            repeated,
        }
    }

    pub(super) fn end(&self) -> usize {
        match self.keys {
            Keys::One | Keys::Group => self.first + 1,
            Keys::Several => self.first + self.acquires,
        }
    }

    /// # Errors
    ///
    /// A reply of any other shape. An error that concerns this question alone is in the result.
    pub(super) fn read(
        &self,
        answers: &[Value],
        now_us: u64,
    ) -> Result<Result<OwedBefore, StoreError>, StoreError> {
        let answers = &answers[self.first..self.end()];
        if let Some(Value::ServerError(error)) = answers.first() {
            return Ok(Err(of_question(error.clone().into())));
        }
        let debts = match (self.keys, answers) {
            (Keys::One, [answer]) => SmallVec::from_buf([debt(answer)?]),
            (Keys::Group, [Value::Int(0)]) => {
                SmallVec::from_elem(Some(FixedMicros::ZERO), self.acquires)
            }
            (Keys::Group, [Value::BulkString(entries)]) => debts_of_record(entries, now_us)?,
            _ => answers.iter().map(debt).collect::<Result<_, _>>()?,
        };
        if debts.len() != self.acquires {
            return Err(bad("another number of debts"));
        }
        let repeated = self.repeated.into();
        Ok(Ok(OwedBefore { debts, repeated }))
    }
}

/// Above any debt, which is at most 120 years. Scripts report values from here on as corrupt.
const MOST_DEBT_US: u64 = 1 << 52;

/// A debt, us or us:fraction; `None` for a corrupt value.
///
/// # Errors
///
/// For any other reply. The permits may have been acquired, so the question is not repeated.
pub(super) fn debt(reply: &Value) -> Result<Option<FixedMicros>, StoreError> {
    let (us, fraction) = match reply {
        Value::Int(-1) => return Ok(None),
        Value::Int(us) => (u64::try_from(*us).ok(), Some(0)),
        Value::BulkString(text) => {
            let text = std::str::from_utf8(text).ok();
            let (us, fraction) = text
                .and_then(|text| text.split_once(':'))
                .unwrap_or_default();
            (us.parse().ok(), fraction.parse().ok())
        }
        _ => (None, None),
    };
    match (us, fraction) {
        (Some(us @ 0..MOST_DEBT_US), Some(fraction)) => Ok(Some(FixedMicros { us, fraction })),
        _ => Err(bad("no debt")),
    }
}

/// The debts in these entries of a record, which contain the instants at which they are paid back.
fn debts_of_record(
    entries: &[u8],
    now_us: u64,
) -> Result<SmallVec<[Option<FixedMicros>; 1]>, StoreError> {
    let (entries, []) = entries.as_chunks::<16>() else {
        return Err(bad("no entries of a record"));
    };
    let each = entries.iter().map(|entry| {
        let mut number = 0_u128;
        for byte in entry {
            number = number << 8 | u128::from(*byte);
        }
        let (us, fraction) = (number as u64, (number >> 64) as u32);
        let paid = FixedMicros { us, fraction };
        let debt = paid.saturating_sub(FixedMicros::whole(now_us));
        (debt.us < MOST_DEBT_US).then_some(Some(debt))
    });
    each.collect::<Option<_>>().ok_or_else(|| bad("no debts"))
}
