//! What observers, recorders and subscribers get.

mod alerts;
mod metrics;
mod observing;
mod top_denied;
mod tracing;
