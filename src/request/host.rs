//! The host that a request is for, in every version of HTTP.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::header::{HOST, HeaderValue};

use super::extract::KeyError;
use super::head::RequestHead;

impl<'a> RequestHead<'a> {
    /// The host of the request, in lower case, without the port and the trailing dot.
    ///
    /// Read from the target of an HTTP/2 request or an HTTP/1.1 request to a proxy, otherwise from
    /// the `Host` header. `None` if there is no host, if it is not a name or an address, if the
    /// header is repeated, or if header and target differ.
    ///
    /// Clients can send any host: see [`Host`](crate::Host).
    pub fn host(&self) -> Option<Cow<'a, str>> {
        self.read_host().ok()
    }

    /// Like [`host`](Self::host), but tells a missing host from a malformed one.
    pub(crate) fn read_host(&self) -> Result<Cow<'a, str>, KeyError> {
        let fields = self.headers.get_all(HOST);
        if self.uri.host().is_none() && fields.iter().all(HeaderValue::is_empty) {
            return Err(KeyError::Missing);
        }
        let target = self.uri.host().map(canonical);
        let mut lines = fields.iter();
        let field = lines.next().map(in_field);
        // A proxy or the service may read another one of several headers. Many read the header
        // although the target takes precedence.
        if lines.next().is_some() || (target.is_some() && field.is_some() && target != field) {
            return Err(KeyError::Malformed);
        }
        target.or(field).flatten().ok_or(KeyError::Malformed)
    }
}

fn in_field(line: &HeaderValue) -> Option<Cow<'_, str>> {
    canonical(without_port(line.to_str().ok()?))
}

/// The canonical text of a host; `None` if it is not a name or an address.
pub(crate) fn canonical(host: &str) -> Option<Cow<'_, str>> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if let Some(address) = bracketed_address(host) {
        // An IPv6 address can be written in several ways.
        return Some(Cow::Owned(format!("[{address}]")));
    }
    if !is_name(host) {
        return None;
    }
    let has_capitals = host.bytes().any(|byte| byte.is_ascii_uppercase());
    Some(if has_capitals {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    })
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        // No port, or a colon of an address in brackets.
        _ => authority,
    }
}

/// A DNS name or an IPv4 address. A URI allows more, such as other spellings of the same host.
fn is_name(host: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let mut labels = host.split('.');
    labels.all(|label| !label.is_empty() && label.bytes().all(is_valid))
}

fn bracketed_address(host: &str) -> Option<Ipv6Addr> {
    let address = host.strip_prefix('[')?.strip_suffix(']')?;
    address.parse().ok()
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn host(uri: &str, fields: &[&str]) -> Option<String> {
        let request = Request::builder().uri(uri);
        let request = fields
            .iter()
            .fold(request, |request, field| request.header("host", *field));
        let request = request.body(()).unwrap();
        RequestHead::new(&request).host().map(Cow::into_owned)
    }

    #[test]
    fn one_host_is_one_text_wherever_and_however_it_is_written() {
        for (uri, fields) in [
            ("/", &["acme.example.com"][..]),
            ("/", &["ACME.Example.com:8080"]),
            ("/", &["acme.example.com.:"]),
            ("*", &["acme.example.com"]),
            ("http://acme.example.com/", &[]),
            ("https://Acme.example.com.:443/", &[]),
            ("http://user:secret@acme.example.com/", &[]),
        ] {
            let found = host(uri, fields);
            assert_eq!(
                found.as_deref(),
                Some("acme.example.com"),
                "{uri} {fields:?}"
            );
        }
    }

    #[test]
    fn a_header_beside_a_target_has_to_name_the_same_host() {
        let target = "http://acme.example.com:8080/";
        for (fields, found) in [
            (&["ACME.example.com."][..], Some("acme.example.com")),
            (&["acme.example.com:80"], Some("acme.example.com")),
            (&["zenith.example.com"], None),
            (&["zenith example"], None),
            (&[""], None),
            (&["acme.example.com", "acme.example.com"], None),
            (&["acme.example.com", "zenith.example.com"], None),
        ] {
            assert_eq!(host(target, fields).as_deref(), found, "{fields:?}");
        }
        assert_eq!(host("http://acme..example/", &["acme.example"]), None);
        assert_eq!(host("http://acme..example/", &["acme..example"]), None);
    }

    #[test]
    fn addresses_are_hosts() {
        for (field, found) in [
            ("192.0.2.1:80", "192.0.2.1"),
            ("[2001:DB8::1]:80", "[2001:db8::1]"),
            ("[::1]", "[::1]"),
            ("[0:0:0:0::0001]:8080", "[::1]"),
            ("[2001:db8:0::0:1]", "[2001:db8::1]"),
        ] {
            assert_eq!(host("/", &[field]).as_deref(), Some(found));
        }
    }

    #[test]
    fn a_malformed_or_repeated_host_is_none() {
        for fields in [
            &[][..],
            &[""],
            &[":80"],
            &["."],
            &["acme..example.com"],
            &["acme.example.com.."],
            &["acme.example.com:http"],
            &["acme.example.com:80:80"],
            &["user@acme.example.com"],
            &["acme.example.com/"],
            &["acme example.com"],
            &["acme%2eexample.com"],
            &["acme.example.com, zenith.example.com"],
            &["\u{fc}.example.com"],
            &["::1"],
            &["[acme]"],
            &["acme.example.com", "acme.example.com"],
        ] {
            assert_eq!(host("/", fields), None, "{fields:?}");
        }
    }
}
