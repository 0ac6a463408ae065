//! The peer as tonic provides it, in the types that it puts into each request's extensions.

use tonic::transport::server::TcpConnectInfo;

use super::Peer;
use crate::request::{KeyError, RequestHead};

pub(super) fn peer(request: &RequestHead<'_>) -> Option<Result<Peer, KeyError>> {
    // Present also behind tonic's own TLS, beside `TlsConnectInfo`.
    if let Some(info) = request.extensions.get() {
        return Some(from_tcp(info));
    }
    #[cfg(feature = "tonic-tls")]
    if let Some(info) = request.extensions.get::<tls::TlsConnectInfo>() {
        return Some(from_tcp(info.get_ref()));
    }
    #[cfg(unix)]
    if let Some(tonic::transport::server::UdsConnectInfo { .. }) = request.extensions.get() {
        return Some(Ok(Peer::UnixSocket));
    }
    None
}

/// The address is missing if the client disconnected before tonic asked for it: not the server's
/// fault.
fn from_tcp(info: &TcpConnectInfo) -> Result<Peer, KeyError> {
    info.remote_addr.map(Peer::Address).ok_or(KeyError::Missing)
}

#[cfg(feature = "tonic-tls")]
mod tls {
    use tokio::net::TcpStream;
    use tokio_rustls::server::TlsStream;
    use tonic::transport::server::Connected;

    /// `tonic::transport::server::TlsConnectInfo<TcpConnectInfo>`. Tonic exports that name only
    /// together with its own TLS, whose features choose the cryptography or the certificates.
    pub(super) type TlsConnectInfo = <TlsStream<TcpStream> as Connected>::ConnectInfo;
}
