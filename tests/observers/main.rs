//! What observers, recorders and subscribers are told.

extern crate support;

mod metrics;
mod observing;
mod top_denied;
mod tracing;
