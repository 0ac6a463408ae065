//! The host that a request is for, in every version of HTTP.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use http::header::HOST;

use super::RequestHead;

impl<'a> RequestHead<'a> {
    /// The host that the request is for, without the port and a dot at its end, and in lower case,
    /// as hosts are compared.
    ///
    /// That of the target, where a request over HTTP/2 has it, and one over HTTP/1.1 to a proxy; or
    /// else that of the header `Host`. `None` when there is neither, when the header is there more
    /// than once, and when what is there is no name or address.
    ///
    /// Clients write there what they like: see [`Host`](crate::Host).
    pub fn host(&self) -> Option<Cow<'a, str>> {
        let host = match self.uri.host() {
            Some(host) => host,
            None => without_port(self.host_field()?),
        };
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

    /// Whether it says which host it is for, even if that cannot be read.
    pub(crate) fn names_host(&self) -> bool {
        let mut lines = self.headers.get_all(HOST).iter();
        self.uri.host().is_some() || lines.any(|line| !line.is_empty())
    }

    fn host_field(&self) -> Option<&'a str> {
        let mut lines = self.headers.get_all(HOST).iter();
        let line = lines.next()?;
        // If there are two, a proxy may have checked the other one.
        lines.next().is_none().then(|| line.to_str().ok())?
    }
}

fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        // No port, or a colon of an address in brackets.
        _ => authority,
    }
}

/// A DNS name or an IPv4 address. A URI allows more here, which would be further ways to write the
/// same host.
fn is_name(host: &str) -> bool {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let mut labels = host.split('.');
    labels.all(|label| !label.is_empty() && label.bytes().all(is_sound))
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
        RequestHead::of(&request).host().map(Cow::into_owned)
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
    fn a_target_goes_before_the_header() {
        let found = host("http://acme.example.com/", &["zenith.example.com"]);
        assert_eq!(found.as_deref(), Some("acme.example.com"));
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
