//! Requests that most likely come through a proxy of which the policy does not know.

use std::net::IpAddr;

use http::header::{FORWARDED, HeaderName};

use crate::address::embedded;
use crate::request::RequestHead;

static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Whether a request from this peer names another client, and the peer may be a proxy. The address
/// comes first: the requests of clients that connect themselves cost no look at the headers.
pub(super) fn is_proxied(peer: IpAddr, request: &RequestHead<'_>) -> bool {
    let headers = request.headers;
    is_internal(peer) && (headers.contains_key(&X_FORWARDED_FOR) || headers.contains_key(FORWARDED))
}

/// Whether an address is private or loopback, so that no client on the Internet has it.
fn is_internal(address: IpAddr) -> bool {
    match embedded(address) {
        IpAddr::V4(v4) => {
            // RFC 6598, which clusters and overlay networks use, too.
            let is_shared = matches!(v4.octets(), [100, 64..=127, ..]);
            v4.is_private() || v4.is_loopback() || v4.is_link_local() || is_shared
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_loopback() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_internal_address_is_one_that_no_client_on_the_internet_has() {
        for (address, expected) in [
            ("127.0.0.1", true),
            ("10.1.2.3", true),
            ("172.17.0.1", true),
            ("192.168.1.1", true),
            ("169.254.1.1", true),
            ("100.64.0.1", true),
            ("::1", true),
            ("::ffff:10.1.2.3", true),
            ("fd00::7", true),
            ("fe80::7", true),
            ("100.128.0.1", false),
            ("172.32.0.1", false),
            ("203.0.113.9", false),
            ("2001:db8::7", false),
            ("::ffff:203.0.113.9", false),
        ] {
            assert_eq!(is_internal(address.parse().unwrap()), expected, "{address}");
        }
    }
}
