//! What is promised of the public types by what they are, whatever they do.

mod fields;
#[path = "../support/sources.rs"]
mod sources;
#[cfg(all(feature = "axum", feature = "config", feature = "metrics"))]
mod traits;
