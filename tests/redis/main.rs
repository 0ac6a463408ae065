//! The Redis store with servers that work.

mod coalescing;
mod concurrency;
mod connect;
mod fleet;
mod keys;
mod load;
mod upstream;
