//! A request behind proxies, and a second reading of what it says: from copies of all entries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderValue, Request};
use tower_throttle::{AddressExtractor, ClientAddr, Key, KeyExtractor, Peer, RequestHead};

use super::source::Source;

pub(crate) const TRUSTED: [&str; 2] = ["10.0.0.0/8", "2001:db8:aaaa::/48"];

/// The most entries that are looked at.
const MOST: usize = 64;

/// What stands in one entry.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Entry {
    Empty,
    Address(IpAddr),
    /// No address.
    Unknown,
    /// Against the syntax.
    Malformed,
}

impl Entry {
    pub(crate) fn of(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Unknown, Self::Address)
    }

    fn address(self) -> Option<IpAddr> {
        match self {
            Self::Address(address) => Some(address),
            _ => None,
        }
    }
}

/// How requests are read, and by whom the next one is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene {
    /// `None` is a Unix socket.
    peer: Option<IpAddr>,
    pub(crate) hops: Option<usize>,
    prefix: u8,
}

impl Scene {
    /// From the next two bytes.
    pub(crate) fn choose(source: &mut Source<'_>) -> Self {
        let (choices, number) = (source.byte(), source.byte());
        let peer = match choices % 5 {
            0 => "10.0.0.5",
            1 => "2001:db8:aaaa::5",
            2 => "203.0.113.200",
            3 => "::ffff:10.0.0.6",
            _ => "",
        };
        let prefixes = [64, 32, 56, 128];
        Self {
            peer: peer.parse().ok(),
            hops: (choices & 0x80 != 0).then_some(usize::from(number) % MOST + 1),
            prefix: prefixes[usize::from(choices >> 5) % prefixes.len()],
        }
    }

    pub(crate) fn extractor(&self, plain: ClientAddr) -> ClientAddr {
        let extractor = plain.ipv6_prefix(self.prefix);
        match self.hops {
            Some(hops) => extractor.trusted_hops(hops),
            None => extractor,
        }
    }

    pub(crate) fn request(&self, header: &'static str, lines: &[HeaderValue]) -> Request<()> {
        let mut request = Request::new(());
        request.extensions_mut().insert(match self.peer {
            Some(address) => Peer::Address((address, 51_234).into()),
            None => Peer::UnixSocket,
        });
        for line in lines {
            request.headers_mut().append(header, line.clone());
        }
        request
    }

    /// The key of a request whose header has these entries, in their order.
    pub(crate) fn expected(&self, mut entries: Vec<Entry>) -> Key {
        let peer = self.peer.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        let peer = peer.to_canonical();
        if self.peer.is_some() && !is_proxy(peer) {
            return Key::address(self.network(peer));
        }
        let beyond = entries.len().saturating_sub(MOST);
        entries.drain(..beyond);
        entries.retain(|entry| *entry != Entry::Empty);
        entries.reverse();
        let settles = match self.hops {
            Some(hops) => {
                let malformed = entries.iter().position(|entry| *entry == Entry::Malformed);
                malformed.unwrap_or(usize::MAX).min(hops - 1)
            }
            None => {
                let is_no_proxy = |entry: &Entry| !entry.address().is_some_and(is_proxy);
                entries.iter().position(is_no_proxy).unwrap_or(usize::MAX)
            }
        };
        let settling = entries.get(settles).and_then(|entry| entry.address());
        match settling {
            Some(client) => Key::address(self.network(client)),
            None => {
                let mut hops = entries
                    .iter()
                    .take(settles)
                    .filter_map(|entry| entry.address());
                Key::unattributed(self.network(hops.next_back().unwrap_or(peer)))
            }
        }
    }

