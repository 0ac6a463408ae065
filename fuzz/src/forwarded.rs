//! `Forwarded` (RFC 7239).
//!
//! Two bytes of settings, then lines: the first is written left of the others.

use http::HeaderValue;
use tower_throttle::ClientAddr;

use super::proxies::{self, Entry, Scene, TRUSTED};
use super::source::Source;

/// The key is that of a second reading, which goes from the left. Text left of what settles it
/// never changes it, but that a quote left open leaves nobody as the client.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let scene = Scene::choose(&mut source);
    let lines = proxies::lines(source.rest());
    let Some((left, lines)) = lines.split_first() else {
        return;
    };
    let extractor = scene.extractor(ClientAddr::forwarded(TRUSTED).expect("sound ranges"));
    let request = |lines: &[HeaderValue]| scene.request("forwarded", lines);
    let key = |lines: &[HeaderValue]| proxies::key(&extractor, &request(lines));
    let found = key(lines);

    let entries = lines
        .iter()
        .flat_map(|line| entries(line.as_bytes()))
        .collect();
    assert!(found == scene.expected(entries), "{scene:?} {lines:?}");

    if proxies::is_settled(key, lines) {
        let further = proxies::after(left, lines);
        assert!(key(&further) == found, "{left:?} before {lines:?}");
    }
    // A line that names nobody may have a quote open that text on the left closes.
    if proxies::client(&extractor, &request(lines)).is_some()
        && proxies::is_settled(key, lines)
        && let Some((first, others)) = lines.split_first()
    {
        let joined = [left.as_bytes(), first.as_bytes()].join(&b',');
        let joined = HeaderValue::from_bytes(&joined).expect("both are values");
        let joined = proxies::after(&joined, others);
        let client = proxies::client(&extractor, &request(&joined));
        assert!(key(&joined) == found || client.is_none(), "{joined:?}");
    }
}

fn entries(line: &[u8]) -> Vec<Entry> {
    let elements = cut(line, b',');
    let entry = |element: &Vec<u8>| match element.trim_ascii().is_empty() {
        true => Entry::Empty,
        false => read(element).unwrap_or(Entry::Malformed),
    };
    elements.iter().map(entry).collect()
}

/// At each separator outside of quotes.
fn cut(text: &[u8], separator: u8) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let (mut is_quoted, mut is_escaped) = (false, false);
    for &byte in text {
        if byte == separator && !is_quoted {
            parts.push(Vec::new());
            continue;
        }
        if let Some(part) = parts.last_mut() {
            part.push(byte);
        }
        if is_escaped {
            is_escaped = false;
        } else if byte == b'"' {
            is_quoted = !is_quoted;
        } else {
            is_escaped = byte == b'\\' && is_quoted;
        }
    }
    parts
}

/// What an element says that is well formed throughout.
fn read(element: &[u8]) -> Option<Entry> {
    let mut nodes = Vec::new();
    for pair in cut(element, b';') {
        let pair = pair.trim_ascii();
        if pair.is_empty() {
            continue;
        }
        let equals = pair.iter().position(|&byte| byte == b'=')?;
        let (name, value) = (&pair[..equals], &pair[equals + 1..]);
        if name.is_empty() || !name.iter().all(|&byte| is_token(byte)) {
            return None;
        }
        let text = match value {
            [b'"', quoted @ ..] => Some(unquoted(quoted)?),
            plain if plain.iter().any(|byte| b"\" \t".contains(byte)) => return None,
            plain if plain.iter().all(|&byte| is_token(byte)) => Some(plain.to_vec()),
            _ => None,
        };
        if name.eq_ignore_ascii_case(b"for") {
            nodes.push(text);
        }
    }
    Some(match nodes.as_slice() {
        [Some(text)] => Entry::of(proxies::address(text, true)),
        _ => Entry::Unknown,
    })
}

/// What stands behind an opening quote, up to the closing one, which has to be the last byte.
fn unquoted(mut quoted: &[u8]) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    loop {
        match quoted {
            [b'"'] => return Some(text),
            [b'"', ..] | [] | [b'\\'] => return None,
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
                text.push(*byte);
                quoted = rest;
            }
        }
    }
}

fn is_token(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e) && !b"\"(),/:;<=>?@[\\]{}".contains(&byte)
}
