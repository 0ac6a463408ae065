//! `Extension` and `Host`: the authenticated user, or the request's host, as the key.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::key::Key;
use crate::request::{KeyError, KeyExtractor, KeyKind, RequestHead, is_equal};

type Read<T> = dyn Fn(&T) -> Option<Key> + Send + Sync;

/// The user that authentication has put into the request's extensions.
///
/// The authentication must be outside of the layer; otherwise no request has a user. So a request
/// without the extension is answered with 500 and an explanation, unless the policy sets
/// [`on_missing_key`](crate::Policy::on_missing_key).
///
/// If the closure returns text, a number or bytes, the key is [`Key::user`] of it. Use the same key
/// for methods like [`Limiter::reset`](crate::Limiter::reset) and for an
/// [`AccessList`](crate::AccessList): the id alone is a different key. This keeps users apart from
/// other things with the same id: a list that denies user 7 does not deny order 7. Ids may be
/// numbers or text.
///
/// ```
/// use tower_throttle::{CheckError, Extension, Key, Limit, Limiter, MINUTE, Policy};
///
/// #[derive(Clone)]
/// struct User {
///     id: u64,
/// }
///
/// let policy = Policy::new("user", Limit::gcra(100, MINUTE))
///     .by(Extension::with(|user: &User| user.id));
///
/// async fn is_forgiven(limiter: &Limiter, id: u64) -> Result<bool, CheckError> {
///     let reset = limiter.reset("user", Key::user(id)).await?;
///     Ok(reset.store_failure().is_none())
/// }
/// ```
///
/// For a type that implements `From<UserId> for Key`, use [`new`](Self::new).
///
/// # Anonymous requests
///
/// If requests may have no user, choose what happens to them: they share one key
/// ([`OnMissingKey::Shared`](crate::OnMissingKey::Shared)), or the policy skips them and another
/// policy limits them by address:
///
/// ```
/// use tower_throttle::{ClientAddr, Extension, Key, Limit, MINUTE, OnMissingKey, Policy, extractor};
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// let policies = [
///     Policy::new("user", Limit::gcra(600, MINUTE))
///         .by(Extension::with(|user: &UserId| user.0))
///         .on_missing_key(OnMissingKey::Skip),
///     Policy::new("anonymous", Limit::gcra(60, MINUTE))
///         .by(ClientAddr::x_forwarded_for(["10.0.0.0/8"])?)
///         .on(extractor(|request| request.extensions.get::<UserId>().is_none())),
/// ];
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// If authentication adds an extension to every request, even if nobody is logged in, use
/// [`optional`](Self::optional).
///
/// Consecutive policies with clones of one `Extension` read the key only once.
pub struct Extension<T> {
    read: Arc<Read<T>>,
    kind: KeyKind,
}

impl<T: Clone + Into<Key> + Send + Sync + 'static> Extension<T> {
    /// Uses the extension's own conversion into a [`Key`](crate::Key), so that a value of this type
    /// is the same key in requests, methods and lists. Let the conversion return a [`Key::user`],
    /// by which files and operators name a user.
    ///
    /// ```
    /// use tower_throttle::{AccessList, Extension, Key, Limit, MINUTE, Policy};
    ///
    /// #[derive(Clone)]
    /// struct UserId(u64);
    ///
    /// impl From<UserId> for Key {
    ///     fn from(user: UserId) -> Self {
    ///         Key::user(user.0)
    ///     }
    /// }
    ///
    /// let policy = Policy::new("user", Limit::gcra(100, MINUTE)).by(Extension::<UserId>::new());
    /// let denied = AccessList::new().keys([UserId(7)]);
    /// ```
    #[expect(
        clippy::new_without_default,
        reason = "which type is meant has to be said"
    )]
    pub fn new() -> Self {
        Self::reading(KeyKind::Other, |extension| Some(extension.clone().into()))
    }
}

impl<T: Send + Sync + 'static> Extension<T> {
    /// Makes the key from the closure's result: [`Key::user`] of text, a number or bytes. Other
    /// keys, such as [`Key::all`] of a tenant and a user, stay as they are.
    pub fn with<K: Into<Key>>(user: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        Self::reading(KeyKind::User, move |extension| {
            Some(user(extension).into().or_user())
        })
    }

    /// Like [`with`](Self::with), for an extension that may have no user, such as a session before
    /// the login. `None` means that nobody is logged in: the request has no key, and by default all
    /// such requests share one.
    ///
    /// ```
    /// use tower_throttle::{Extension, Limit, MINUTE, Policy};
    ///
    /// #[derive(Clone)]
    /// struct Session {
    ///     user: Option<u64>,
    /// }
    ///
    /// let policy = Policy::new("user", Limit::gcra(100, MINUTE))
    ///     .by(Extension::optional(|session: &Session| session.user));
    /// ```
    pub fn optional<K: Into<Key>>(user: impl Fn(&T) -> Option<K> + Send + Sync + 'static) -> Self {
        Self::reading(KeyKind::User, move |extension| {
            user(extension).map(|user| user.into().or_user())
        })
    }

    fn reading(kind: KeyKind, read: impl Fn(&T) -> Option<Key> + Send + Sync + 'static) -> Self {
        Self {
            read: Arc::new(read),
            kind,
        }
    }
}

