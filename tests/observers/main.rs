//! What observers, recorders and subscribers get.

mod metrics;
mod observing;
mod top_denied;
mod tracing;