    /// By text, not by masks.
    fn network(&self, address: IpAddr) -> IpAddr {
        let IpAddr::V6(v6) = address else {
            return address;
        };
        let text = format!("{:032x}", v6.to_bits());
        if let Some(v4) = text.strip_prefix("0064ff9b0000000000000000") {
            return Ipv4Addr::from_bits(u32::from_str_radix(v4, 16).unwrap()).into();
        }
        let is_link_local = matches!(&text[..3], "fe8" | "fe9" | "fea" | "feb");
        if is_link_local || v6 == Ipv6Addr::LOCALHOST {
            return address;
        }
        let kept = &text[..usize::from(self.prefix) / 4];
        Ipv6Addr::from_bits(u128::from_str_radix(&format!("{kept:0<32}"), 16).unwrap()).into()
    }
}

fn is_proxy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.segments()[..3] == [0x2001, 0xdb8, 0xaaaa],
    }
}

pub(crate) fn key(extractor: &ClientAddr, request: &Request<()>) -> Key {
    let head = RequestHead::new(request);
    let key = extractor.extract(&head);
    key.expect("whatever the header says, there is a key")
}

/// `None` when nobody knows who the client is.
pub(crate) fn client(extractor: &ClientAddr, request: &Request<()>) -> Option<IpAddr> {
    extractor.address(&RequestHead::new(request)).ok()
}

/// The lines of a text that a header can have.
pub(crate) fn lines(text: &[u8]) -> Vec<HeaderValue> {
    let lines = text.split(|&byte| byte == b'\n');
    lines
        .filter_map(|line| HeaderValue::from_bytes(line).ok())
        .collect()
}

/// The lines with a further one before them.
pub(crate) fn after(first: &HeaderValue, lines: &[HeaderValue]) -> Vec<HeaderValue> {
    [std::slice::from_ref(first), lines].concat()
}

/// Whether what stands further left does not matter: two clients there give the same key.
pub(crate) fn is_settled(key_of: impl Fn(&[HeaderValue]) -> Key, lines: &[HeaderValue]) -> bool {
    let [one, other] = ["for=192.0.2.77", "for=198.51.100.77"].map(|element| {
        [element, &element[4..]].map(|client| {
            let client = HeaderValue::from_str(client).expect("an address");
            key_of(&after(&client, lines))
        })
    });
    let found = key_of(lines);
    one.iter().chain(&other).all(|key| *key == found)
}

/// One address, read in another way than the crate does. `hidden_ports` are those of RFC 7239.
pub(crate) fn address(text: &[u8], hidden_ports: bool) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let (address, port) = match (text.rfind(']'), text.matches(':').count()) {
        (Some(end), _) => {
            let inside = text[..end].strip_prefix('[')?;
            (IpAddr::V6(ipv6(inside)?), text[end + 1..].strip_prefix(':'))
        }
        (None, 0) => (IpAddr::V4(text.parse().ok()?), None),
        (None, 1) => {
            let (address, port) = text.split_once(':')?;
            (IpAddr::V4(address.parse().ok()?), Some(port))
        }
        (None, _) => (IpAddr::V6(ipv6(text)?), None),
    };
    let is_bare = text.ends_with(']') || !text.contains(']');
    if port.is_none() && !is_bare || port.is_some_and(|port| !is_port(port, hidden_ports)) {
        return None;
    }
    let address = address.to_canonical();
    let nobody = ["0.0.0.0", "::", "64:ff9b::"].map(|text| text.parse::<IpAddr>().ok());
    (!nobody.contains(&Some(address))).then_some(address)
}

fn ipv6(text: &str) -> Option<Ipv6Addr> {
    match text.rsplit_once('%') {
        Some((address, zone)) if is_name(zone) => address.parse().ok(),
        Some(_) => None,
        None => text.parse().ok(),
    }
}

fn is_port(text: &str, may_be_hidden: bool) -> bool {
    match text.strip_prefix('_') {
        Some(name) => may_be_hidden && is_name(name),
        None => {
            let is_number = text.chars().all(|c| c.is_ascii_digit());
            is_number && text.len() <= 5 && text.parse().is_ok_and(|port: u32| port < 65_536)
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}
