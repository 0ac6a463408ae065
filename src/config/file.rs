//! The whole file as a `Config`.

use std::collections::HashSet;
use std::time::Duration;

use toml::de::DeTable;

use super::fields::{Fields, Known, not_toml};
use super::in_code::InCode;
use super::proxies::Proxies;
use super::rejection::RejectionChoice;
use super::store::StoreChoice;
use super::variable::{Environment, Hidden};
use super::{Config, FileError, access, fixed, headers, policy, rate, routes, unsound};
use crate::http::is_preflight;
use crate::limiter::{Limiter, Rules};
use crate::policy::Policy;
use crate::store::{AlwaysAllow, DEFAULT_TIMEOUT};

const FIELDS: Known = &[
    "store",
    "tls",
    "prefix",
    "secret",
    "headers",
    "rejection",
    "timeout",
    "on_store_failure",
    "trusted_proxies",
    "client_address",
    "trusted_hops",
    "ipv6_prefix",
    "exempt",
    "skip_preflights",
    "deny",
    "allow",
    "policy",
];

/// Without it, a file of which the rest is lost, or not yet written, would switch off all limits.
const NO_POLICY: &str = "[[policy]] for each limit, or policy = [] if there are to be none";

/// `in_force` is the configuration of a running service that the new one replaces.
pub(super) fn read(
    text: &str,
    environment: Environment<'_>,
    in_code: InCode,
    in_force: Option<&Config>,
) -> Result<Config, FileError> {
    let known = [FIELDS, policy::FIELDS];
    let table = DeTable::parse(text).map_err(|error| not_toml(text, &error, &known))?;
    let fields = Fields::of_file(text, table.get_ref(), FIELDS)?;
    // Before any field is missed: it may stand in a policy, where it has no place.
    let tables = fields.policies("policy", policy::FIELDS)?;
    let store = StoreChoice::read(&fields, environment)?;
    let secret = secret(&fields, environment)?;
    let headers = headers::read(&fields)?;
    let rejection = RejectionChoice::read(&fields)?;
    let timeout = timeout(&fields)?;
    let config = Config {
        store,
        secret,
        headers,
        rejection,
        timeout,
        rules: rules(&fields, &tables, timeout, &in_code)?,
        in_code,
    };
    // Last: an error in what is there says more than that something is not there.
    fields.need("policy", NO_POLICY)?;
    match in_force {
        Some(in_force) => fixed::hold(&fields, in_force, &config).map(|()| config),
        None => Ok(config),
    }
}

fn secret(fields: &Fields<'_>, environment: Environment<'_>) -> Result<Option<String>, FileError> {
    let Some(field) = fields.get("secret") else {
        return Ok(None);
    };
    let variable = "a variable that holds it, such as { env = \"LIMITS_SECRET\" }";
    // What stands there is not shown, and not taken either: files are copied, mailed and committed.
    if !field.is_table() {
        return Err(field.refuse(format_args!(
            "a secret does not belong in a file, name {variable}"
        )));
    }
    let expected = "a value that the whole fleet shares, such as 32 random characters";
    let secret = Hidden::of_variable(field, environment, expected)?;
    Ok(Some(secret.into_text()))
}

fn timeout(fields: &Fields<'_>) -> Result<Duration, FileError> {
    let Some(field) = fields.get("timeout") else {
        return Ok(DEFAULT_TIMEOUT);
    };
    let timeout = rate::time(&field)?;
    let sound = Limiter::builder(AlwaysAllow).timeout(timeout).build();
    sound.map_err(|error| unsound::value(&field, error))?;
    Ok(timeout)
}

fn rules(
    fields: &Fields<'_>,
    tables: &[Fields<'_>],
    timeout: Duration,
    in_code: &InCode,
) -> Result<Rules, FileError> {
    let proxies = Proxies::read(fields)?;
    let mut rules = Rules::new()
        .policies(policies(tables, &proxies, timeout, in_code)?)
        .policies(in_code.policies.iter().cloned())
        .deny(access::read(fields.get("deny"), &proxies, tables)?)
        .allow(access::read(fields.get("allow"), &proxies, tables)?);
    if let Some(field) = fields.get("on_store_failure") {
        rules = rules.on_store_failure(policy::failure_mode(&field)?);
    }
    if let Some(field) = fields.get("exempt") {
        rules = rules.exempt(routes::exempt(&field)?);
    }
    if let Some(field) = fields.get("skip_preflights")
        && field.boolean()?
    {
        rules = rules.exempt(is_preflight);
    }
    Ok(rules)
}

fn policies(
    tables: &[Fields<'_>],
    proxies: &Proxies,
    timeout: Duration,
    in_code: &InCode,
) -> Result<Vec<Policy>, FileError> {
    let mut names = HashSet::new();
    let mut policies = Vec::with_capacity(tables.len());
    for table in tables {
        policies.push(policy::read(table, proxies, timeout)?);
        let Some(name) = table.get("name") else {
            continue;
        };
        let text = name.text("a string")?;
        if in_code.has_policy(text) {
            return Err(name.refuse("is that of a policy in code, give each policy its own"));
        }
        if !names.insert(text) {
            return Err(name.refuse("is used twice, give each policy its own"));
        }
    }
    Ok(policies)
}
