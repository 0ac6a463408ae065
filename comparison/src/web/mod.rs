//! An axum server, and clients that keep it busy over sockets.

mod clients;
mod server;

pub use clients::round;
pub use server::Server;
