//! What the public types promise by themselves, whatever they do.

mod closures;
mod fields;
#[cfg(all(feature = "axum", feature = "config", feature = "metrics"))]
mod traits;
mod versions;
