//! Text, or what serde reads, as a `Config`; what cannot change while a service runs.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error};
use toml::de::DeTable;

use super::client_address::Proxies;
use super::configuration::InCode;
use super::error::line_of;
use super::fields::{Fields, KnownNames, not_toml};
use super::response::RejectionChoice;
use super::secret::{Environment, Hidden};
use super::store::StoreChoice;
use super::value::Table;
use super::{Config, FileError, access, invalid, policy, regular_file, response, units};
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

/// Required, because a file that is cut short or half written would otherwise switch off all limits.
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
    // Before required fields are checked: a missing one may have been written inside a policy by
    // mistake.
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
    // Last: an error in a field that is present helps more than a missing one.
    fields.need("policy", NO_POLICY)?;
    match in_force {
        Some(in_force) => hold(&fields, in_force, &config).map(|()| config),
        None => Ok(config),
    }
}

fn secret(fields: &Fields<'_>, environment: Environment<'_>) -> Result<Option<String>, FileError> {
    let Some(field) = fields.get("secret") else {
        return Ok(None);
    };
    let variable = "a variable that holds it, such as { env = \"LIMITS_SECRET\" }";
    // A text here is refused, and not shown: files are copied, mailed and committed.
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
    /// If the file cannot be read, or is invalid. The error names the line, the policy, the field and
    /// what to write instead.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, FileError> {
        Ok(Self::with_bytes(path.as_ref(), InCode::default())?.0)
    }

    /// Reads and checks a text in TOML; the same as `parse`.
    ///
    /// # Errors
    ///
    /// If the text is invalid. The error names the line, the policy, the field and what to write
    /// instead.
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

/// Deserialises the fields of a configuration file from JSON, YAML or any other format of serde, so
/// `Config` can be a field of your own configuration. A null field counts as absent. An error names the
/// policy, the field and what to write instead; the line only if the format adds it.
///
/// ```
/// use tower_throttle::Config;
///
/// #[derive(serde::Deserialize)]
/// struct Settings {
///     listen: String,
///     limits: Config,
/// }
///
/// let settings: Settings = serde_json::from_str(
///     r#"{
///         "listen": "127.0.0.1:3000",
///         "limits": {
///             "store": "memory",
///             "policy": [
///                 { "name": "client", "algorithm": "gcra", "limit": "100/min", "key": "peer" }
///             ]
///         }
///     }"#,
/// )?;
/// let limiter = settings.limits.connect_lazy()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // The only reader reads TOML text, so the values are written as TOML first.
        let table = Table::deserialize(deserializer)?.into_toml();
        let table = table.map_err(D::Error::custom)?;
        let text = toml::to_string(&table).map_err(D::Error::custom)?;
        Self::from_toml(&text).map_err(|error| D::Error::custom(error.without_line()))
    }
}

/// Refuses changes of the servers, the keys or the timeout. Writing out a default is no change, and
/// neither is another login on the same servers.
fn hold(fields: &Fields<'_>, before: &Config, after: &Config) -> Result<(), FileError> {
    let same = [
        ("store", after.store.has_servers_of(&before.store)),
        ("tls", after.store.has_tls_of(&before.store)),
        ("prefix", before.store.prefix == after.store.prefix),
        ("secret", before.secret == after.secret),
        ("timeout", before.timeout == after.timeout),
    ];
    for (name, is_same) in same {
        if !is_same {
            let problem = format!(
                "{name}: cannot change while the service runs, restart it or restore the old value"
            );
            return Err(fields.refuse_at(name, problem));
        }
    }
    Ok(())
}
