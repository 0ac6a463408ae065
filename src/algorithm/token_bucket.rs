//! Token bucket: `capacity` tokens, refilled continuously, of which a cost takes some. Mirrors
//! `lua/token_bucket.lua`.
//!
//! What is missing in the bucket is kept, as the time in which it comes back: a full bucket is no
//! debt, and no fraction of a token is ever lost or invented. A caller that waits for its tokens
//! leaves less than an empty bucket behind.

use super::debt::Debt;
use crate::limit::SoundLimit;

pub(super) fn new(limit: &SoundLimit) -> Debt {
    Debt::new(limit)
}
