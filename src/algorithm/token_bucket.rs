//! Token bucket: `capacity` tokens, refilled continuously; a cost takes some of them. Mirrors
//! `lua/token_bucket.lua`.
//!
//! What is missing in the bucket is stored, as the time in which it comes back: a full bucket has
//! no debt, and no fraction of a token is ever lost or invented. A caller that waits for its tokens
//! leaves the bucket below empty.

use super::debt::Debt;
use crate::limit::ValidLimit;

pub(super) fn new(limit: &ValidLimit) -> Debt {
    Debt::new(limit)
}
