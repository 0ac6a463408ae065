//! Keys: two subjects are one key only when they are one subject.

use std::net::IpAddr;

use tower_throttle::{Key, Subject};

use super::source::Source;

/// What a key is made from, in a form that can be compared.
#[derive(Debug, PartialEq)]
enum Model {
    Everybody,
    Missing,
    Text(String),
    Bytes(Vec<u8>),
    Number(i128),
    Address(IpAddr),
    Unattributed(IpAddr),
    /// The name in lower case.
    Header(String, Vec<u8>),
    User(Box<Model>),
    All(Vec<Model>),
}

/// The bytes make two subjects: their keys, and the hashes of these, are equal when they are.
pub fn run(data: &[u8]) {
    let mut source = Source::new(data);
    let (one, other) = (Model::choose(&mut source, 4), Model::choose(&mut source, 4));
    let keys = (one.key(), other.key());
    assert_eq!(keys.0 == keys.1, one == other, "{one:?}\n{other:?}");
    let hashes = (Subject::from(&keys.0), Subject::from(&keys.1));
    assert_eq!(hashes.0 == hashes.1, one == other, "{one:?}\n{other:?}");
}

impl Model {
    fn choose(source: &mut Source<'_>, depth: u8) -> Self {
        let kind = source.byte() % if depth == 0 { 8 } else { 10 };
        match kind {
            0 => Self::Text(text(source)),
            1 => Self::Bytes(bytes(source)),
            2 => Self::Number(i128::from(source.u32()) - 128),
            3 => Self::Address(address(source)),
            4 => Self::Unattributed(address(source)),
            5 => Self::Header(text(source).to_ascii_lowercase(), bytes(source)),
            6 => Self::Everybody,
            7 => Self::Missing,
            8 => Self::User(Box::new(Self::choose(source, depth - 1))),
            _ => {
                let parts = source.byte() % 5;
                Self::All(
                    (0..parts)
                        .map(|_| Self::choose(source, depth - 1))
                        .collect(),
                )
            }
        }
    }

    fn key(&self) -> Key {
        match self {
            Self::Everybody => Key::everybody(),
            Self::Missing => Key::missing(),
            Self::Text(text) => Key::from(text),
            Self::Bytes(bytes) => Key::from(bytes.as_slice()),
            Self::Number(number) => Key::from(*number),
            Self::Address(address) => Key::address(*address),
            Self::Unattributed(hop) => Key::unattributed(*hop),
            Self::Header(name, value) => Key::header(&name.to_ascii_uppercase(), value),
            Self::User(id) => Key::user(id.key()),
            Self::All(parts) => Key::all(parts.iter().map(Self::key)),
        }
    }
}

fn bytes(source: &mut Source<'_>) -> Vec<u8> {
    let length = source.byte() % 24;
    source.take(length.into()).to_vec()
}

fn text(source: &mut Source<'_>) -> String {
    String::from_utf8_lossy(&bytes(source)).into_owned()
}

fn address(source: &mut Source<'_>) -> IpAddr {
    match <[u8; 16]>::try_from(source.take(16)) {
        Ok(octets) if octets[15] % 2 == 0 => octets.into(),
        Ok([a, b, c, d, ..]) => [a, b, c, d].into(),
        Err(_) => [192, 0, 2, 1].into(),
    }
}
