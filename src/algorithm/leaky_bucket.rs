//! Leaky bucket: a cost is poured in, runs out at a constant rate, and must not overflow. Mirrors
//! `lua/leaky_bucket.lua`.
//!
//! The water is stored as the time in which it runs out. As a queue, which is the true leaky
//! bucket, each request is held up until the water before it has run out; as a meter it passes at
//! once.

use super::debt::Debt;
use crate::limit::ValidLimit;

pub(super) fn new(limit: &ValidLimit) -> Debt {
    let meter = Debt::new(limit);
    if limit.queues {
        meter.queueing()
    } else {
        meter
    }
}
