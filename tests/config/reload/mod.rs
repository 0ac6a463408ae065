//! A configuration that is read again when its file changes: real files, real requests.
#![cfg(feature = "config")]

mod credentials;
#[cfg(feature = "operator")]
mod ended;
mod file;
mod in_code;
mod in_force;
mod layers;
#[cfg(feature = "tracing")]
mod logged;
mod noticed;
mod refused;
mod storm;
