//! Subjects as an operator writes them in JSON.

use std::net::{IpAddr, Ipv6Addr};

use http::HeaderName;
use serde::Deserialize;
use serde_json::{Value, json};

use super::response::Problem;
use crate::http::Ipv6Prefix;
use crate::key::{Key, Subject};
use crate::limiter::{Limiter, PolicySummary};
use crate::request::KeyKind;

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
    Hash(String),
}

#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = r#"{"name": "x-user", "value": "alice"}"#
)]
struct Header {
    name: String,
    value: String,
}

/// A number and its digits are the same user.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a user is a string or a whole number")]
enum Id {
    Text(String),
    Number(Number),
}

/// As wide as numbers that identify users get.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a number is a whole number of 64 bits")]
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

/// Reads a subject of a policy; see [`Operator`](super::Operator) for the syntax.
pub(super) fn read(
    limiter: &Limiter,
    policy: &PolicySummary,
    json: Value,
) -> Result<Subject, Problem> {
    let kind = &policy.key;
    if !is_of(kind, &json) {
        return Err(Problem::bad_request(format!(
            "subject: got what no request has as its key, expected {}: the policy's key is {kind}",
            template(kind)
        )));
    }
    let part = |part| key_of(limiter, &policy.name, part);
    let key = match json {
        Value::Array(parts) if parts.is_empty() => {
            return Err(Problem::bad_request(
                "subject: got an empty list, expected at least one part",
            ));
        }
        Value::Array(parts) => {
            let parts = parts.into_iter().map(|json| part(parsed(json)?));
            Key::all(parts.collect::<Result<Vec<_>, _>>()?)
        }
        whole => match parsed(whole)? {
            Part::Hash(hash) => return Ok(hash.parse()?),
            whole => part(whole)?,
        },
    };
    Ok(limiter.subject_of(key))
}

/// Whether a request can have such a key. If it is only a part of the key, or another one, the answer
/// would be about a subject that there never is, with all of its quota left.
fn is_of(kind: &KeyKind, json: &Value) -> bool {
    let field = |name| json.get(name);
    // The hash is that of any key, and a key that is missing may be the whole.
    if field("hash").is_some() || *json == "missing" {
        return true;
    }
    match kind {
        // Outside HTTP a policy without an extractor is asked about any key.
        KeyKind::Everybody | KeyKind::Other => true,
        KeyKind::Address => field("address").or(field("unattributed")).is_some(),
        KeyKind::Header(name) => field("header").is_some_and(|header| {
            let given = header.get("name").and_then(Value::as_str);
            given.is_none_or(|given| given.eq_ignore_ascii_case(name))
        }),
        KeyKind::Host => field("text").is_some(),
        // What identifies a user may be a key of another kind, such as a tenant and a user.
        KeyKind::User => field("text").or(field("number")).is_none(),
        KeyKind::All(kinds) => json.as_array().is_some_and(|parts| {
            let mut pairs = kinds.iter().zip(parts);
            kinds.len() == parts.len() && pairs.all(|(kind, part)| is_of(kind, part))
        }),
    }
}

/// A subject of this kind, with dots for what is to be filled in; `null` where it can be anything.
pub(super) fn template(kind: &KeyKind) -> Value {
    const BLANK: &str = "...";
    match kind {
        KeyKind::Everybody => json!("everybody"),
        KeyKind::Address => json!({ "address": BLANK }),
        KeyKind::Header(name) => json!({ "header": { "name": name, "value": BLANK } }),
        KeyKind::Host => json!({ "text": BLANK }),
        KeyKind::User => json!({ "user": BLANK }),
        KeyKind::All(kinds) => kinds.iter().map(template).collect(),
        KeyKind::Other => Value::Null,
    }
}

fn parsed(json: Value) -> Result<Part, Problem> {
    Part::deserialize(json).map_err(|error| Problem::bad_request(format!("subject: {error}")))
}

fn key_of(limiter: &Limiter, policy: &str, part: Part) -> Result<Key, Problem> {
    let address = |text: &str| address(limiter, policy, text);
    Ok(match part {
        Part::Everybody => Key::everybody(),
        Part::Missing => Key::missing(),
        Part::Address(text) => Key::address(address(&text)?),
        Part::Unattributed(text) => Key::unattributed(address(&text)?),
        Part::Header(header) => {
            // As the extractor reads it: a name that no header can have is no key.
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
        Part::Hash(_) => {
            return Err(Problem::bad_request(
                "subject: a hash is that of a whole subject, and cannot be part of a list",
            ));
        }
    })
}

/// The address that stands for a client in this policy's keys. If the text gives the number of bits
/// that identify an IPv6 client, no policy is consulted.
fn address(limiter: &Limiter, policy: &str, text: &str) -> Result<IpAddr, Problem> {
    let unreadable = || {
        wrong(
            "address",
            text,
            "an address such as 203.0.113.9 or 2001:db8::7, or an IPv6 one with the 32 to 128 \
             bits that the policy tells clients apart by, such as 2001:db8::7/56",
        )
    };
    let Some((network, bits)) = text.split_once('/') else {
        let address = text.trim().parse().map_err(|_| unreadable())?;
        let canonical = limiter.canonical_address(policy, address)?;
        let canonical = canonical.or_else(|| the_same_by_any_prefix(address));
        return canonical.ok_or_else(|| {
            wrong(
                "address",
                text,
                "also how many bits the policy's keys have, such as 2001:db8::7/64, or \
                 2001:db8::7/128 for the whole address: its extractor does not tell",
            )
        });
    };
    // A range of IPv4 addresses is nobody's key.
    let network: Ipv6Addr = network.trim().parse().map_err(|_| unreadable())?;
    let prefix = bits.parse().map(Ipv6Prefix::new).ok();
    let prefix = prefix.filter(|prefix| prefix.validate().is_ok());
    Ok(prefix.ok_or_else(unreadable)?.canonical(network.into()))
}

/// The canonical address if it is the same for every prefix, as for IPv4 and link-local addresses.
fn the_same_by_any_prefix(address: IpAddr) -> Option<IpAddr> {
    let [widest, narrowest] = [32, 128].map(|bits| Ipv6Prefix::new(bits).canonical(address));
    (widest == narrowest).then_some(widest)
}

fn wrong(field: &str, given: &str, expected: &str) -> Problem {
    Problem::bad_request(format!(
        "subject: {field}: got {given:?}, expected {expected}"
    ))
}