impl<T: Send + Sync + 'static> KeyExtractor for Extension<T> {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        let extension = request.extensions.get().ok_or_else(not_provided::<T>)?;
        (self.read)(extension).ok_or(KeyError::Missing)
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        let other = (other as &dyn Any).downcast_ref::<Self>();
        other.is_some_and(|other| Arc::ptr_eq(&self.read, &other.read))
    }

    fn kind(&self) -> KeyKind {
        self.kind.clone()
    }
}

/// gRPC truncates the text, so the remedy comes first.
#[cold]
fn not_provided<T>() -> KeyError {
    let text = format!(
        "no user: put the rate limit inside of the authentication, which must put a `{}` into the \
         request's extensions (on an axum router, add the rate limit's layer first; in a \
         `ServiceBuilder`, last), or set `on_missing_key` if requests may have no user",
        std::any::type_name::<T>()
    );
    KeyError::NotProvided(text.into())
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self {
            read: Arc::clone(&self.read),
            kind: self.kind.clone(),
        }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({})", std::any::type_name::<T>())
    }
}

/// The host of a request, as [`RequestHead::host`] reads it: for services with one host for each
/// tenant.
///
/// The key is the host as text, in lower case and without the port: `limiter.reset("tenant",
/// "acme.example.com")` resets that tenant. A request with no host or a malformed one has no key,
/// and the policy's [`OnMissingKey`](crate::OnMissingKey) decides. If the deny list contains
/// [keys](crate::Rules::deny), a request with a malformed host is rejected, so that it cannot
/// bypass the list.
///
/// # Clients that choose their subject
///
/// Clients can send any host. Each new host gives them a new quota, or they use up another tenant's
/// quota. So use this extractor only behind a proxy or a router that checks the host, rejects
/// unknown ones and passes it on (nginx: `proxy_set_header Host $host`). Authentication must check
/// whether a client may use a tenant's quota. Otherwise add a policy by address:
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

    #[derive(Clone)]
    struct UserId(u64);

    impl From<UserId> for Key {
        fn from(user: UserId) -> Self {
            Self::user(user.0)
        }
    }

    #[test]
    fn a_user_is_the_same_key_whichever_way_it_is_read() {
        let mut request = Request::new(());
        request.extensions_mut().insert(UserId(7));
        let head = RequestHead::new(&request);
        let key = Extension::<UserId>::new().extract(&head);
        assert_eq!(key, Ok(UserId(7).into()));
        for by_its_id in [
            Extension::with(|user: &UserId| user.0),
            Extension::with(|user: &UserId| user.0.to_string()),
            Extension::with(|user: &UserId| Key::user(user.0)),
            Extension::with(|user: &UserId| UserId(user.0)),
        ] {
            assert_eq!(by_its_id.extract(&head), key);
        }
    }

    #[test]
    fn a_key_that_is_more_than_an_id_stays_as_it_is() {
        let mut request = Request::new(());
        request.extensions_mut().insert(UserId(7));
        let of_a_tenant = |user: u64| Key::all([Key::from("acme"), Key::user(user)]);
        let by = Extension::with(move |user: &UserId| of_a_tenant(user.0));
        assert_eq!(by.extract(&RequestHead::new(&request)), Ok(of_a_tenant(7)));
    }

    #[test]
    fn a_request_without_authentication_is_explained() {
        let request = Request::new(());
        for by in [
            Extension::<UserId>::new(),
            Extension::with(|user: &UserId| user.0),
            Extension::optional(|user: &UserId| Some(user.0)),
        ] {
            let key = by.extract(&RequestHead::new(&request));
            let Err(KeyError::NotProvided(text)) = key else {
                panic!("the server is to blame: {key:?}");
            };
            for advice in ["UserId", "inside of the authentication", "`on_missing_key`"] {
                assert!(text.contains(advice), "{advice}: {text}");
            }
        }
    }

    #[test]
    fn an_optional_extension_without_a_user_is_a_missing_key() {
        let by = Extension::optional(|user: &Option<u64>| *user);
        for (user, key) in [
            (Some(7_u64), Ok(Key::user(7))),
            (None, Err(KeyError::Missing)),
        ] {
            let mut request = Request::new(());
            request.extensions_mut().insert(user);
            assert_eq!(by.extract(&RequestHead::new(&request)), key);
        }
    }

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
