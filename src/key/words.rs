//! Keys in clear text, for policies that [show](crate::Policy::show_subject) them.

use std::borrow::Cow;
use std::net::IpAddr;

use super::{Domain, Key};

impl Key {
    /// The key in clear text: `alice`, `x-user: alice`, `203.0.113.9`. For people: keys of
    /// different kinds may read alike.
    pub(crate) fn in_words(&self) -> String {
        each(&self.0).join(", ")
    }
}

/// The text of each key in a sequence of encodings.
fn each(mut encoded: &[u8]) -> Vec<String> {
    let mut words = Vec::new();
    while let Some((domain, bytes, rest)) = first(encoded) {
        words.push(one(domain, bytes));
        encoded = rest;
    }
    words
}

/// The domain and the content of the first key of a sequence, and what follows.
fn first(encoded: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (domain, encoded) = encoded.split_first()?;
    let (length, encoded) = encoded.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (bytes, rest) = encoded.split_at_checked(length)?;
    Some((*domain, bytes, rest))
}

fn one(domain: u8, bytes: &[u8]) -> String {
    let is = |other: Domain| domain == other as u8;
    if is(Domain::Everybody) {
        "everybody".to_owned()
    } else if is(Domain::Missing) {
        "without a key".to_owned()
    } else if is(Domain::Negative) {
        number(bytes).unwrap_or_else(|| text(bytes).into_owned())
    } else if is(Domain::Address) {
        address(bytes).map_or_else(|| text(bytes).into_owned(), |address| address.to_string())
    } else if is(Domain::Header) {
        match first(bytes) {
            Some((_, name, value)) => format!("{}: {}", text(name), text(value)),
            None => text(bytes).into_owned(),
        }
    } else if is(Domain::Unattributed) {
        format!("somebody behind {}", each(bytes).join(", "))
    } else if is(Domain::User) || is(Domain::All) {
        each(bytes).join(", ")
    } else {
        text(bytes).into_owned()
    }
}

fn number(bytes: &[u8]) -> Option<String> {
    let number = bytes.try_into().ok()?;
    Some(i128::from_le_bytes(number).to_string())
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from).ok();
    v4.or_else(|| <[u8; 16]>::try_from(bytes).map(IpAddr::from).ok())
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_shown_as_its_maker_knows_it() {
        let address: IpAddr = "203.0.113.9".parse().unwrap();
        let network: IpAddr = "2001:db8::".parse().unwrap();
        for (key, words) in [
            (Key::from("alice"), "alice"),
            (Key::from(b"alice"), "alice"),
            (Key::from(-7_i64), "-7"),
            (
                Key::from(u128::MAX),
                "340282366920938463463374607431768211455",
            ),
            (Key::user("alice"), "alice"),
            (Key::user(7_u64), "7"),
            (Key::header("X-User", b"alice"), "x-user: alice"),
            (Key::address(address), "203.0.113.9"),
            (Key::address(network), "2001:db8::"),
            (Key::unattributed(address), "somebody behind 203.0.113.9"),
            (Key::everybody(), "everybody"),
            (Key::missing(), "without a key"),
            (
                Key::all([Key::user("alice"), Key::address(address)]),
                "alice, 203.0.113.9",
            ),
        ] {
            assert_eq!(key.in_words(), words);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_found_in_the_words_of_its_key(text in ".*", bytes: Vec<u8>) {
            for key in [
                Key::from(&*text),
                Key::user(&*text),
                Key::header("x-user", text.as_bytes()),
                Key::all([Key::from(&*bytes), Key::from(&*text)]),
            ] {
                prop_assert!(key.in_words().contains(&text));
            }
        }
    }
}
