//! Whose quota a request uses, as it stands in the request.

mod canonical;
mod client_addr;
mod peer;

pub use self::client_addr::ClientAddr;
pub use self::peer::{Peer, PeerAddr, PeerNetwork};
