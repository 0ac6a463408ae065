//! Extractors: they read from a request whose quota it uses.

mod canonical;
mod client_addr;
mod extension;
mod header;
mod host;
mod joined;
mod peer;
mod proxied;

#[cfg(feature = "operator")]
pub(crate) use self::canonical::Ipv6Prefix;
pub use self::client_addr::ClientAddr;
pub use self::extension::Extension;
pub use self::header::Header;
pub use self::host::Host;
pub use self::peer::{Peer, PeerAddr, PeerNetwork};
