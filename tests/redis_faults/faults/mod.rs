//! Faults of servers and networks, one by one: the decisions meanwhile, and how soon the store is
//! asked again. With `--nocapture` each test prints its measurements, which are the source of the
//! figures in docs/failure-modes.md.
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
