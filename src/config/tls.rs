//! `tls`: how the servers of the store are known, and this process by them.

use std::path::Path;

use super::fields::{Field, Fields, KnownNames};
use super::{FileError, regular_file};
use crate::store::RedisStoreBuilder;

const FIELDS: KnownNames = &[
    "ca_file",
    "certificate_file",
    "key_file",
    "server_name",
    DANGER,
];
const DANGER: &str = "danger_accept_invalid_certs";

const EXPECTED: &str = "a table, such as { ca_file = \"/etc/ssl/redis-ca.pem\" }";

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
        let table = field.table(FIELDS, EXPECTED)?;
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
