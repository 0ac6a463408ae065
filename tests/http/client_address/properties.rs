//! Compares the reading with an independently written oracle, and checks what no text may do.

use std::net::{IpAddr, SocketAddr};

use proptest::prelude::*;

use super::*;

/// What an entry means, before it is written down.
#[derive(Clone, Debug)]
enum Entry {
    Address(IpAddr),
    Junk(String),
    Empty,
}

fn entry() -> impl Strategy<Value = Entry> {
    let address = |addresses: &'static [&'static str]| {
        prop::sample::select(addresses).prop_map(|text| Entry::Address(text.parse().unwrap()))
    };
    prop_oneof![
        5 => address(&["10.0.0.7", "10.9.9.9", "2001:db8:aaaa::1"]),
        2 => address(&["203.0.113.9", "1.1.1.1", "2001:db8:1::7", "fe80::1"]),
        1 => prop::sample::select(&["unknown", "_x", "1.1.1", "0.0.0.0", "::", "1.1.1.1/8"][..])
            .prop_map(|text| Entry::Junk(text.to_owned())),
        1 => Just(Entry::Empty),
    ]
}

/// Entries on lines, each with its spelling.
fn header() -> impl Strategy<Value = Vec<Vec<(Entry, u8)>>> {
    let line = prop::collection::vec((entry(), any::<u8>()), 0..24);
    prop::collection::vec(line, 0..6)
}

fn spelt(address: IpAddr, how: u8) -> String {
    match (address, how % 3) {
        (IpAddr::V4(v4), 0) => v4.to_string(),
        (IpAddr::V4(v4), 1) => format!("{v4}:{how}"),
        (IpAddr::V4(v4), _) => format!("[::ffff:{v4}]:{how}"),
        (IpAddr::V6(v6), 0) => v6.to_string().to_uppercase(),
        (IpAddr::V6(v6), 1) => format!("[{v6}]"),
        (IpAddr::V6(v6), _) => format!("[{v6}%eth0]:{how}"),
    }
}

fn listed(entry: &Entry, how: u8) -> String {
    match entry {
        Entry::Address(address) => spelt(*address, how),
        Entry::Junk(text) => text.clone(),
        Entry::Empty => String::new(),
    }
}

fn as_element(entry: &Entry, how: u8) -> String {
    let text = match entry {
        Entry::Empty => return String::new(),
        entry => listed(entry, how),
    };
    match how % 4 {
        0 => format!(r#"for="{text}""#),
        1 => format!(r#"proto=https;For="{text}";by="_a, for=\"9.9.9.9\"""#),
        2 => format!(r#"host="\\";FOR="\{text}";"#),
        _ => format!(r#"x=1; for="{text}"; host=a.example:80"#),
    }
}

fn written(lines: &[Vec<(Entry, u8)>], entry: impl Fn(&Entry, u8) -> String) -> Vec<String> {
    let written = |(one, how): &(Entry, u8)| {
        let blanks = [" ", "", "\t", "  "][usize::from(how % 4)];
        format!("{blanks}{}{blanks}", entry(one, *how))
    };
    lines
        .iter()
        .map(|line| line.iter().map(written).collect::<Vec<_>>().join(","))
        .collect()
}

fn is_proxy(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] == 10,
        IpAddr::V6(v6) => v6.segments()[..3] == [0x2001, 0xdb8, 0xaaaa],
    }
}

/// The network by text, not by masks.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.segments()[0] != 0xfe80 => {
            let [a, b, c, d, ..] = v6.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::").parse().unwrap()
        }
        whole => whole,
    }
}

/// Drops the proxies from the end of the list, then looks at what is last.
fn oracle(mut entries: Vec<Entry>) -> Key {
    let beyond = entries.len().saturating_sub(64);
    entries.drain(..beyond);
    entries.retain(|entry| !matches!(entry, Entry::Empty));
    let mut last_hop: IpAddr = PROXY.parse().unwrap();
    while let Some(Entry::Address(address)) = entries.last() {
        if !is_proxy(*address) {
            return Key::address(network(*address));
        }
        last_hop = *address;
        entries.pop();
    }
    Key::unattributed(network(last_hop))
}

