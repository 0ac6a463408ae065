//! Faults of servers and networks, one after the other: what becomes of decisions meanwhile, and
//! how soon the store is asked again. With `--nocapture` each test tells what it measured; that is
//! where the figures of docs/faults.md come from.
#![cfg(all(feature = "memory", feature = "redis"))]

mod all_masters;
mod batches;
mod counting;
mod demoted;
mod fleets;
mod hanging;
mod names;
mod network;
mod nodes_at_random;
mod one_node;
mod recovered;
mod refusing;
mod stage;
mod stopped;
#[path = "../support/mod.rs"]
mod support;
