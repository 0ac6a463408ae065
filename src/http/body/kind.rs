//! `BodyKind`: which body responses have behind the layer.

use bytes::Bytes;

use super::ResponseBody;

/// Which body responses have behind a [`RateLimitLayer`](crate::RateLimitLayer) around a service
/// whose own have the body `B`: with [`Kept`], axum's and tonic's bodies stay what they are; with
/// [`Wrapped`], any body is in a [`ResponseBody`]. There are no other kinds.
#[diagnostic::on_unimplemented(
    message = "around a service whose responses have the body `{B}`, a layer needs `.wrap_body()`",
    label = "the layer keeps only axum's and tonic's bodies as they are",
    note = "`RateLimitLayer::new(limiter).wrap_body()` takes any body: responses then have a \
            `ResponseBody` around it",
    note = "axum's `Body` is kept with the feature `axum` of tower-throttle, tonic's with `tonic`"
)]
pub trait BodyKind<B>: sealed::Sealed {
    /// The body of the layer's responses.
    type Body;

    /// The service's, with which nothing has to end.
    #[doc(hidden)]
    fn plain(body: B) -> Self::Body;

    /// The service's, with what has to end with it.
    #[doc(hidden)]
    fn holding(body: ResponseBody<B>) -> Self::Body;

    #[doc(hidden)]
    fn rejection(bytes: Bytes) -> Self::Body;
}

mod sealed {
    pub trait Sealed {}
}

/// The default: the service's own body, which is axum's (with the feature `axum`) or tonic's (with
/// `tonic`). It passes unchanged, unless something has to end with it: a place that the request
/// holds under a [concurrency](crate::Limit::concurrency) limit.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Kept;

/// Any body, in a [`ResponseBody`]: see
/// [`RateLimitLayer::wrap_body`](crate::RateLimitLayer::wrap_body).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Wrapped;

impl sealed::Sealed for Kept {}
impl sealed::Sealed for Wrapped {}

#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl BodyKind<axum::body::Body> for Kept {
    type Body = axum::body::Body;

    fn plain(body: axum::body::Body) -> axum::body::Body {
        body
    }

    fn holding(body: ResponseBody<axum::body::Body>) -> axum::body::Body {
        axum::body::Body::new(body)
    }

    fn rejection(bytes: Bytes) -> axum::body::Body {
        bytes.into()
    }
}

#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl BodyKind<tonic::body::Body> for Kept {
    type Body = tonic::body::Body;

    fn plain(body: tonic::body::Body) -> tonic::body::Body {
        body
    }

    fn holding(body: ResponseBody<tonic::body::Body>) -> tonic::body::Body {
        tonic::body::Body::new(body)
    }

    fn rejection(bytes: Bytes) -> tonic::body::Body {
        tonic::body::Body::new(ResponseBody::<tonic::body::Body>::rejection(bytes))
    }
}

impl<B> BodyKind<B> for Wrapped {
    type Body = ResponseBody<B>;

    fn plain(body: B) -> ResponseBody<B> {
        ResponseBody::inner(body, None)
    }

    fn holding(body: ResponseBody<B>) -> ResponseBody<B> {
        body
    }

    fn rejection(bytes: Bytes) -> ResponseBody<B> {
        ResponseBody::rejection(bytes)
    }
}
