//! `Config` through serde, from whatever format the user's own configuration has.

use serde::de::{Deserialize, Deserializer, Error};

use super::Config;
use super::value::Table;

/// The same fields and words as in a file, in JSON, YAML or whatever serde can read: `Config` can
/// be a field of your own configuration. A field that is null is left out. An error names the policy,
/// the field and what would be right; the line only when the format adds it.
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
        // There is only one reader, and it reads TOML text, so the values are written as that.
        let table = Table::deserialize(deserializer)?.into_toml();
        let table = table.map_err(D::Error::custom)?;
        let text = toml::to_string(&table).map_err(D::Error::custom)?;
        Self::from_toml(&text).map_err(|error| D::Error::custom(error.without_line()))
    }
}
