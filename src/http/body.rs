//! `ResponseBody`: the body of the inner service with the permits it holds, or the body of a
//! rejection.

use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::limiter::Charges;
use crate::response::Ending;

pin_project! {
    /// The body of every response of a layer that [wraps
    /// bodies](crate::RateLimitLayer::wrap_body): the inner service's body, frame by frame with its
    /// trailers, or that of a rejection.
    ///
    /// After its last frame, after an error, or when it is dropped, permits that are held while a
    /// request runs, as by a [concurrency](crate::Limit::concurrency) limit, are given back, and
    /// [costs](crate::Policy::settle_at_end) are settled.
    ///
    /// It implements [`Body`] if the inner body's data is [`Bytes`], as with axum, tonic and hyper,
    /// or implements `From<Bytes>`: a rejection uses the inner body's data type. A data type of our
    /// own would exclude axum and tonic, which accept only bodies of [`Bytes`]. Convert other data
    /// inside of the layer, for example with `map_frame` of http-body-util.
    pub struct ResponseBody<B> {
        #[pin]
        body: Either<B>,
        // Declared after the body, and so dropped after it: until then the body may still run, and its
        // meter count.
        held: Option<UntilEnd>,
    }
}

/// What has to end with a body. Dropping it ends it.
pub(crate) struct UntilEnd {
    charges: Box<Charges>,
    /// How many bytes are still to come, where that is known.
    left: Option<u64>,
    /// Whether the caller has seen the end of the body, and so need not poll for it.
    has_seen_end: AtomicBool,
}

impl UntilEnd {
    /// `length`: how many bytes the body has, if the response's head says so.
    pub(crate) fn new(charges: Box<Charges>, length: Option<u64>) -> Self {
        Self {
            charges,
            left: length,
            has_seen_end: AtomicBool::new(false),
        }
    }

    fn sent(&mut self, bytes: usize) {
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes as u64);
        }
    }

    fn ended(mut self, how: Ending, trailers: Option<&HeaderMap>) {
        self.charges.settle_at_end(how, trailers);
    }
}

impl Drop for UntilEnd {
    fn drop(&mut self) {
        // A server that has sent as many bytes as it has announced does not ask for more.
        let is_complete = self.left == Some(0) || *self.has_seen_end.get_mut();
        self.charges.settle_at_end(
            match is_complete {
                true => Ending::Complete,
                false => Ending::Dropped,
            },
            None,
        );
    }
}

pin_project! {
    #[project = EitherProjected]
    #[derive(Debug)]
    enum Either<B> {
        Inner {
            #[pin]
            body: B,
        },
        Rejection {
            bytes: Bytes,
        },
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn inner(body: B, held: Option<UntilEnd>) -> Self {
        Self {
            body: Either::Inner { body },
            held,
        }
    }

    pub(crate) fn rejection(bytes: Bytes) -> Self {
        Self {
            body: Either::Rejection { bytes },
            held: None,
        }
    }
}

impl<B: fmt::Debug> fmt::Debug for ResponseBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.body.fmt(f)
    }
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::inner(B::default(), None)
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body,
    B::Data: From<Bytes>,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        match this.body.project() {
            EitherProjected::Inner { mut body } => {
                if let Some(held) = this.held {
                    held.left = held.left.or_else(|| body.size_hint().exact());
                }
                let frame = ready!(body.as_mut().poll_frame(cx));
                if let Some(held) = this.held {
                    let (how, trailers, is_last) = match &frame {
                        None => (Ending::Complete, None, true),
                        Some(Err(_)) => (Ending::Failed, None, true),
                        Some(Ok(frame)) => {
                            held.sent(frame.data_ref().map_or(0, Buf::remaining));
                            let trailers = frame.trailers_ref();
                            // A caller that knows the end from `is_end_stream` does not poll for it.
                            let is_last = trailers.is_some() || body.is_end_stream();
                            (Ending::Complete, trailers, is_last)
                        }
                    };
                    if is_last && let Some(held) = this.held.take() {
                        held.ended(how, trailers);
                    }
                }
                Poll::Ready(frame)
            }
            EitherProjected::Rejection { bytes } if bytes.is_empty() => Poll::Ready(None),
            EitherProjected::Rejection { bytes } => {
                let bytes = std::mem::take(bytes);
                Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
            }
        }
    }

    /// True immediately for an empty rejection: only then does hyper end the stream with the
    /// headers, which makes a gRPC response trailers-only.
    fn is_end_stream(&self) -> bool {
        match &self.body {
            Either::Inner { body } => {
                let is_over = body.is_end_stream();
                if let Some(held) = self.held.as_ref().filter(|_| is_over) {
                    held.has_seen_end.store(true, Ordering::Relaxed);
                }
                is_over
            }
            Either::Rejection { bytes } => bytes.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Either::Inner { body } => body.size_hint(),
            Either::Rejection { bytes } => SizeHint::with_exact(bytes.len() as u64),
        }
    }
}