/// All entries; a line without any is one empty entry.
fn flat(lines: &[Vec<(Entry, u8)>]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for line in lines {
        entries.extend(line.iter().map(|(entry, _)| entry.clone()));
        if line.is_empty() {
            entries.push(Entry::Empty);
        }
    }
    entries
}

/// Reads a forwarded line from the left, with copies of everything.
mod from_the_left {
    use super::*;

    pub(super) fn entries(line: &str) -> Vec<Entry> {
        let elements = cut(line, ',');
        elements.iter().map(|element| entry(element)).collect()
    }

    fn cut(text: &str, separator: char) -> Vec<String> {
        let mut parts = vec![String::new()];
        let (mut is_quoted, mut is_escaped) = (false, false);
        for c in text.chars() {
            if c == separator && !is_quoted {
                parts.push(String::new());
                continue;
            }
            parts.last_mut().unwrap().push(c);
            if is_escaped {
                is_escaped = false;
            } else if c == '"' {
                is_quoted = !is_quoted;
            } else {
                is_escaped = c == '\\' && is_quoted;
            }
        }
        parts
    }

    fn entry(element: &str) -> Entry {
        if element.trim().is_empty() {
            return Entry::Empty;
        }
        let address = pairs(element).and_then(|pairs| {
            let mut nodes = pairs.iter().filter(|(name, _)| name == "for");
            match (nodes.next(), nodes.next()) {
                (Some((_, Some(node))), None) => address(node),
                _ => None,
            }
        });
        address.map_or(Entry::Junk(element.to_owned()), Entry::Address)
    }

    /// Names in lower case, and values if they are well formed.
    fn pairs(element: &str) -> Option<Vec<(String, Option<String>)>> {
        let mut pairs = Vec::new();
        for pair in cut(element, ';') {
            let pair = pair.trim();
            if pair.is_empty() {
                continue;
            }
            let (name, value) = pair.split_once('=')?;
            if name.is_empty() || name.contains([' ', '"', '\\', '[', ']', ':']) {
                return None;
            }
            let value = match value.strip_prefix('"') {
                Some(rest) => Some(unquoted(rest)?),
                None if value.contains([' ', '"']) => return None,
                None if value.contains(['\\', '[', ']', ':', '=']) => None,
                None => Some(value.to_owned()),
            };
            pairs.push((name.to_lowercase(), value));
        }
        Some(pairs)
    }

    fn unquoted(rest: &str) -> Option<String> {
        match (rest.chars().next()?, &rest[1..]) {
            ('"', "") => Some(String::new()),
            ('"', _) => None,
            ('\\', rest) => {
                let escaped = rest.chars().next()?;
                Some(format!("{escaped}{}", unquoted(&rest[1..])?))
            }
            (c, rest) => Some(format!("{c}{}", unquoted(rest)?)),
        }
    }

    fn address(node: &str) -> Option<IpAddr> {
        let socket = node.parse::<SocketAddr>().map(|socket| socket.ip());
        let bare = node.parse::<IpAddr>();
        let bracketed = format!("{node}:0").parse::<SocketAddr>();
        socket.or(bare).or(bracketed.map(|socket| socket.ip())).ok()
    }
}

fn forwarded_text() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(
        &[
            "for=",
            "For=",
            "for=\"",
            "x=",
            "\"",
            "\"",
            "\\",
            ",",
            ", ",
            ",",
            ";",
            " ",
            "=",
            "a",
            "203.0.113.9",
            "10.0.0.7",
            "[2001:db8:1::7]",
            "for=10.0.0.7",
            "for=\"10.0.0.7\"",
            ":80",
            "\\\"",
        ][..],
    );
    prop::collection::vec(pieces, 0..14).prop_map(|pieces| pieces.concat())
}

