//! The layer over gRPC: real servers and clients, and raw bytes on a socket for what clients do not
//! show.
#![cfg(feature = "tonic")]

mod deadlines;
mod failures;
mod feedback;
#[cfg(unix)]
mod grpcio;
mod handlers;
mod methods;
mod stage;
mod status;
mod streaming;
mod users;
mod web;
mod wire;
