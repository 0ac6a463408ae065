//! `Forwarded` (RFC 7239): elements between commas, made of pairs between semicolons. Values may be
//! quoted and then contain commas and semicolons themselves.

use std::borrow::Cow;
use std::net::IpAddr;

use super::node;

/// How many entries are read before a request is left unattributed. Bounds the work that a request
/// can cause.
pub(super) const MAX_HOPS: usize = 64;

/// What one entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Address(IpAddr),
    /// No address, but certainly one entry: it counts as a hop.
    Unknown,
    /// Text that breaks the syntax, so that the bounds of entries are unknown.
    Malformed,
}

/// The elements of one header line, the last one first, and at most the last [`MAX_HOPS`].
///
/// Whether a comma is quoted can only be told from the left. So the line is scanned once from
/// there, and the last commas are remembered. A quote that is never closed swallows what follows it
/// and leaves an invalid last element. So if a client leaves a quote open, neither its text nor
/// what the proxy wrote behind it is taken for an address.
pub(super) fn elements(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let commas = LastCommas::of(line);
    let mut end = Some(line.len());
    let mut taken = 0;
    std::iter::from_fn(move || {
        let stop = end?;
        let comma = commas.nth_last(taken);
        taken += 1;
        end = comma;
        let start = comma.map_or(0, |comma| comma + 1);
        line.get(start..stop)
    })
    // Earlier commas were forgotten: the text before the oldest one kept may be several elements.
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

/// What the `for` of one element says.
///
/// The whole element must be well formed. If a client left a quote open, quoted and unquoted text
/// are swapped. The last element then ends in a stray quote, is malformed, and nothing before it is
/// read.
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
                node::address_with_hidden_port(text)
            }
            Self::Plain(_) => None,
            Self::Quoted(text) => node::address_with_hidden_port(&unescaped(text)),
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

/// The text that a quoted string stands for.
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