fn leaves_a_quote_open(text: &str) -> bool {
    let (mut is_quoted, mut is_escaped) = (false, false);
    for c in text.chars() {
        if is_escaped {
            is_escaped = false;
        } else {
            is_escaped = c == '\\' && is_quoted;
            is_quoted ^= c == '"';
        }
    }
    is_quoted
}

/// Anything that a header line can consist of.
fn any_text(length: usize) -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        any::<u8>(),
        prop::sample::select(&b",;=\"\\[]:%. \t0019for"[..]),
    ];
    prop::collection::vec(byte, 0..length).prop_map(|mut bytes| {
        bytes.retain(|&byte| (byte >= b' ' && byte != 0x7f) || byte == b'\t');
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn x_forwarded_for_is_read_as_the_oracle_reads_it(lines in header()) {
        let texts = written(&lines, listed);
        let found = key(&x_forwarded_for(), &request(tcp(PROXY), "x-forwarded-for", &texts));
        prop_assert!(found == oracle(flat(&lines)), "{texts:?}");
    }

    #[test]
    fn forwarded_is_read_as_the_oracle_reads_it(lines in header()) {
        let texts = written(&lines, as_element);
        let found = key(&forwarded(), &request(tcp(PROXY), "forwarded", &texts));
        prop_assert!(found == oracle(flat(&lines)), "{texts:?}");
    }

    #[test]
    fn the_quotes_of_forwarded_are_read_as_the_oracle_reads_them(
        lines in prop::collection::vec(forwarded_text(), 1..3),
    ) {
        let entries = lines.iter().flat_map(|line| from_the_left::entries(line)).collect();
        let found = key(&forwarded(), &request(tcp(PROXY), "forwarded", &lines));
        prop_assert!(found == oracle(entries), "{lines:?}");
    }

    #[test]
    fn text_left_of_the_client_never_changes_the_key(
        left in any_text(60),
        proxies in prop::collection::vec(Just(", 10.0.0.7"), 0..4),
        is_on_its_own_line: bool,
    ) {
        let right = format!("203.0.113.9{}", proxies.concat());
        let lines = if is_on_its_own_line {
            vec![left, right.into_bytes()]
        } else {
            vec![[&left, &b","[..], right.as_bytes()].concat()]
        };
        let found = key(&x_forwarded_for(), &request(tcp(PROXY), "x-forwarded-for", &lines));
        prop_assert!(found == client("203.0.113.9"));
    }

    #[test]
    fn text_left_of_the_client_can_only_make_it_unattributed(
        left in prop_oneof![
            forwarded_text(),
            any_text(60).prop_map(|text| text.iter().map(|byte| char::from(byte & 0x7f)).collect()),
        ],
        is_quoted: bool,
    ) {
        let left: String = left.chars().filter(|c| !c.is_control()).collect();
        let quote = if is_quoted { "\"" } else { "" };
        let right = format!("for={quote}203.0.113.9{quote};host={quote}a.example{quote}");
        let on_its_own_line = request(tcp(PROXY), "forwarded", &[left.clone(), right.clone()]);
        prop_assert!(key(&forwarded(), &on_its_own_line) == client("203.0.113.9"));

        let on_one_line = request(tcp(PROXY), "forwarded", &[format!("{left}, {right}")]);
        let expected = if leaves_a_quote_open(&left) {
            unattributed(PROXY)
        } else {
            client("203.0.113.9")
        };
        prop_assert!(key(&forwarded(), &on_one_line) == expected, "{left:?}");
    }

    #[test]
    fn no_bytes_make_it_panic_or_refuse(
        lines in prop::collection::vec(any_text(120), 0..4),
        hops in prop::option::of(1_usize..=64),
    ) {
        for (extractor, header) in [
            (x_forwarded_for(), "x-forwarded-for"),
            (forwarded(), "forwarded"),
            (single(), "cf-connecting-ip"),
        ] {
            let extractor = match hops {
                Some(hops) => extractor.trusted_hops(hops),
                None => extractor,
            };
            let request = request(tcp(PROXY), header, &lines);
            prop_assert!(extractor.extract(&RequestHead::new(&request)).is_ok());
        }
    }
}
