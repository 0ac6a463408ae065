//! A configuration that is read again when its file changes: real files, real requests.
#![cfg(feature = "config")]

#[path = "../support/mod.rs"]
mod support;

mod file;
mod in_force;
mod layers;
mod noticed;
mod refused;
mod storm;
