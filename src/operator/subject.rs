//! Subjects as an operator writes them in JSON.

use std::net::IpAddr;

use http::HeaderName;
use serde::Deserialize;
use serde_json::Value;

use super::problem::Problem;
use crate::http::Ipv6Prefix;
use crate::key::{Key, Subject};
use crate::limiter::Limiter;

/// One part of a key, or all of it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Part {
    Everybody,
    Missing,
    Address(String),
    Unattributed(String),
    Header(Header),
    User(Id),
    Text(String),
    Number(Number),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    value: String,
}

/// A number and its digits are different users.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a whole number")]
enum Id {
    Text(String),
    Number(Number),
}

/// As wide as the numbers that identify users are.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a whole number of 64 bits")]
enum Number {
    Signed(i64),
    Unsigned(u64),
}

impl From<Number> for Key {
    fn from(number: Number) -> Self {
        match number {
            Number::Signed(number) => number.into(),
            Number::Unsigned(number) => number.into(),
        }
    }
}

/// Reads a subject; see [`Operator`](super::Operator) for how they are written.
pub(super) fn read(limiter: &Limiter, json: Value) -> Result<Subject, Problem> {
    if let Some(hash) = hash(&json) {
        return Ok(hash.parse()?);
    }
    let key = match json {
        Value::Array(parts) if parts.is_empty() => {
            return Err(Problem::bad_request(
                "subject: got an empty list, expected at least one part",
            ));
        }
        Value::Array(parts) => {
            let parts = parts.into_iter().map(part);
            Key::all(parts.collect::<Result<Vec<_>, _>>()?)
        }
        whole => part(whole)?,
    };
    Ok(limiter.subject_of(key))
}

/// The value of an object that has a hash and nothing else.
fn hash(json: &Value) -> Option<&str> {
    let fields = json.as_object().filter(|fields| fields.len() == 1)?;
    fields.get("hash")?.as_str()
}

fn part(json: Value) -> Result<Key, Problem> {
    let part = Part::deserialize(json)
        .map_err(|error| Problem::bad_request(format!("subject: {error}")))?;
    Ok(match part {
        Part::Everybody => Key::everybody(),
        Part::Missing => Key::missing(),
        Part::Address(text) => Key::address(address(&text)?),
        Part::Unattributed(text) => Key::unattributed(address(&text)?),
        Part::Header(header) => {
            // As the extractor reads it: what no header can be named is nobody's key.
            let name = HeaderName::from_bytes(header.name.as_bytes())
                .map_err(|_| wrong("header", &header.name, "the name of a header"))?;
            Key::header(
                name.as_str(),
                header.value.trim_matches([' ', '\t']).as_bytes(),
            )
        }
        Part::User(Id::Text(id)) => Key::user(id),
        Part::User(Id::Number(id)) => Key::user(id),
        Part::Text(text) => Key::from(text),
        Part::Number(number) => Key::from(number),
    })
}

/// The address that stands for a client in keys. An IPv6 address may say by how many bits the
/// policy tells clients apart.
fn address(text: &str) -> Result<IpAddr, Problem> {
    let (address, prefix) = match text.split_once('/') {
        None => (text, Some(Ipv6Prefix::default())),
        Some((address, bits)) => (address, bits.parse().ok().map(Ipv6Prefix::new)),
    };
    let address: Option<IpAddr> = address.trim().parse().ok();
    let prefix = prefix.filter(|prefix| prefix.validate().is_ok());
    // A range of IPv4 addresses is nobody's key.
    let is_sound = |address: &IpAddr| address.is_ipv6() || !text.contains('/');
    match (address.filter(is_sound), prefix) {
        (Some(address), Some(prefix)) => Ok(prefix.canonical(address)),
        _ => Err(wrong(
            "address",
            text,
            "an address as 203.0.113.9 or 2001:db8::7, or an IPv6 one with the 32 to 128 bits that \
             the policy tells clients apart by, as 2001:db8::7/56",
        )),
    }
}

fn wrong(field: &str, given: &str, expected: &str) -> Problem {
    Problem::bad_request(format!(
        "subject: {field}: got {given:?}, expected {expected}"
    ))
}
