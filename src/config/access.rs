//! `deny` and `allow`: clients by address or by key.

use super::FileError;
use super::client_address::Proxies;
use super::fields::{Field, Fields, KnownNames};
use super::key::{NAMED_KEYS, NamedKey};
use crate::address::{parsed_range, whole_range};
use crate::key::Key;
use crate::limiter::{AccessList, of_clients};

const FIELDS: KnownNames = &["key", "values"];

const EXPECTED: &str = "a list of addresses, ranges and values of keys, such as \
                        [\"203.0.113.0/24\", \"2001:db8::1\", { key = \"header:x-user\", values = \
                        [\"mallory\"] }]";

/// Reads a list. `policies` are those with whose keys its values are compared.
pub(super) fn read(
    field: Option<Field<'_>>,
    proxies: &Proxies,
    policies: &[Fields<'_>],
) -> Result<AccessList, FileError> {
    let mut list = AccessList::new();
    let Some(field) = field else {
        return Ok(list);
    };
    let client = proxies.client_addr(&field)?;
    let mut ranges = Vec::new();
    for item in field.items().ok_or_else(|| unreadable(&field))? {
        if item.is_table() {
            list = list.keys(keys(&item, policies)?);
            continue;
        }
        let text = item.as_text().ok_or_else(|| unreadable(&item))?;
        let range = parsed_range(text).ok_or_else(|| unreadable(&item))?;
        let range = whole_range(field.name(), text, range);
        let range = range.and_then(|range| of_clients(field.name(), &client, text, range));
        // The error names the field itself.
        ranges.push(range.map_err(|error| item.here(error))?);
    }
    // Added all at once, so that a request's address is read once, however long the list.
    Ok(list.clients(client, ranges.into_iter().collect()))
}

/// Never shown: a value outside a table may be somebody's API key.
fn unreadable(field: &Field<'_>) -> FileError {
    field.refuse(format_args!("expected {EXPECTED}"))
}

/// `{ key = "header:x-user", values = ["mallory"] }`.
fn keys(item: &Field<'_>, policies: &[Fields<'_>]) -> Result<Vec<Key>, FileError> {
    let fields = item.table(FIELDS, EXPECTED)?;
    let key = fields.need("key", "key = \"header:x-user\"")?;
    let named = NamedKey::read(&key).ok_or_else(|| {
        let expected = NAMED_KEYS;
        key.expected(format_args!("{expected}, as it is the key of a policy"))
    })?;
    // Otherwise the values would be compared with nothing, unnoticed.
    let kind = key.text(NAMED_KEYS)?;
    let is_key_of = |policy: &Fields<'_>| {
        let key = policy.get("key");
        let key = key.and_then(|key| key.as_text());
        key.is_some_and(|key| key.eq_ignore_ascii_case(kind))
    };
    if !policies.iter().any(is_key_of) {
        let problem = format!("no policy has the key {kind:?}, so the list would match nobody");
        return Err(key.refuse(problem));
    }
    named.values(&fields.need("values", "values = [\"mallory\"]")?)
}
