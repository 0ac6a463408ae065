//! `trusted_proxies`, `client_address`, `trusted_hops` and `ipv6_prefix`: which proxies are trusted
//! to name a client's address, and which addresses count as one client.

use super::FileError;
use super::fields::{Field, Fields};
use crate::address::read_range;
use crate::error::ConfigError;
use crate::http::extract::{ClientAddr, PeerAddr};
use crate::request::KeyExtractor;

const HEADERS: &str = "\"x-forwarded-for\", \"forwarded\" or \"header:<name>\"";

const UNBELIEVED: &str = "has no effect without trusted_proxies, as only a proxy on a Unix socket \
                          is trusted then: list your proxies, [] if that is the only one, or \
                          [\"0.0.0.0/0\", \"::/0\"] with trusted_hops if their addresses are \
                          unknown";

/// The proxies in front, as far as the file names them.
pub(super) struct Proxies {
    /// Whether the file says which addresses they have.
    are_named: bool,
    trusted: Vec<String>,
    header: ForwardingHeader,
    hops: Option<usize>,
    ipv6_prefix: Option<u8>,
}

/// The one header that is read.
enum ForwardingHeader {
    XForwardedFor,
    Forwarded,
    Header(String),
}

impl Proxies {
    pub(super) fn read(fields: &Fields<'_>) -> Result<Self, FileError> {
        let trusted = fields.get("trusted_proxies");
        let header = fields.get("client_address");
        let proxies = Self {
            are_named: trusted.is_some(),
            trusted: trusted.as_ref().map_or(Ok(Vec::new()), ranges)?,
            header: header
                .as_ref()
                .map_or(Ok(ForwardingHeader::XForwardedFor), forwarding_header)?,
            hops: number(fields, "trusted_hops", "1 to 64")?,
            ipv6_prefix: number(fields, "ipv6_prefix", "32 to 128 bits")?,
        };
        // Errors are reported at their place, even while no policy uses this.
        let extractor = proxies.extractor().map_err(|error| match &header {
            Some(header) => header.refuse(error),
            None => fields.refuse(error),
        })?;
        let valid = KeyExtractor::validate(&extractor);
        valid.map_err(|error| match error {
            ConfigError::OutOfRange { field, .. } | ConfigError::Malformed { field, .. } => {
                fields.refuse_at(field, error)
            }
            error => fields.refuse(error),
        })?;
        let unbelieved = header.or_else(|| fields.get("trusted_hops"));
        match unbelieved.filter(|_| trusted.is_none()) {
            Some(field) => Err(field.refuse(UNBELIEVED)),
            None => Ok(proxies),
        }
    }

    /// The remedy for a policy without a key. Behind a proxy, the peer of every client is the proxy.
    pub(super) fn missing_key(&self) -> &'static str {
        match self.are_named {
            true => "key = \"client-addr\", or \"everybody\" for one quota for all",
            false => {
                "key = \"peer\", behind proxies \"client-addr\" and trusted_proxies, or \
                 \"everybody\" for one quota for all"
            }
        }
    }

    pub(super) fn peer(&self) -> Box<dyn KeyExtractor> {
        match self.ipv6_prefix {
            Some(bits) => Box::new(PeerAddr.ipv6_prefix(bits)),
            None => Box::new(PeerAddr),
        }
    }

    /// Without trusted proxies, the peer is the client.
    pub(super) fn client_addr(&self, key: &Field<'_>) -> Result<ClientAddr, FileError> {
        let client = self.extractor();
        client.map_err(|error| key.refuse(error))
    }

    fn extractor(&self) -> Result<ClientAddr, ConfigError> {
        let trusted = &self.trusted;
        let mut client = match &self.header {
            ForwardingHeader::XForwardedFor => ClientAddr::x_forwarded_for(trusted),
            ForwardingHeader::Forwarded => ClientAddr::forwarded(trusted),
            ForwardingHeader::Header(name) => ClientAddr::header(name, trusted),
        }?;
        if let Some(hops) = self.hops {
            client = client.trusted_hops(hops);
        }
        if let Some(bits) = self.ipv6_prefix {
            client = client.ipv6_prefix(bits);
        }
        Ok(client)
    }
}

fn number<N: TryFrom<u64>>(
    fields: &Fields<'_>,
    name: &'static str,
    expected: &str,
) -> Result<Option<N>, FileError> {
    let number = fields.get(name).map(|field| field.number(expected));
    number.transpose()
}

fn ranges(field: &Field<'_>) -> Result<Vec<String>, FileError> {
    let expected = "a list of addresses and ranges, such as [\"10.0.0.0/8\", \"::1\"]";
    let items = field.items().ok_or_else(|| field.expected(expected))?;
    let range = |item: &Field<'_>| {
        let range = item.text(expected)?;
        // The error names the field itself.
        read_range("trusted_proxies", range).map_err(|error| item.here(error))?;
        Ok(range.to_owned())
    };
    items.iter().map(range).collect()
}

fn forwarding_header(field: &Field<'_>) -> Result<ForwardingHeader, FileError> {
    Ok(match field.text(HEADERS)? {
        "x-forwarded-for" => ForwardingHeader::XForwardedFor,
        "forwarded" => ForwardingHeader::Forwarded,
        text => match text.strip_prefix("header:") {
            Some(name) => ForwardingHeader::Header(name.to_owned()),
            None => return Err(field.expected(HEADERS)),
        },
    })
}
