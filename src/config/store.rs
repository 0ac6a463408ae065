//! `store` and `prefix`: where permits are counted.

use super::FileError;
use super::fields::Fields;
use super::variable::{Environment, Hidden};
use crate::error::StoreError;
use crate::store::{DEFAULT_PREFIX, RedisStore, RedisStoreBuilder};

const EXPECTED: &str = "\"memory\", or the address of a server, such as \"redis://127.0.0.1:6379\"";

/// The store that a file names.
#[derive(Clone)]
pub(super) struct StoreChoice {
    /// `None` for the memory of this process.
    pub(super) url: Option<String>,
    pub(super) prefix: String,
}

impl StoreChoice {
    pub(super) fn read(
        fields: &Fields<'_>,
        environment: Environment<'_>,
    ) -> Result<Self, FileError> {
        let prefix = prefix(fields)?;
        let field = fields.need(
            "store",
            "store = \"memory\", or \"redis://127.0.0.1:6379\" for one count of a whole fleet",
        )?;
        let address = Hidden::read(field, environment, EXPECTED)?;
        let prefix = prefix.to_owned();
        if address.text() == "memory" {
            return Ok(Self { url: None, prefix });
        }
        if !address.text().contains("://") {
            return Err(address.expected("no store has this name", EXPECTED));
        }
        // The store knows which servers there are and how to write them.
        if let Err(error) = redis(address.text(), &prefix).connect_lazy() {
            return Err(address.refuse(reason(&error)));
        }
        let url = Some(address.into_text());
        Ok(Self { url, prefix })
    }

    /// The store to connect to; `None` for the memory of this process.
    pub(super) fn redis(&self) -> Option<RedisStoreBuilder> {
        let url = self.url.as_ref()?;
        Some(redis(url, &self.prefix))
    }
}

/// Checked for every store: a file that is tried in memory is later used with a server.
fn prefix<'t>(fields: &Fields<'t>) -> Result<&'t str, FileError> {
    let Some(field) = fields.get("prefix") else {
        return Ok(DEFAULT_PREFIX);
    };
    let prefix = field.text("a string")?;
    match redis("redis://localhost", prefix).connect_lazy() {
        Ok(_) => Ok(prefix),
        Err(error) => Err(field.here(reason(&error))),
    }
}

fn redis(url: &str, prefix: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).prefix(prefix)
}

/// What is wrong, without the kind in front: there is only one for what a file says.
fn reason(error: &StoreError) -> String {
    error.causes().unwrap_or_else(|| error.to_string())
}
