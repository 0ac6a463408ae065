//! Policies from a file: `Config`, and `ConfigFile`, which reads it again when it changes. What a file
//! may say is in docs/configuration.md, and for editors in docs/limits.schema.json.

mod access;
#[cfg(feature = "calendar")]
mod calendar;
mod client_address;
mod configuration;
mod error;
mod fields;
mod invalid;
mod key;
mod limit;
mod policy;
mod read;
mod regular_file;
mod response;
mod secret;
mod store;
mod tiers;
mod units;
mod value;
mod watch;

pub use self::configuration::Config;
pub use self::error::FileError;
pub use self::key::UserId;
pub use self::watch::{ConfigFile, OpenError, WatchedConfig};

#[cfg(test)]
mod tests;
