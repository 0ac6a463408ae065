//! The whole file as a `Config`.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use toml::de::DeTable;

use super::client_address::Proxies;
use super::configuration::InCode;
use super::error::line_of;
use super::fields::{Fields, KnownNames, not_toml};
use super::response::RejectionChoice;
use super::secret::{Environment, Hidden};
use super::store::StoreChoice;
use super::{Config, FileError, access, fixed, invalid, policy, regular_file, response, units};
use crate::http::is_preflight;
use crate::limiter::Rules;
use crate::policy::Policy;
use crate::store::DEFAULT_TIMEOUT;

const FIELDS: KnownNames = &[
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
    let headers = response::headers(&fields)?;
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
    let timeout = units::time(&field)?;
    Rules::new([])
        .validate(timeout)
        .map_err(|error| invalid::value(&field, error))?;
    Ok(timeout)
}

fn rules(
    fields: &Fields<'_>,
    tables: &[Fields<'_>],
    timeout: Duration,
    in_code: &InCode,
) -> Result<Rules, FileError> {
    let proxies = Proxies::read(fields)?;
    let of_file = policies(tables, &proxies, timeout, in_code)?;
    let in_code = in_code.policies.iter().cloned();
    let mut rules = Rules::new(of_file.into_iter().chain(in_code))
        .deny(access::read(fields.get("deny"), &proxies, tables)?)
        .allow(access::read(fields.get("allow"), &proxies, tables)?);
    if let Some(field) = fields.get("on_store_failure") {
        rules = rules.on_store_failure(policy::failure_mode(&field)?);
    }
    if let Some(field) = fields.get("exempt") {
        rules = rules.exempt(policy::exempt_routes(&field)?);
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

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or names the line, the policy and the field that is wrong,
    /// and what would be right.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Ok(Self::with_bytes(path.as_ref(), InCode::default())?.0)
    }

    /// Checks a text; the same as `parse`.
    ///
    /// # Errors
    ///
    /// Names the line, the policy and the field that is wrong, and what would be right.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        read(text, &variable_of_this_process, InCode::default(), None)
    }

    /// As [`from_file`](Self::from_file), together with the file's content.
    pub(super) fn with_bytes(path: &Path, in_code: InCode) -> Result<(Self, Vec<u8>), FileError> {
        let bytes = regular_file::read(path);
        let bytes = bytes.map_err(|source| FileError::unreadable(path, source))?;
        Ok((Self::of_bytes(&bytes, path, in_code, None)?, bytes))
    }

    /// Reads the content of a file. `in_force` is the configuration of a running service that it
    /// replaces.
    pub(super) fn of_bytes(
        bytes: &[u8],
        path: &Path,
        in_code: InCode,
        in_force: Option<&Self>,
    ) -> Result<Self, FileError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = line_of(bytes, error.valid_up_to());
            FileError::at(line, "the text is not UTF-8, save the file as UTF-8")
        });
        let environment = &variable_of_this_process;
        let config = text.and_then(|text| read(text, environment, in_code, in_force));
        config.map_err(|error| error.in_file(path))
    }
}

fn variable_of_this_process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

impl FromStr for Config {
    type Err = FileError;

    fn from_str(text: &str) -> Result<Self, FileError> {
        Self::from_toml(text)
    }
}
