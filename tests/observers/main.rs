//! What observers, recorders and subscribers are told.

mod alerts;
mod metrics;
mod observing;
mod top_denied;
mod tracing;