/// The body type of responses behind a [`RateLimitLayer`](crate::RateLimitLayer) whose inner
/// service has the body `B`. [`Kept`] leaves axum's and tonic's bodies unchanged; [`Wrapped`] puts
/// any body into a [`ResponseBody`]. The trait is sealed.
#[diagnostic::on_unimplemented(
    message = "the layer of a service whose responses have the body `{B}` needs `.wrap_body()`",
    label = "the layer leaves only axum's and tonic's bodies unchanged",
    note = "`RateLimitLayer::new(limiter).wrap_body()` accepts any body and wraps it in a `ResponseBody`",
    note = "axum's `Body` needs the feature `axum` of tower-throttle, tonic's needs `tonic`"
)]
pub trait BodyKind<B>: sealed::Sealed {
    /// The body of the layer's responses.
    type Body;

    /// The service's body without permits.
    #[doc(hidden)]
    fn plain(body: B) -> Self::Body;

    /// The service's body with the permits it holds.
    #[doc(hidden)]
    fn holding(body: ResponseBody<B>) -> Self::Body;

    #[doc(hidden)]
    fn rejection(bytes: Bytes) -> Self::Body;
}

mod sealed {
    pub trait Sealed {}
}

/// The default: keeps the service's body, which must be axum's (with the feature `axum`) or tonic's
/// (with `tonic`). The body is unchanged, unless it has to hold a permit of a
/// [concurrency](crate::Limit::concurrency) limit.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Kept;

/// Puts any body into a [`ResponseBody`]: see
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

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use http_body_util::{BodyExt, Full};

    use super::*;

    #[tokio::test]
    async fn a_rejection_is_one_frame_of_known_size() {
        let body = ResponseBody::<Full<Bytes>>::rejection("slow down".into());
        assert_eq!(body.size_hint().exact(), Some(9));
        assert!(!body.is_end_stream());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "slow down");
    }

    #[tokio::test]
    async fn a_rejection_is_of_the_inner_bodys_own_data() {
        let mut body = ResponseBody::<Full<BytesMut>>::rejection("slow down".into());
        let frame: Frame<BytesMut> = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "slow down");
    }

    #[tokio::test]
    async fn an_empty_rejection_has_ended_before_it_is_polled() {
        let mut body = ResponseBody::<Full<Bytes>>::rejection(Bytes::new());
        assert!(body.is_end_stream());
        assert_eq!(body.size_hint().exact(), Some(0));
        assert!(body.frame().await.is_none());
    }

    #[tokio::test]
    async fn an_inner_body_passes_with_its_size_and_its_trailers() {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        let inner = Full::new(Bytes::from("hello"))
            .with_trailers(std::future::ready(Some(Ok(trailers.clone()))));
        let body = ResponseBody::inner(Full::new(Bytes::from("hello")), None);
        assert_eq!(body.size_hint().exact(), Some(5));
        assert!(!body.is_end_stream());
        let empty = ResponseBody::inner(Full::new(Bytes::new()), None);
        assert!(empty.is_end_stream(), "a server sends no frame for it");
        let collected = ResponseBody::inner(inner, None).collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "hello");
    }
}
