//! Finds the client's address from the peer, the trust settings and the lines of one header.

use std::net::{IpAddr, Ipv4Addr};

use super::super::peer::Peer;
use super::forwarded::{self, Entry, MAX_HOPS};
use crate::address::AddressRanges;

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attribution {
    /// From this client.
    Client(IpAddr),
    /// From an unknown client, with the reason.
    Unattributed {
        /// The last trusted hop.
        last_hop: IpAddr,
        why: Unknown,
    },
}

/// Why the client is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unknown {
    /// The header does not name the client.
    Unnamed,
    /// The header is malformed. Proxies do not write such text, but a client can send text that
    /// becomes malformed once a proxy appends to it.
    Malformed,
}

/// How the header's text is split into entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Syntax {
    List,
    Forwarded,
    Single,
}

impl From<Option<IpAddr>> for Entry {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or(Self::Unknown, Self::Address)
    }
}

/// Which proxies are trusted to write the header.
#[derive(Clone, Copy)]
pub(super) struct Trust<'a> {
    pub(super) ranges: &'a AddressRanges,
    /// The client's position from the right, counted from 1. If set, it replaces the ranges, but
    /// the peer must still be in them.
    pub(super) hops: Option<usize>,
}

pub(super) fn attribute<'a>(
    peer: Peer,
    trust: Trust<'_>,
    syntax: Syntax,
    mut lines: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> Attribution {
    let peer = match peer {
        // Dual-stack sockets report IPv4 peers as IPv4-mapped addresses.
        Peer::Address(address) => match address.ip().to_canonical() {
            address if trust.ranges.contain(address) => address,
            client => return Attribution::Client(client),
        },
        Peer::UnixSocket => Ipv4Addr::UNSPECIFIED.into(),
    };
    match syntax {
        Syntax::List => {
            let entries = lines
                .rev()
                .flat_map(|line| line.rsplit(|&byte| byte == b','));
            walk(peer, trust, entries, listed)
        }
        Syntax::Forwarded => {
            let entries = lines.rev().flat_map(forwarded::elements);
            walk(peer, trust, entries, forwarded::entry)
        }
        Syntax::Single => match (lines.next(), lines.next()) {
            // Several lines that were folded into one.
            (Some(line), None) if line.contains(&b',') => unattributed(peer, Unknown::Malformed),
            (Some(line), None) => walk(peer, trust, std::iter::once(line), listed),
            (None, _) => unattributed(peer, Unknown::Unnamed),
            // It is unknown which of them the proxy wrote.
            (Some(_), Some(_)) => unattributed(peer, Unknown::Malformed),
        },
    }
}

/// A list has no quoting: the text between two commas is one entry.
fn listed(text: &[u8]) -> Entry {
    forwarded::address(text).into()
}

/// Reads the entries from the last one to the first that decides. Earlier ones are not read.
fn walk<'a>(
    peer: IpAddr,
    trust: Trust<'_>,
    texts: impl Iterator<Item = &'a [u8]>,
    entry: impl Fn(&'a [u8]) -> Entry,
) -> Attribution {
    let mut last_hop = peer;
    let mut hops = 0;
    // Empty entries count too: a header of nothing but commas must not be read to its end.
    for text in texts.take(MAX_HOPS).map(<[u8]>::trim_ascii) {
        if text.is_empty() {
            continue;
        }
        hops += 1;
        let is_hop = |address| match trust.hops {
            Some(place) => hops < place,
            None => trust.ranges.contain(address),
        };
        match entry(text) {
            Entry::Address(proxy) if is_hop(proxy) => last_hop = proxy,
            Entry::Address(client) => return Attribution::Client(client),
            Entry::Unknown if trust.hops.is_some_and(|place| hops < place) => {}
            Entry::Unknown => return unattributed(last_hop, Unknown::Unnamed),
            Entry::Malformed => return unattributed(last_hop, Unknown::Malformed),
        }
    }
    unattributed(last_hop, Unknown::Unnamed)
}

fn unattributed(last_hop: IpAddr, why: Unknown) -> Attribution {
    Attribution::Unattributed { last_hop, why }
}
