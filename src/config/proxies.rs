//! `trusted_proxies` and `client_address`: whom the file believes about a client's address.

use super::FileError;
use super::fields::{Field, Fields};
use crate::error::ConfigError;
use crate::http::extract::ClientAddr;

const HEADERS: &str = "\"x-forwarded-for\", \"forwarded\" or \"header:<name>\"";

/// The proxies in front, as far as the file names them.
pub(super) struct Proxies {
    trusted: Vec<String>,
    header: Told,
}

/// The one header that is consulted.
enum Told {
    XForwardedFor,
    Forwarded,
    Header(String),
}

impl Proxies {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FileError> {
        let trusted = fields.get("trusted_proxies");
        let header = fields.get("client_address");
        let proxies = Self {
            trusted: trusted.as_ref().map_or(Ok(Vec::new()), ranges)?,
            header: header.as_ref().map_or(Ok(Told::XForwardedFor), told)?,
        };
        // Whatever is wrong is refused where it stands, also while no policy uses it.
        if let Some(header) = &header {
            let extractor = proxies.extractor();
            extractor.map_err(|error| header.refuse(error))?;
        }
        Ok(proxies)
    }

    /// With nobody to trust, the peer is the client.
    pub(super) fn client_addr(&self, key: &Field<'_>) -> Result<ClientAddr, FileError> {
        let client = self.extractor();
        client.map_err(|error| key.refuse(error))
    }

    fn extractor(&self) -> Result<ClientAddr, ConfigError> {
        let trusted = &self.trusted;
        match &self.header {
            Told::XForwardedFor => ClientAddr::x_forwarded_for(trusted),
            Told::Forwarded => ClientAddr::forwarded(trusted),
            Told::Header(name) => ClientAddr::header(name, trusted),
        }
    }
}

fn ranges(field: &Field<'_>) -> Result<Vec<String>, FileError> {
    let expected = "a list of addresses and ranges, as [\"10.0.0.0/8\", \"::1\"]";
    let items = field.items().ok_or_else(|| field.expected(expected))?;
    let range = |item: &Field<'_>| {
        let range = item.text(expected)?;
        match ClientAddr::x_forwarded_for([range]) {
            Ok(_) => Ok(range.to_owned()),
            // Its text names the field.
            Err(error) => Err(item.here(error)),
        }
    };
    items.iter().map(range).collect()
}

fn told(field: &Field<'_>) -> Result<Told, FileError> {
    Ok(match field.text(HEADERS)? {
        "x-forwarded-for" => Told::XForwardedFor,
        "forwarded" => Told::Forwarded,
        text => match text.strip_prefix("header:") {
            Some(name) => Told::Header(name.to_owned()),
            None => return Err(field.expected(HEADERS)),
        },
    })
}
