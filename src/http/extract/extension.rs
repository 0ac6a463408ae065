//! `Extension`: a user that authentication has found.

use std::fmt;

use crate::key::Key;
use crate::request::{KeyError, KeyExtractor, RequestHead};

type Read<T> = dyn Fn(&T) -> Key + Send + Sync;

/// The user that authentication, outside of the layer, has put into the request's extensions.
///
/// A request without one says nothing: the policy's [`OnMissingKey`](crate::OnMissingKey) decides.
/// The layer must stand inside of the one that authenticates, or every request is without one.
///
/// ```
/// use tower_throttle::{Extension, Key, Limit, MINUTE, Policy};
///
/// #[derive(Clone)]
/// struct UserId(u64);
///
/// impl From<UserId> for Key {
///     fn from(user: UserId) -> Self {
///         user.0.into()
///     }
/// }
///
/// let policy = Policy::new("user", Limit::gcra(100, MINUTE)).by(Extension::<UserId>::new());
/// // The same without the `impl`:
/// let policy = Policy::new("user", Limit::gcra(100, MINUTE))
///     .by(Extension::with(|user: &UserId| user.0));
/// ```
pub struct Extension<T> {
    read: Box<Read<T>>,
}

impl<T: Clone + Into<Key> + Send + Sync + 'static> Extension<T> {
    /// The extension is the user's id.
    #[expect(
        clippy::new_without_default,
        reason = "which type is meant has to be said"
    )]
    pub fn new() -> Self {
        Self::with(|id: &T| id.clone())
    }
}

impl<T: Send + Sync + 'static> Extension<T> {
    /// The user's id is this of the extension.
    pub fn with<K: Into<Key>>(id: impl Fn(&T) -> K + Send + Sync + 'static) -> Self {
        Self {
            read: Box::new(move |extension| Key::user(id(extension))),
        }
    }
}

impl<T: Send + Sync + 'static> KeyExtractor for Extension<T> {
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        let extension = request.extensions.get().ok_or(KeyError::Missing)?;
        Ok((self.read)(extension))
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
            user.0.into()
        }
    }

    #[test]
    fn a_user_is_the_same_key_whichever_way_it_is_read() {
        let mut request = Request::new(());
        request.extensions_mut().insert(UserId(7));
        let head = RequestHead::of(&request);
        let key = Extension::<UserId>::new().extract(&head);
        assert_eq!(key, Ok(Key::user(7_u64)));
        assert_eq!(Extension::with(|user: &UserId| user.0).extract(&head), key);
    }

    #[test]
    fn a_request_that_was_not_authenticated_is_missing() {
        let request = Request::new(());
        let key = Extension::<UserId>::new().extract(&RequestHead::of(&request));
        assert_eq!(key, Err(KeyError::Missing));
    }
}
