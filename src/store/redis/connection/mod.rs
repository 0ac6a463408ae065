//! Connections: where the servers are, how one is made, and how questions go over it.

mod address;
mod client;
mod connect;
mod credentials;
mod handshake;
mod health;
mod hook;
mod live;
#[cfg(feature = "config")]
mod logins;
#[cfg(feature = "deadpool")]
mod pool;
mod probe;
mod reconnecting;
mod round_trips;
mod sentinel;
mod tls;

pub(super) use address::Address;
pub(super) use client::{CONNECT_TIMEOUT, RESPONSE_TIMEOUT, pause};
pub(super) use connect::Connector;
pub(super) use handshake::Handshake;
pub(super) use hook::Hook;
pub(super) use reconnecting::{Failed, ReconnectingConnection};
pub(super) use round_trips::{Reach, work_of};
pub(super) use sentinel::Masters;
pub(super) use tls::Tls;

pub use credentials::RedisCredentials;
#[cfg(feature = "config")]
pub(crate) use logins::Logins;
