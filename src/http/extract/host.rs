//! `Host`: the host that a request is for.

use crate::key::Key;
use crate::request::{KeyError, KeyExtractor, KeyKind, RequestHead, is_equal};

/// The host that a request is for, as [`RequestHead::host`] reads it: the tenant of a service that
/// has a host for each.
///
/// The key is the host as text, in lower case and without the port, so
/// `limiter.reset("tenant", "acme.example.com")` is about that tenant. A request without a host, or
/// with one that cannot be read, has no key, and the policy's [`OnMissingKey`](crate::OnMissingKey)
/// decides. If keys are [denied](crate::Rules::deny), a request whose host cannot be read is refused,
/// so that this is no way around the list.
///
/// # Clients that choose their subject
///
/// Any client can send any host. With each new one it gets a new quota, or it uses up somebody
/// else's. So this extractor is for services that are reached only through a proxy or a router that
/// checks the host, refuses unknown ones, and passes it on (nginx does so with
/// `proxy_set_header Host $host`). Whether a client may use a tenant's quota is a question for
/// authentication. Anywhere else, limit by address, too:
///
/// ```
/// use tower_throttle::{ClientAddr, Host, Limit, MINUTE, Policy};
///
/// let policies = [
///     Policy::new("tenant", Limit::gcra(6_000, MINUTE)).by(Host),
///     Policy::new("client", Limit::gcra(100, MINUTE))
///         .by(ClientAddr::x_forwarded_for(["10.0.0.0/8"])?),
/// ];
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host;

impl KeyExtractor for Host {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(Key::from(&*request.read_host()?))
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        is_equal(self, other)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Host
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn key(uri: &str, fields: &[&str]) -> Result<Key, KeyError> {
        let request = Request::builder().uri(uri);
        let request = fields
            .iter()
            .fold(request, |request, field| request.header("host", *field));
        Host.extract(&RequestHead::new(&request.body(()).unwrap()))
    }

    #[test]
    fn the_host_is_the_key() {
        let acme = Ok(Key::from("acme.example.com"));
        assert_eq!(key("/", &["Acme.example.com:80"]), acme);
        assert_eq!(key("https://acme.example.com./", &[]), acme);
    }

    #[test]
    fn absent_and_empty_hosts_are_missing() {
        for fields in [&[][..], &[""]] {
            assert_eq!(key("/", fields), Err(KeyError::Missing), "{fields:?}");
        }
    }

    #[test]
    fn repeated_and_malformed_hosts_cannot_be_read() {
        for (uri, fields) in [
            ("/", &["acme.example.com", "acme.example.com"][..]),
            ("/", &["acme.example.com", ""]),
            ("/", &["acme.example.com.."]),
            ("/", &["acme.example.com:http"]),
            ("http://acme..example.com/", &[]),
        ] {
            let key = key(uri, fields);
            assert_eq!(key, Err(KeyError::Malformed), "{uri} {fields:?}");
        }
    }
}
