//! The built-in key extractors.

mod canonical;
mod client_addr;
mod header;
mod identity;
mod peer;

#[cfg(feature = "operator")]
pub(crate) use self::canonical::Ipv6Prefix;
pub use self::client_addr::ClientAddr;
pub use self::header::{Header, HeaderCost};
pub use self::identity::Extension;
pub use self::identity::Host;
pub use self::peer::{Peer, PeerAddr, PeerNetwork};
