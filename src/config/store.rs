//! `store`, `tls` and `prefix`: where permits are counted.

use super::FileError;
use super::fields::Fields;
use super::secret::{Environment, Hidden};
use super::tls::TlsChoice;
use crate::error::StoreError;
use crate::store::{DEFAULT_PREFIX, Logins, RedisStore, RedisStoreBuilder};

const EXPECTED: &str = "\"memory\", or the address of a server, such as \"redis://127.0.0.1:6379\"";

/// The store that a file names.
#[derive(Clone)]
pub(super) struct StoreChoice {
    /// `None` for the memory of this process.
    server: Option<ServerChoice>,
    tls: TlsChoice,
    pub(super) prefix: String,
}

/// The servers that a file names.
#[derive(Clone)]
struct ServerChoice {
    url: String,
    /// Those of the URL or, after a reload, those of the connections, which are the same.
    logins: Logins,
}

impl StoreChoice {
    pub(super) fn read(
        fields: &Fields<'_>,
        environment: Environment<'_>,
    ) -> Result<Self, FileError> {
        let prefix = prefix(fields)?.to_owned();
        let field = fields.need(
            "store",
            "store = \"memory\", or \"redis://127.0.0.1:6379\" for one count of a whole fleet",
        )?;
        let address = Hidden::read(field, environment, EXPECTED)?;
        // Also of a file that is tried in memory.
        let tls = TlsChoice::read(fields)?;
        let server = match address.text() {
            "memory" => None,
            text if !text.contains("://") => {
                return Err(address.expected("no store has this name", EXPECTED));
            }
            // The store knows which servers there are and how to write them.
            text => match Logins::of(text) {
                Ok(logins) => Some(ServerChoice {
                    url: text.to_owned(),
                    logins,
                }),
                Err(problem) => return Err(address.refuse(problem)),
            },
        };
        let choice = Self {
            server,
            tls,
            prefix,
        };
        if let Some(Err(error)) = choice.redis().map(RedisStoreBuilder::connect_lazy) {
            let problem = format!("tls: {}", reason(&error));
            return Err(fields.refuse_at("tls", problem));
        }
        Ok(choice)
    }

    /// The store to connect to; `None` for the memory of this process.
    pub(super) fn redis(&self) -> Option<RedisStoreBuilder> {
        let server = self.server.as_ref()?;
        let store = RedisStore::builder(&server.url)
            .prefix(&self.prefix)
            .logins(&server.logins);
        Some(self.tls.apply(store))
    }

    /// Whether permits are counted on the same servers, whoever logs in there.
    pub(super) fn has_servers_of(&self, other: &Self) -> bool {
        match (&self.server, &other.server) {
            (None, None) => true,
            (Some(one), Some(other)) => Logins::are_for_same_servers(&one.url, &other.url),
            _ => false,
        }
    }

    pub(super) fn has_tls_of(&self, other: &Self) -> bool {
        self.tls == other.tls
    }

    /// Logs the connections of another choice, which has the same servers, in as this one says.
    pub(super) fn log_in_connections_of(&mut self, other: &Self) {
        if let (Some(server), Some(connected)) = (&mut self.server, &other.server) {
            connected.logins.replace_by(&server.logins);
            server.logins = connected.logins.clone();
        }
    }

    #[cfg(test)]
    pub(super) fn url(&self) -> Option<&str> {
        let server = self.server.as_ref()?;
        Some(&server.url)
    }
}

/// Checked for every store: a file that is tried in memory is later used with a server.
fn prefix<'t>(fields: &Fields<'t>) -> Result<&'t str, FileError> {
    let Some(field) = fields.get("prefix") else {
        return Ok(DEFAULT_PREFIX);
    };
    let prefix = field.text("a string")?;
    let store = RedisStore::builder("redis://localhost").prefix(prefix);
    match store.connect_lazy() {
        Ok(_) => Ok(prefix),
        Err(error) => Err(field.here(reason(&error))),
    }
}

/// What is wrong, without the kind in front: there is only one for what a file says.
fn reason(error: &StoreError) -> String {
    error.causes().unwrap_or_else(|| error.to_string())
}
