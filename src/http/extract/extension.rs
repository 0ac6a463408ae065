//! `Extension`: the user that authentication has identified.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::key::Key;
use crate::request::{KeyError, KeyExtractor, RequestHead};

type Read<T> = dyn Fn(&T) -> Key + Send + Sync;

/// The user that authentication, outside of the layer, has put into the request's extensions.
///
/// A request without one has no key, and the policy's [`OnMissingKey`](crate::OnMissingKey)
/// decides. The layer has to be inside of the one that authenticates, or no request has a user.
///
/// A text, a number or bytes are the id of a user, so the key is [`Key::user`] of it. Operations
/// like [`Limiter::reset`](crate::Limiter::reset), an [`AccessList`](crate::AccessList) and the
/// [operator](crate::Operator) have to be given that key, too: the id alone is another one. It keeps
/// users apart from anything else with the same numbers or names: a list that refuses user 7 does
/// not refuse order 7 under another policy. Whether the id is written as a number or as text makes
/// no difference.
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
/// A type that is converted into a key by itself, by `From<UserId> for Key`, is the same key
/// everywhere: see [`new`](Self::new).
///
/// Requests without a user share one quota unless the policy says otherwise. To limit
/// them by their address instead:
///
/// ```
/// use tower_throttle::{ClientAddr, Extension, Key, Limit, MINUTE, OnMissingKey, Policy};
/// use tower_throttle::RequestHead;
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
///         .on(|request: &RequestHead<'_>| request.extensions.get::<UserId>().is_none()),
/// ];
/// # Ok::<(), tower_throttle::ConfigError>(())
/// ```
///
/// Consecutive policies that are given clones of one `Extension` read the request once.
pub struct Extension<T> {
    read: Arc<Read<T>>,
}

impl<T: Clone + Into<Key> + Send + Sync + 'static> Extension<T> {
    /// Makes the key that the extension itself is converted into, whatever kind of key that is. So
    /// a value of this type is the same key in requests, operations and lists.
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
        Self::reading(|extension| extension.clone().into())
    }
}

impl<T: Send + Sync + 'static> Extension<T> {
    /// Makes the key from what the closure returns: [`Key::user`] of a text, a number or bytes. A
    /// key of another kind, such as [`Key::all`] of a tenant and a user, stays as it is.
    pub fn with<K: Into<Key>>(user: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        Self::reading(move |extension| user(extension).into().or_user())
    }

    fn reading(read: impl Fn(&T) -> Key + Send + Sync + 'static) -> Self {
        Self {
            read: Arc::new(read),
        }
    }
}

impl<T: Send + Sync + 'static> KeyExtractor for Extension<T> {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        let extension = request.extensions.get().ok_or(KeyError::Missing)?;
        Ok((self.read)(extension))
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        let other = (other as &dyn Any).downcast_ref::<Self>();
        other.is_some_and(|other| Arc::ptr_eq(&self.read, &other.read))
    }
}

impl<T> Clone for Extension<T> {
    fn clone(&self) -> Self {
        Self {
            read: Arc::clone(&self.read),
        }
    }
}

impl<T> fmt::Debug for Extension<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Extension({})", std::any::type_name::<T>())
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
        let head = RequestHead::of(&request);
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
        assert_eq!(by.extract(&RequestHead::of(&request)), Ok(of_a_tenant(7)));
    }

    #[test]
    fn a_request_that_was_not_authenticated_is_missing() {
        let request = Request::new(());
        let key = Extension::<UserId>::new().extract(&RequestHead::of(&request));
        assert_eq!(key, Err(KeyError::Missing));
    }
}
