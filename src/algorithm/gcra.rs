//! GCRA: the generic cell rate algorithm, ITU-T Recommendation I.371, Annex A. Mirrors
//! `lua/gcra.lua`.
//!
//! The stored instant is the theoretical arrival time. A cost fits if, with the cost added, that
//! instant lies ahead of now by no more than the whole burst takes to come back.

use super::debt::Debt;
use crate::limit::ValidLimit;

pub(super) fn new(limit: &ValidLimit) -> Debt {
    Debt::new(limit)
}
