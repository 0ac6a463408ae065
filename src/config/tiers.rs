//! `tiers = [...]`: other limits for requests in which a key has certain values.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::client_address::Proxies;
use super::fields::{Field, Fields, KnownNames};
use super::key::{NAMED_KEYS, NamedKey};
use super::{FileError, invalid, key, limit};
use crate::key::Key;
use crate::limit::Limit;
use crate::limiter::Rules;
use crate::policy::Policy;
use crate::request::{KeyExtractor, RequestHead};

const FIELDS: KnownNames = &["key", "values", "limit", "burst", "capacity"];

const EXPECTED: &str = "a list of tables, such as [{ key = \"header:x-plan\", values = [\"gold\"], \
                        limit = \"1000/min\" }]";

/// The tiers of a policy. A request has the limit of the first tier that it belongs to.
#[derive(Default)]
pub(super) struct Tiers {
    limits: Vec<Limit>,
    /// Each key is read once, however many tiers use it.
    keys: Vec<Members>,
}

/// The values of one key, and the tier of each.
struct Members {
    /// The key, as the file writes it.
    word: String,
    key: Box<dyn KeyExtractor>,
    tiers: HashMap<Key, usize>,
}

impl Tiers {
    /// Reads the tiers of this policy, which already has its own limit.
    pub(super) fn read<'t>(
        field: &Field<'t>,
        policy: &Policy,
        fields: &Fields<'t>,
        proxies: &Proxies,
        timeout: Duration,
    ) -> Result<Self, FileError> {
        let items = field.items().ok_or_else(|| no_table(field))?;
        if items.is_empty() {
            return Err(field.refuse("the list is empty, so there are no tiers; leave it out"));
        }
        let mut tiers = Self::default();
        for item in items {
            if !item.is_table() {
                return Err(no_table(&item));
            }
            let tier = item.table(FIELDS, EXPECTED)?;
            let limit = limit::of_tier(&tier, fields)?;
            refuse_invalid(&tier, policy, limit, timeout)?;
            tiers.add(&tier, limit, fields, proxies)?;
        }
        Ok(tiers)
    }

    fn add<'t>(
        &mut self,
        tier: &Fields<'t>,
        limit: Limit,
        policy: &Fields<'t>,
        proxies: &Proxies,
    ) -> Result<(), FileError> {
        let (key, named) = key_of(tier, policy)?;
        let values = tier.need("values", "values = [\"gold\"]")?;
        let members = self.members(&key, proxies)?;
        let number = self.limits.len();
        for value in named.values(&values)? {
            match self.keys[members].tiers.entry(value) {
                Entry::Vacant(entry) => entry.insert(number),
                // Not shown: it may be somebody's API key.
                Entry::Occupied(_) => {
                    return Err(values.refuse("a value is listed twice, leave one of the two out"));
                }
            };
        }
        self.limits.push(limit);
        Ok(())
    }

    /// The index of the members by this key, which is added if it is new.
    fn members(&mut self, key: &Field<'_>, proxies: &Proxies) -> Result<usize, FileError> {
        let word = key.text(NAMED_KEYS)?;
        let is_same = |members: &Members| members.word.eq_ignore_ascii_case(word);
        if let Some(members) = self.keys.iter().position(is_same) {
            return Ok(members);
        }
        self.keys.push(Members {
            word: word.to_owned(),
            key: key::read(key, proxies)?,
            tiers: HashMap::new(),
        });
        Ok(self.keys.len() - 1)
    }

    /// The limit of the first tier that the request belongs to.
    pub(super) fn limit(&self, request: &RequestHead<'_>) -> Option<Limit> {
        let tier = |members: &Members| {
            let key = members.key.extract(request).ok()?;
            members.tiers.get(&key).copied()
        };
        let first = self.keys.iter().filter_map(tier).min()?;
        self.limits.get(first).copied()
    }
}

/// Never shown: a value outside a table may be somebody's API key, too.
fn no_table(field: &Field<'_>) -> FileError {
    field.refuse(format_args!("expected {EXPECTED}"))
}

/// The key that decides who belongs to a tier: the policy's, unless the tier names another.
fn key_of<'t>(
    tier: &Fields<'t>,
    policy: &Fields<'t>,
) -> Result<(Field<'t>, NamedKey<'t>), FileError> {
    let own = policy
        .get("key")
        .filter(|key| NamedKey::read(key).is_some());
    let key = match (tier.get("key"), own) {
        (None, Some(own)) => own,
        _ => tier.need(
            "key",
            "key = \"header:<name>\", \"host\" or \"user\", as that of the policy is none of these",
        )?,
    };
    let named = NamedKey::read(&key).ok_or_else(|| key.expected(NAMED_KEYS))?;
    Ok((key, named))
}

/// The limiter's own checks of the policy with this limit, here so that their errors have a place.
fn refuse_invalid(
    tier: &Fields<'_>,
    policy: &Policy,
    limit: Limit,
    timeout: Duration,
) -> Result<(), FileError> {
    let own = policy.limit().rates().count();
    if !limit.is_nothing() && limit.rates().count() != own {
        let problem = format!("expected as many rates as the policy's own limit has: {own}");
        return Err(tier.need("limit", limit::A_RATE)?.refuse(problem));
    }
    refuse_invalid_policy(tier, policy.clone().with_limit(limit), timeout)
}

/// The limiter's own checks, here so that their errors have a place.
pub(super) fn refuse_invalid_policy(
    fields: &Fields<'_>,
    policy: Policy,
    timeout: Duration,
) -> Result<(), FileError> {
    Rules::new([policy])
        .validate(timeout)
        .map_err(|error| invalid::policy(fields, error))
}
