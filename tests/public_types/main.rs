//! What the public types promise by themselves, whatever they do.

mod closures;
mod examples;
mod fields;
#[path = "../support/sources.rs"]
mod sources;
#[cfg(all(feature = "axum", feature = "config", feature = "metrics"))]
mod traits;
mod versions;
