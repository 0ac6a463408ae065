//! The traits by which a policy reads a request: whose it is, where it comes from, whether the policy
//! is about it, and what it costs.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use super::head::RequestHead;
use crate::error::ConfigError;
use crate::key::Key;
use crate::one_line::OneLine;

/// Returns the closure: here the compiler knows what its parameter is. For whatever reads a
/// [`RequestHead`]: a key, a cost, an address, or whether a policy applies.
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

/// Reads from a request whose quota it uses.
///
/// Closures in [`extractor`] are extractors too: `None` means that the request does not identify its
/// sender. So are a `Box<dyn KeyExtractor>`, for one that is chosen at run time, and an `Arc`, for one
/// that policies share.
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
    /// The subject of this request.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] when the request does not identify its sender: the policy's
    /// [`OnMissingKey`](crate::OnMissingKey) decides. [`KeyError::NotProvided`] when the server was
    /// to identify the sender and did not: such a request is answered with 500, unless the policy
    /// says otherwise. [`KeyError::Misconfigured`] when the server does not provide what the
    /// extractor needs: such a request is always answered with 500.
    fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError>;

    /// Whether the extractor itself makes sense; asked once, by
    /// [`Limiter::new`](crate::Limiter::new).
    ///
    /// # Errors
    ///
    /// Names what is wrong.
    fn validate(&self) -> Result<(), ConfigError> {
        Ok(())
    }

    /// Whether this one reads from every request what the other one reads. Policies one behind the
    /// other whose extractors do share one reading. Clones of one `Arc<dyn KeyExtractor>` always do,
    /// two closures never; of your own types, an extractor that can be compared says it as
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

    /// What is set up wrongly, if this request shows it although it has a key, and what to do about
    /// it. The log warns of it, once a minute at most, and the request goes on. Asked about each
    /// request, so it has to be quick, and shows nothing of the request.
    fn diagnose(&self, request: &RequestHead<'_>) -> Option<&'static str> {
        let _ = request;
        None
    }

    /// The address that stands in this extractor's keys, alone or as a part of them, for the client
    /// that has `address`: all addresses of an IPv6 client share one. `None` when none stands there,
    /// or when it takes a request to tell. Asked through
    /// [`Limiter::canonical_address`](crate::Limiter::canonical_address).
    fn canonical_address(&self, address: IpAddr) -> Option<IpAddr> {
        let _ = address;
        None
    }

    /// What its keys are made of, as far as it can tell. Operators see it, and are told if they ask for
    /// a key that no request can have.
    fn kind(&self) -> KeyKind {
        KeyKind::default()
    }
}

/// `reads_the_same` for an extractor that can be compared.
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

/// What an extractor makes its keys of, as far as it can tell.
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
    /// Something of the application's own. The default.
    #[default]
    Other,
}

/// In words: `client address and header x-user`.
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
            Self::Other => f.write_str("a key of the application's own"),
        }
    }
}

/// One quota for all requests together: the default of a [`Policy`](crate::Policy).
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

/// Reads from a request the address that it comes from, to look it up in an
/// [`AccessList`](crate::AccessList): [`PeerAddr`](crate::PeerAddr),
/// [`ClientAddr`](crate::ClientAddr), or a closure in [`extractor`].
#[diagnostic::on_unimplemented(
    note = "the client's address is that of `PeerAddr` or, behind proxies, of `ClientAddr`; anything \
            else is a closure `extractor(|request| ..)` that returns an `Option<IpAddr>`"
)]
pub trait AddressExtractor: Send + Sync + 'static {
    /// The client's address. An IPv4 one inside of an IPv6 one is looked up as such.
    ///
    /// # Errors
    ///
    /// [`KeyError::Missing`] when the request states none: then it is on no list.
    /// [`KeyError::Malformed`] when what it states cannot be read, which could hide a client: if
    /// addresses are denied, such a request is answered with 400. [`KeyError::Misconfigured`] or
    /// [`KeyError::NotProvided`] when the server does not provide what the extractor needs: such a
    /// request is answered with 500.
    fn address(&self, request: &RequestHead<'_>) -> Result<IpAddr, KeyError>;

    /// Whether all of these addresses are those of proxies that it trusts, so that no request is
    /// ever found to come from one of them. A list with them would match nobody, and is refused.
    fn are_proxies(&self, addresses: &RangeInclusive<IpAddr>) -> bool {
        let _ = addresses;
        false
    }

    /// Whether the extractor itself makes sense.
    ///
    /// # Errors
    ///
    /// Names what is wrong.
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
    /// The request does not say whose it is.
    Missing,
    /// What says whose it is, or from which address it comes, cannot be read, so that it may be
    /// anybody's. Of a key it is the same as [`Missing`](Self::Missing), unless keys are
    /// [denied](crate::Rules::deny).
    Malformed,
    /// Nothing in the server has said whose the request is, although something was to, such as the
    /// authentication; the text says what to do. The request is answered like one that is
    /// [`Misconfigured`](Self::Misconfigured), unless the policy says what to do
    /// [without a key](crate::Policy::on_missing_key).
    NotProvided(Cow<'static, str>),
    /// The server does not provide what the extractor needs; the text says what to do. Clients see
    /// it, too, unless a [builder of your own](crate::OnRejection) answers over HTTP.
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

/// Tells which requests a policy is about: a [`Route`](crate::Route), [`NoRequest`], or a closure in
/// [`extractor`].
#[diagnostic::on_unimplemented(
    note = "a method and a path are `Route::post(\"/login\")`; anything else is a closure \
            `extractor(|request| ..)` that returns a `bool`"
)]
pub trait RequestMatcher: Send + Sync + 'static {
    /// Whether the policy is about this request.
    fn matches(&self, request: &RequestHead<'_>) -> bool;

    /// The requests in words, for operators: `POST /login`.
    fn describe(&self) -> String {
        "requests that the application chooses".to_owned()
    }

    /// Whether the matcher itself makes sense; asked once, by
    /// [`Limiter::new`](crate::Limiter::new).
    ///
    /// # Errors
    ///
    /// Names what is wrong.
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

/// Matches none: for a policy that is asked by [`Limiter::check`](crate::Limiter::check) or
/// [`admit`](crate::Limiter::admit), and that a layer of the same limiter is to leave alone.
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

/// Reads from a request how many permits it costs: a [`HeaderCost`](crate::HeaderCost), or a closure
/// in [`extractor`].
#[diagnostic::on_unimplemented(
    note = "a header is read by `HeaderCost::new(\"x-cost\")`; anything else by a closure \
            `extractor(|request| ..)` that returns a `u64`"
)]
pub trait CostExtractor: Send + Sync + 'static {
    /// The permits that this request costs; 0 only looks and always fits.
    ///
    /// # Errors
    ///
    /// Says what is wrong with what the request states; such a request is answered with 400.
    fn cost(&self, request: &RequestHead<'_>) -> Result<u64, CostError>;

    /// Whether the extractor itself makes sense; asked once, by
    /// [`Limiter::new`](crate::Limiter::new).
    ///
    /// # Errors
    ///
    /// Names what is wrong.
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

/// A request states a cost that cannot be read; the text says what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostError(Cow<'static, str>);

impl CostError {
    /// An error with the text that the client is shown.
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
