//! The concurrency limit: what takes a place, what gives it back, and what keeps it meanwhile.
#![cfg(all(feature = "memory", feature = "redis"))]

mod answers;
mod cluster;
mod flush;
mod gate;
mod giving_back;
#[cfg(feature = "tonic")]
mod grpc;
mod http;
mod in_turn;
mod late;
mod layer;
mod places;
mod renewals;
mod runtimes;
mod stage;
mod two_servers;
mod upgrades;
mod watched;
