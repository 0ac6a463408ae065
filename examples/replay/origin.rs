//! `Origin`: where requests come from, as the server behind the limits would see it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use http::Request;
use http::header::{FORWARDED, HeaderName, HeaderValue};
use toml::{Table, Value};
use tower_throttle::Peer;

/// How a client's address reaches the limits of a file.
pub(crate) struct Origin {
    /// The last proxy in front; `None` if clients connect directly.
    proxy: Option<Peer>,
    /// The header in which it names the client.
    header: HeaderName,
    /// What other proxies have added to it behind the client.
    others: String,
}

impl Origin {
    /// Of the fields `trusted_proxies`, `client_address` and `trusted_hops`, which the
    /// configuration has checked.
    pub(crate) fn of(file: &Table) -> Self {
        let proxies = file.get("trusted_proxies").and_then(Value::as_array);
        let first = proxies.and_then(|proxies| proxies.first());
        let first: Option<IpAddr> = first
            .and_then(|range| range.as_str()?.split('/').next())
            .and_then(|address| address.parse().ok());
        let header = file.get("client_address").and_then(Value::as_str);
        let header = header.map(|header| header.strip_prefix("header:").unwrap_or(header));
        let header = header.and_then(|name| name.parse().ok());
        let hops = file.get("trusted_hops").and_then(Value::as_integer);
        let header = header.unwrap_or(HeaderName::from_static("x-forwarded-for"));
        // Only their number is looked at.
        let other = first.unwrap_or(Ipv4Addr::LOCALHOST.into());
        let other = match header {
            FORWARDED => forwarded(other),
            _ => other.to_string(),
        };
        Self {
            proxy: proxies.map(|_| match first {
                Some(address) => Peer::Address(SocketAddr::new(address, 0)),
                None => Peer::UnixSocket,
            }),
            header,
            others: format!(", {other}").repeat(hops.map_or(0, |hops| hops as usize - 1)),
        }
    }

    /// Has the request come from this client. If the log has the header that names the client, the
    /// address is that of the last proxy.
    pub(crate) fn put(&self, request: &mut Request<()>, client: IpAddr) {
        let peer = match self.proxy {
            Some(proxy) if !request.headers().contains_key(&self.header) => {
                let client = match self.header {
                    FORWARDED => forwarded(client),
                    _ => client.to_string(),
                };
                let value = HeaderValue::try_from(client + &self.others);
                let value = value.expect("addresses are what headers may hold");
                request.headers_mut().insert(self.header.clone(), value);
                proxy
            }
            _ => Peer::Address(SocketAddr::new(client, 0)),
        };
        request.extensions_mut().insert(peer);
    }
}

fn forwarded(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => format!("for={address}"),
        IpAddr::V6(address) => format!("for=\"[{address}]\""),
    }
}
