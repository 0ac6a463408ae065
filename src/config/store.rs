//! `store` and `prefix`: where permits are counted.

use std::error::Error;

use super::FileError;
use super::fields::Fields;
use super::variable::{Environment, Hidden};
use crate::error::StoreError;
use crate::store::{DEFAULT_PREFIX, RedisStore, RedisStoreBuilder};

const EXPECTED: &str = "\"memory\", or the address of a server, such as \"redis://127.0.0.1:6379\"";

/// The store that a file names.
#[derive(Clone)]
pub(super) enum StoreChoice {
    Memory,
    Redis { url: String, prefix: String },
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
        if address.text() == "memory" {
            return Ok(Self::Memory);
        }
        if !address.text().contains("://") {
            return Err(address.expected("no store has this name", EXPECTED));
        }
        // The store knows which servers there are and how to write them.
        if let Err(error) = redis(address.text(), prefix).connect_lazy() {
            return Err(address.refuse(reason(&error)));
        }
        Ok(Self::Redis {
            url: address.into_text(),
            prefix: prefix.to_owned(),
        })
    }

    /// `None` for the memory of this process.
    pub(super) fn address(&self) -> Option<&str> {
        match self {
            Self::Memory => None,
            Self::Redis { url, .. } => Some(url),
        }
    }

    pub(super) fn prefix(&self) -> Option<&str> {
        match self {
            Self::Memory => None,
            Self::Redis { prefix, .. } => Some(prefix),
        }
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

pub(super) fn redis(url: &str, prefix: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).prefix(prefix)
}

/// The reason beneath an error that names only its kind.
fn reason(error: &StoreError) -> String {
    match error.source() {
        Some(reason) => reason.to_string(),
        None => error.to_string(),
    }
}
