//! Stores as such: the contract, the memory store, remembered denials, permits taken in advance.

mod contract;
mod deny_cache;
mod endurance;
mod memory_store;
mod prefetch;
mod prefetch_cluster;
