//! The Redis store with servers that work.

extern crate support;

mod coalescing;
mod concurrency;
mod connect;
mod fleet;
mod keys;
mod load;
