//! `Forwarded` (RFC 7239): elements between commas, each with pairs between semicolons. Quoted
//! values may contain commas and semicolons.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::address::embedded;

/// The most entries that are read. Bounds the work that a request can cause.
pub(super) const MAX_HOPS: usize = 64;

/// The content of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Address(IpAddr),
    /// One entry without an address. It counts as a hop.
    Unknown,
    /// Malformed text, so that the bounds of entries are unknown.
    Malformed,
}

/// The elements of one header line, the last one first, and at most the last [`MAX_HOPS`].
///
/// Only a scan from the left can tell whether a comma is quoted. So the line is scanned once from
/// the left, and the last commas are kept. An unclosed quote makes the last element malformed. So
/// if a client sends one, neither its text nor what a proxy appends is read as an address.
pub(super) fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let commas = LastCommas::of(line);
    let mut end = Some(line.len());
    let mut read = 0;
    std::iter::from_fn(move || {
        let stop = end?;
        let comma = commas.nth_last(read);
        read += 1;
        end = comma;
        let start = comma.map_or(0, |comma| comma + 1);
        line.get(start..stop)
    })
    // The text before the oldest kept comma may be several elements.
    .take(MAX_HOPS)
}

/// The positions of the last [`MAX_HOPS`] commas outside of quotes.
struct LastCommas {
    places: [usize; MAX_HOPS],
    seen: usize,
}

impl LastCommas {
    fn of(line: &[u8]) -> Self {
        let mut commas = Self {
            places: [0; MAX_HOPS],
            seen: 0,
        };
        let mut bytes = line.iter().enumerate();
        let mut is_quoted = false;
        while let Some((place, byte)) = bytes.next() {
            match (byte, is_quoted) {
                (b'"', _) => is_quoted = !is_quoted,
                (b'\\', true) => {
                    bytes.next();
                }
                (b',', false) => {
                    commas.places[commas.seen % MAX_HOPS] = place;
                    commas.seen += 1;
                }
                _ => {}
            }
        }
        commas
    }

    /// The `n`-th comma from the right, counted from 0.
    fn nth_last(&self, n: usize) -> Option<usize> {
        let place = self.seen.checked_sub(n + 1)?;
        Some(self.places[place % MAX_HOPS])
    }
}

/// The `for` parameter of one element.
///
/// The whole element must be well formed. After an unclosed quote, quoted and unquoted text are
/// swapped. The last element then ends in a stray quote, so it is malformed and nothing before it
/// is read.
pub(super) fn entry(element: &[u8]) -> Entry {
    let (mut node, mut nodes) = (None, 0);
    let mut rest = element;
    while !rest.is_empty() {
        // The grammar allows empty pairs.
        if let Some(next) = rest.strip_prefix(b";") {
            rest = next.trim_ascii_start();
            continue;
        }
        let Some(pair) = Pair::read(rest) else {
            return Entry::Malformed;
        };
        if pair.name.eq_ignore_ascii_case(b"for") {
            node = Some(pair.value);
            nodes += 1;
        }
        rest = pair.rest.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b";") {
            return Entry::Malformed;
        }
    }
    match node {
        Some(node) if nodes == 1 => node.address().into(),
        _ => Entry::Unknown,
    }
}

struct Pair<'a> {
    name: &'a [u8],
    value: Value<'a>,
    rest: &'a [u8],
}

enum Value<'a> {
    Plain(&'a [u8]),
    /// Without the quotes, but with the backslashes.
    Quoted(&'a [u8]),
}

impl Value<'_> {
    fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Plain(text) if text.iter().all(|&byte| is_token_byte(byte)) => {
                address_with_hidden_port(text)
            }
            Self::Plain(_) => None,
            Self::Quoted(text) => address_with_hidden_port(&unescaped(text)),
        }
    }
}

impl<'a> Pair<'a> {
    /// The pair that `text` begins with.
    fn read(text: &'a [u8]) -> Option<Self> {
        let (name, rest) = split_where(text, |byte| !is_token_byte(byte));
        let rest = rest.strip_prefix(b"=")?;
        let (value, rest) = match rest.strip_prefix(b"\"") {
            Some(rest) => {
                let end = closing_quote(rest)?;
                (Value::Quoted(&rest[..end]), &rest[end + 1..])
            }
            None => {
                // Proxies write unquoted ports after `host=`; only an address has to be a token.
                let (value, rest) =
                    split_where(rest, |byte| matches!(byte, b';' | b'"' | b' ' | b'\t'));
                (Value::Plain(value), rest)
            }
        };
        (!name.is_empty()).then_some(Self { name, value, rest })
    }
}

fn split_where(text: &[u8], is_end: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let end = text.iter().position(|&byte| is_end(byte));
    text.split_at(end.unwrap_or(text.len()))
}

fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut bytes = text.iter().enumerate();
    while let Some((place, byte)) = bytes.next() {
        match byte {
            b'"' => return Some(place),
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
    None
}

/// The unescaped text of a quoted string.
fn unescaped(quoted: &[u8]) -> Cow<'_, [u8]> {
    if !quoted.contains(&b'\\') {
        return Cow::Borrowed(quoted);
    }
    let mut bytes = quoted.iter();
    let mut text = Vec::with_capacity(quoted.len());
    while let Some(&byte) = bytes.next() {
        let escaped = if byte == b'\\' { bytes.next() } else { None };
        text.push(*escaped.unwrap_or(&byte));
    }
    Cow::Owned(text)
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Parses IPv4, IPv4:port, IPv6, \[IPv6\] or \[IPv6\]:port, without surrounding blanks.
///
/// Strict: no octal, hexadecimal or shortened IPv4, and no unspecified address. The zone of an IPv6
/// address is dropped, and an IPv4-mapped address becomes IPv4.
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
    address_and_port(text, is_port)
}

/// As [`address`], with a port that may also be obfuscated, as in RFC 7239: `192.0.2.1:_web`.
pub(super) fn address_with_hidden_port(text: &[u8]) -> Option<IpAddr> {
    address_and_port(text, |port| is_port(port) || is_hidden_port(port))
}

fn address_and_port(text: &[u8], is_port: impl Fn(&str) -> bool) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let address = if let Some(bracketed) = text.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        if !rest.is_empty() && !is_port(rest.strip_prefix(':')?) {
            return None;
        }
        ipv6(address)?
    } else {
        match text.split_once(':') {
            None => text.parse::<Ipv4Addr>().ok()?.into(),
            Some((address, port)) if is_port(port) => address.parse::<Ipv4Addr>().ok()?.into(),
            Some(_) => ipv6(text)?,
        }
    };
    let address = address.to_canonical();
    (!embedded(address).is_unspecified()).then_some(address)
}

fn ipv6(text: &str) -> Option<IpAddr> {
    let address = match text.split_once('%') {
        Some((_, zone)) if zone.is_empty() || !zone.bytes().all(is_name_byte) => return None,
        Some((address, _)) => address,
        None => text,
    };
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

fn is_port(text: &str) -> bool {
    // Checked by hand because the standard parser also accepts a plus sign.
    (1..=5).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_digit())
        && text.parse::<u16>().is_ok()
}

fn is_hidden_port(text: &str) -> bool {
    text.strip_prefix('_')
        .is_some_and(|name| !name.is_empty() && name.bytes().all(is_name_byte))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}
