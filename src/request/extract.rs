//! The traits by which a policy reads a request: its key, its address, whether the policy applies,
//! and its cost.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::head::RequestHead;
use crate::error::ConfigError;
use crate::key::Key;
use crate::one_line::OneLine;

/// Returns the closure unchanged, so that the compiler infers its parameter type. For closures that
/// read a [`RequestHead`]: a key, a cost, an address, or whether a policy applies.
///
/// ```
/// use tower_throttle::{Key, Limit, MINUTE, Policy, extractor};
///
/// let policy = Policy::new("tenant", Limit::gcra(600, MINUTE))
///     .by(extractor(|request| request.host().map(Key::from)))
///     .on(extractor(|request| request.uri.path().starts_with("/api/")))
///     .cost_by(extractor(|request| if request.uri.query().is_some() { 5 } else { 1 }));
/// ```
pub fn extractor<F, T>(read: F) -> F
where
    F: Fn(&RequestHead<'_>) -> T,
{
    read
}

/// Reads the key of a request.
///
/// Implement it yourself, or write a closure in [`extractor`]; `None` means that the request has no
/// key. `Box<dyn KeyExtractor>` is an extractor that is chosen at run time, and `Arc<dyn
/// KeyExtractor>` one that policies share.
///
/// ```
/// use tower_throttle::{Key, Limit, MINUTE, Policy, extractor};
///
/// let policy = Policy::new("tenant", Limit::gcra(600, MINUTE)).by(extractor(|request| {
///     let host = request.host()?;
///     Some(Key::from(host.split('.').next()?))
/// }));
/// ```
#[diagnostic::on_unimplemented(
    note = "a header is read by `Header::new(\"x-user\")`; anything else by a closure \
            `extractor(|request| ..)` that returns an `Option` of what a `Key` is made from"
)]
pub trait KeyExtractor: Any + Send + Sync {
    /// The key of this request.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] if the request has no key: the policy's
    /// [`OnMissingKey`](crate::OnMissingKey) decides. [`KeyError::Malformed`] if the key cannot be
    /// parsed: treated like a missing key, or rejected if the deny list contains keys.
    /// [`KeyError::NotProvided`] if the server should have identified the sender and did not: the
    /// request is answered with 500, unless the policy sets `on_missing_key`.
    /// [`KeyError::Misconfigured`] if the server does not provide what the extractor needs: the
    /// request is always answered with 500.
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError>;

    /// Validates the extractor. [`Limiter::new`](crate::Limiter::new) calls it once.
    ///
    /// # Errors
    ///
    /// An error that names the wrong value.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Whether this extractor reads the same key as `other` from every request. If two policies in
    /// a row do, the limiter reads the key once. Clones of one `Arc<dyn KeyExtractor>` always do,
    /// two closures never. Implement it for your own types if they can be compared:
    ///
    /// ```
    /// # use std::any::Any;
    /// # use tower_throttle::{Key, KeyError, KeyExtractor, RequestHead};
    /// /// A segment of the path, counted from 0.
    /// #[derive(PartialEq)]
    /// struct Segment(usize);
    ///
    /// impl KeyExtractor for Segment {
    ///     fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
    ///         let mut segments = request.uri.path().split('/').skip(1);
    ///         segments.nth(self.0).map(Key::from).ok_or(KeyError::Missing)
    ///     }
    ///
    ///     fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
    ///         let other: &dyn Any = other;
    ///         other.downcast_ref() == Some(self)
    ///     }
    /// }
    /// # let (one, other): (&dyn KeyExtractor, &dyn KeyExtractor) = (&Segment(1), &Segment(2));
    /// # assert!(one.reads_the_same(&Segment(1)) && !one.reads_the_same(other));
    /// ```
    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        let _ = other;
        false
    }

    /// A setup mistake that this request reveals although it has a key, with the remedy. The
    /// limiter logs it at most once a minute, and the request goes on. Called for each request, so
    /// it must be quick. The text must contain nothing of the request.
    fn diagnose(&self, request: &RequestHead<'_>) -> Option<&'static str> {
        let _ = request;
        None
    }

    /// The address that this extractor's keys contain for a client with `address`: all addresses of
    /// one IPv6 client share one. `None` if the keys contain no address, or if that depends on the
    /// request. Used by [`Limiter::canonical_address`](crate::Limiter::canonical_address).
    fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        let _ = address;
        None
    }

    /// The kind of its keys, if known. The operator page shows it, and warns about a key that no
    /// request can have.
    fn kind(&self) -> KeyKind {
        KeyKind::default()
    }
}

