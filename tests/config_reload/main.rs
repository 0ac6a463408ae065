//! A configuration that is read again when its file changes: real files, real requests.
#![cfg(feature = "config")]

#[path = "../support/mod.rs"]
mod support;

mod credentials;
mod ended;
mod file;
mod in_code;
mod in_force;
mod layers;
#[cfg(feature = "tracing")]
#[path = "../support/log.rs"]
mod log;
#[cfg(feature = "tracing")]
mod logged;
mod noticed;
mod refused;
mod storm;
