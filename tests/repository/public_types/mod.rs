//! What the public types promise by themselves, whatever they do.

mod closures;
mod fields;
#[cfg(all(feature = "config", feature = "metrics", feature = "operator"))]
mod traits;
mod versions;