/// `reads_the_same` for extractors that implement `PartialEq`.
pub(crate) fn is_equal<E: KeyExtractor + PartialEq>(one: &E, other: &dyn KeyExtractor) -> bool {
    let other: &dyn Any = other;
    other.downcast_ref() == Some(one)
}

impl<F, K> KeyExtractor for F
where
    F: Fn(&RequestHead<'_>) -> Option<K> + Send + Sync + 'static,
    K: Into<Key>,
{
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
        self(request).map(Into::into).ok_or(KeyError::Missing)
    }
}

/// The kind of an extractor's keys, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyKind {
    /// The same key for all requests.
    Everybody,
    /// The client's address: [`Key::address`](crate::Key::address), or
    /// [`Key::unattributed`](crate::Key::unattributed).
    Address,
    /// The value of the header of this name: [`Key::header`](crate::Key::header).
    Header(String),
    /// The host that the request is for, as text.
    Host,
    /// An authenticated user: [`Key::user`](crate::Key::user).
    User,
    /// Several keys together: [`Key::all`](crate::Key::all).
    All(Vec<Self>),
    /// A kind that the application defines. The default.
    #[default]
    Other,
}

/// Shown as `client address and header x-user`.
impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("everybody"),
            Self::Address => f.write_str("client address"),
            Self::Header(name) => write!(f, "header {}", OneLine(name)),
            Self::Host => f.write_str("host"),
            Self::User => f.write_str("user"),
            Self::All(parts) => parts.iter().enumerate().try_for_each(|(position, part)| {
                f.write_str(if position > 0 { " and " } else { "" })?;
                part.fmt(f)
            }),
            Self::Other => f.write_str("a key that the application defines"),
        }
    }
}

/// One key for all requests: the default of a [`Policy`](crate::Policy).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Everybody;

impl KeyExtractor for Everybody {
    fn extract(&self, _: &RequestHead<'_>) -> Result<Key, KeyError> {
        Ok(Key::everybody())
    }

    fn reads_the_same(&self, other: &dyn KeyExtractor) -> bool {
        is_equal(self, other)
    }

    fn kind(&self) -> KeyKind {
        KeyKind::Everybody
    }
}

/// Reads the client's address of a request, to look it up in an [`AccessList`](crate::AccessList):
/// [`PeerAddr`](crate::PeerAddr), [`ClientAddr`](crate::ClientAddr), or a closure in [`extractor`].
#[diagnostic::on_unimplemented(
    note = "the client's address is that of `PeerAddr` or, behind proxies, of `ClientAddr`; anything \
            else is a closure `extractor(|request| ..)` that returns an `Option<IpAddr>`"
)]
pub trait AddressExtractor: Send + Sync + 'static {
    /// The client's address. An IPv4-mapped IPv6 address is looked up as IPv4.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] if the request has no address: then no address list applies.
    /// [`KeyError::Malformed`] if the address cannot be parsed, which could hide a client: if the
    /// deny list contains addresses, the request is answered with 400. [`KeyError::Misconfigured`]
    /// or [`KeyError::NotProvided`] if the server does not provide what the extractor needs: the
    /// request is answered with 500.
    fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError>;

    /// Whether all these addresses belong to trusted proxies, so that no client can have them. An
    /// access list with such addresses would match nobody and is rejected.
    fn are_proxies(&self, addresses: &RangeInclusive<IpAddr>) -> bool {
        let _ = addresses;
        false
    }

    /// Validates the extractor. Called once, when the limiter is built.
    ///
    /// # Errors
    ///
    /// An error that names the wrong value.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

