//! The whole file as a `Config`.

use std::collections::HashSet;
use std::time::Duration;

use toml::de::DeTable;

use super::fields::{Fields, Known};
use super::proxies::Proxies;
use super::{Config, FileError, StoreChoice, headers, policy, rate};
use crate::limiter::Limiter;
use crate::policy::Policy;
use crate::store::RedisStore;

const FIELDS: Known = Known {
    now: &[
        "store",
        "prefix",
        "headers",
        "timeout",
        "on_store_failure",
        "trusted_proxies",
        "client_address",
        "policy",
    ],
    later: &["exempt"],
};

/// Stores that a later version will reach.
const LATER_STORES: [&str; 3] = ["rediss://", "redis-cluster://", "redis-sentinel://"];

pub(super) fn read(text: &str, table: &DeTable<'_>) -> Result<Config, FileError> {
    let fields = Fields::of_file(text, table, &FIELDS)?;
    let on_store_failure = fields.get("on_store_failure");
    let on_store_failure = on_store_failure.as_ref().map(policy::failure_mode);
    Ok(Config {
        store: store(&fields)?,
        headers: headers::read(&fields)?,
        timeout: timeout(&fields)?,
        on_store_failure: on_store_failure.transpose()?.unwrap_or_default(),
        policies: policies(&fields)?,
    })
}

fn store(fields: &Fields<'_>) -> Result<StoreChoice, FileError> {
    let expected = "\"memory\" or \"redis://[user:password@]host[:port][/database]\"";
    let prefix = fields.get("prefix");
    let prefix = prefix.as_ref().map(|prefix| prefix.text("a text"));
    let prefix = prefix.transpose()?;
    let field = fields.need(
        "store",
        "store = \"memory\", or \"redis://127.0.0.1:6379\" for one count of a whole fleet",
    )?;
    let url = field.text(expected)?;
    if url == "memory" {
        return Ok(StoreChoice::Memory);
    }
    if let Some(later) = LATER_STORES.iter().find(|later| url.starts_with(**later)) {
        return Err(field.refuse(format_args!("{later} is not supported yet, use {expected}")));
    }
    // The text is not shown: it may hold a password.
    if !url.starts_with("redis://") && !url.starts_with("redis+unix://") {
        return Err(field.refuse(format_args!("no store is named so, expected {expected}")));
    }
    if let Err(error) = RedisStore::builder(url).connect_lazy() {
        return Err(field.refuse(full(&error)));
    }
    if let (Some(field), Some(text)) = (fields.get("prefix"), prefix)
        && let Err(error) = RedisStore::builder(url).prefix(text).connect_lazy()
    {
        return Err(field.here(full(&error)));
    }
    Ok(StoreChoice::Redis {
        url: url.to_owned(),
        prefix: prefix.map(str::to_owned),
    })
}

/// The reason beneath an error that names only its kind.
fn full(error: &dyn std::error::Error) -> String {
    error.source().unwrap_or(error).to_string()
}

fn timeout(fields: &Fields<'_>) -> Result<Option<Duration>, FileError> {
    let Some(field) = fields.get("timeout") else {
        return Ok(None);
    };
    let timeout = rate::time(&field)?;
    let sound = Limiter::builder(policy::NoStore).timeout(timeout).build();
    sound.map_err(|error| field.here(error))?;
    Ok(Some(timeout))
}

fn policies(fields: &Fields<'_>) -> Result<Vec<Policy>, FileError> {
    let proxies = Proxies::read(fields)?;
    let mut names = HashSet::new();
    let mut policies = Vec::new();
    for table in &fields.tables("policy", &policy::FIELDS)? {
        policies.push(policy::read(table, &proxies)?);
        if let Some(name) = table.get("name")
            && !names.insert(name.text("a text")?)
        {
            return Err(name.refuse("is used twice, give each policy its own"));
        }
    }
    Ok(policies)
}
