//! Stores as such: the contract, the memory store, remembered denials, permits taken in advance.

extern crate support;

mod contract;
mod deny_cache;
mod endurance;
mod memory_store;
mod prefetch;
mod prefetch_cluster;