impl<F> AddressExtractor for F
where
    F: Fn(&RequestHead<'_>) -> Option<IpAddr> + Send + Sync + 'static,
{
    fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        let address = self(request).ok_or(KeyError::Missing)?;
        Ok(address.to_canonical())
    }
}

/// Why a request has no key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyError {
    /// The request does not contain the key.
    Missing,
    /// The key or the address cannot be parsed. A key is then treated as
    /// [`Missing`](Self::Missing), unless the deny list contains [keys](crate::Rules::deny).
    Malformed,
    /// The server should have identified the sender, such as by authentication, and did not; the
    /// text names the remedy. Answered like [`Misconfigured`](Self::Misconfigured), unless the
    /// policy sets [`on_missing_key`](crate::Policy::on_missing_key).
    NotProvided(Cow<'static, str>),
    /// The server does not provide what the extractor needs; the text names the remedy. Clients see
    /// the text too, unless your own [`OnRejection`](crate::OnRejection) builds the response over
    /// HTTP.
    Misconfigured(Cow<'static, str>),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("the request does not identify its sender"),
            Self::Malformed => f.write_str("the sender of the request cannot be read"),
            Self::NotProvided(text) | Self::Misconfigured(text) => OneLine(text).fmt(f),
        }
    }
}

impl std::error::Error for KeyError {}

/// Decides which requests a policy applies to: a [`Route`](crate::Route), [`NoRequest`], or a
/// closure in [`extractor`].
#[diagnostic::on_unimplemented(
    note = "a method and a path are `Route::post(\"/login\")`; anything else is a closure \
            `extractor(|request| ..)` that returns a `bool`"
)]
pub trait RequestMatcher: Send + Sync + 'static {
    /// Whether the policy applies to this request.
    fn matches(&self, request: &RequestHead<'_>) -> bool;

    /// A description of the requests for operators: `POST /login`.
    fn describe(&self) -> String {
        "requests that the application chooses".to_owned()
    }

    /// Validates the matcher. [`Limiter::new`](crate::Limiter::new) calls it once.
    ///
    /// # Errors
    ///
    /// An error that names the wrong value.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

impl<F> RequestMatcher for F
where
    F: Fn(&RequestHead<'_>) -> bool + Send + Sync + 'static,
{
    fn matches(&self, request: &RequestHead<'_>) -> bool {
        self(request)
    }
}

/// Matches no request: for a policy that only [`Limiter::check`](crate::Limiter::check) or
/// [`admit`](crate::Limiter::admit) uses, and no layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoRequest;

impl RequestMatcher for NoRequest {
    fn matches(&self, _request: &RequestHead<'_>) -> bool {
        false
    }

    fn describe(&self) -> String {
        "no request".to_owned()
    }
}

/// Reads the cost of a request: a [`HeaderCost`](crate::HeaderCost), or a closure in [`extractor`].
#[diagnostic::on_unimplemented(
    note = "a header is read by `HeaderCost::new(\"x-cost\")`; anything else by a closure \
            `extractor(|request| ..)` that returns a `u64`"
)]
pub trait CostExtractor: Send + Sync + 'static {
    /// The cost in permits. A cost of 0 only peeks and always fits.
    ///
    /// # Errors
    ///
    /// The request's cost cannot be parsed; the request is answered with 400.
    fn cost(&self, request: &RequestHead<'_>) -> Result<u64, CostError>;

    /// Validates the extractor. [`Limiter::new`](crate::Limiter::new) calls it once.
    ///
    /// # Errors
    ///
    /// An error that names the wrong value.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }
}

impl<F> CostExtractor for F
where
    F: Fn(&RequestHead<'_>) -> u64 + Send + Sync + 'static,
{
    fn cost(&self, request: &RequestHead<'_>) -> Result<u64, CostError> {
        Ok(self(request))
    }
}

/// A request's cost cannot be parsed; the text says what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostError(Cow<'static, str>);

impl CostError {
    /// An error with this text, which the client sees.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for CostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        OneLine(&self.0).fmt(f)
    }
}

impl std::error::Error for CostError {}
