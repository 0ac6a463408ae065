//! GCRA: the generic cell rate algorithm, ITU-T Recommendation I.371, Annex A. Mirrors
//! `lua/gcra.lua`.
//!
//! The stored instant is the theoretical arrival time. A cost fits while it lies ahead of now by no
//! more than the burst takes in time, the cost included.

use super::debt::Debt;
use crate::limit::SoundLimit;

pub(super) fn new(limit: &SoundLimit) -> Debt {
    Debt::new(limit)
}
