//! `store`, `tls` and `prefix`: the store and how to connect to it.

use std::path::Path;

use super::fields::{Field, Fields, KnownNames};
use super::secret::{Environment, Hidden};
use super::{FileError, regular_file};
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
    /// The logins of the URL. After a reload, those that the open connections share.
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

    /// Whether both choices name the same servers, with any login.
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

    /// Logs in the connections of `other`, which has the same servers, with the logins of this choice.
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

/// The problem without the kind in front, which is the same for all errors of a file.
fn reason(error: &StoreError) -> String {
    error.causes().unwrap_or_else(|| error.to_string())
}

const TLS_FIELDS: KnownNames = &[
    "ca_file",
    "certificate_file",
    "key_file",
    "server_name",
    DANGER,
];
const DANGER: &str = "danger_accept_invalid_certs";

const TLS: &str = "a table, such as { ca_file = \"/etc/ssl/redis-ca.pem\" }";

/// The TLS settings of a file.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct TlsChoice {
    authority: Option<PemFile>,
    /// The client's certificate and its key.
    client: Option<(PemFile, PemFile)>,
    server_name: Option<String>,
    accepts_any_certificate: bool,
}

/// A file, and its content when the configuration was read.
#[derive(Clone)]
struct PemFile {
    path: String,
    #[cfg_attr(
        not(feature = "redis-tls"),
        expect(dead_code, reason = "no store takes it without TLS")
    )]
    pem: Vec<u8>,
}

/// By the path: the certificate there may be replaced at any time, which is no change of the
/// configuration.
impl PartialEq for PemFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for PemFile {}

impl TlsChoice {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FileError> {
        let Some(field) = fields.get("tls") else {
            return Ok(Self::default());
        };
        let table = field.table(TLS_FIELDS, TLS)?;
        let accepts_any_certificate = accepts_any_certificate(&table)?;
        if cfg!(not(feature = "redis-tls")) {
            return Err(needs(&field, "redis-tls"));
        }
        let choice = Self {
            authority: table.get("ca_file").map(pem_file).transpose()?,
            client: client(&table)?,
            server_name: server_name(&table)?,
            accepts_any_certificate,
        };
        let is_checked = choice.authority.is_some() || choice.server_name.is_some();
        if accepts_any_certificate && is_checked {
            let problem = format!(
                "tls.{DANGER}: no certificate is checked then, leave out ca_file and server_name"
            );
            return Err(field.here(problem));
        }
        Ok(choice)
    }

    #[cfg(feature = "redis-tls")]
    pub(super) fn apply(&self, mut store: RedisStoreBuilder) -> RedisStoreBuilder {
        if let Some(authority) = &self.authority {
            store = store.ca_certificate(&*authority.pem);
        }
        if let Some((certificate, key)) = &self.client {
            store = store.client_certificate(&*certificate.pem, &*key.pem);
        }
        if let Some(name) = &self.server_name {
            store = store.tls_server_name(name);
        }
        #[cfg(feature = "redis-tls-insecure")]
        if self.accepts_any_certificate {
            store = store.danger_accept_invalid_certs();
        }
        store
    }

    /// There are none.
    #[cfg(not(feature = "redis-tls"))]
    pub(super) fn apply(&self, store: RedisStoreBuilder) -> RedisStoreBuilder {
        store
    }

    /// Whether a store could use these settings.
    fn is_valid(&self) -> bool {
        let store = crate::store::RedisStore::builder("rediss://localhost");
        self.apply(store).connect_lazy().is_ok()
    }
}

fn needs(field: &Field<'_>, feature: &str) -> FileError {
    field.refuse(format_args!(
        "needs the feature {feature:?} of tower-throttle"
    ))
}

fn accepts_any_certificate(table: &Fields<'_>) -> Result<bool, FileError> {
    match table.get(DANGER) {
        Some(field) if !field.boolean()? => Ok(false),
        Some(field) if cfg!(not(feature = "redis-tls-insecure")) => {
            Err(needs(&field, "redis-tls-insecure"))
        }
        field => Ok(field.is_some()),
    }
}

fn pem_file(field: Field<'_>) -> Result<PemFile, FileError> {
    let file = any_file(&field)?;
    let as_authority = TlsChoice {
        authority: Some(file.clone()),
        ..TlsChoice::default()
    };
    match as_authority.is_valid() {
        true => Ok(file),
        false => Err(field.refuse("expected a file with certificates in PEM")),
    }
}

fn any_file(field: &Field<'_>) -> Result<PemFile, FileError> {
    let path = field.text("the path of a file in PEM")?;
    let pem = regular_file::read(Path::new(path));
    let pem = pem.map_err(|error| {
        field.refuse(format_args!("the file {path:?} cannot be read ({error})"))
    })?;
    let path = path.to_owned();
    Ok(PemFile { path, pem })
}

fn client(table: &Fields<'_>) -> Result<Option<(PemFile, PemFile)>, FileError> {
    if table.get("certificate_file").is_none() && table.get("key_file").is_none() {
        return Ok(None);
    }
    let certificate = table.need("certificate_file", "certificate_file = \"client.pem\"")?;
    let certificate = pem_file(certificate)?;
    let key_field = table.need("key_file", "key_file = \"client.key\"")?;
    let client = Some((certificate, any_file(&key_field)?));
    let choice = TlsChoice {
        client,
        ..TlsChoice::default()
    };
    match choice.is_valid() {
        true => Ok(choice.client),
        false => Err(key_field.refuse("expected a file with a private key in PEM")),
    }
}

fn server_name(table: &Fields<'_>) -> Result<Option<String>, FileError> {
    let Some(field) = table.get("server_name") else {
        return Ok(None);
    };
    let expected = "a name that certificates are for, such as \"cache.example.com\"";
    let choice = TlsChoice {
        server_name: Some(field.text(expected)?.to_owned()),
        ..TlsChoice::default()
    };
    match choice.is_valid() {
        true => Ok(choice.server_name),
        false => Err(field.expected(expected)),
    }
}
