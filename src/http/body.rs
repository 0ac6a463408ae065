//! `ResponseBody`: a service's body, with what has to end with it, or that of a rejection.

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
    /// bodies](crate::RateLimitLayer::wrap_body): the inner service's, frame by frame with its
    /// trailers, or that of a rejection.
    ///
    /// What has to end with it, ends after its last frame, after an error, or when it is dropped:
    /// permits that are held while a request runs, as by a [concurrency](crate::Limit::concurrency)
    /// limit, are given back, and [costs](crate::Policy::settle_at_end) are settled.
    ///
    /// It implements [`Body`] if the inner body's data is [`Bytes`], as with axum, tonic and hyper,
    /// or can be made from [`Bytes`]: the data of a rejection has the inner body's own type. A data
    /// type of ours that holds either would exclude axum and tonic, which accept bodies of
    /// [`Bytes`] only. Convert other data inside of the layer, for example with `map_frame` of
    /// http-body-util.
    pub struct ResponseBody<B> {
        #[pin]
        body: Either<B>,
        // Declared after the body: a dropped body has stopped before anybody else can have what it
        // held, and its meter counts no more.
        held: Option<Held>,
    }
}

/// What has to end with a body. Dropping it ends it.
pub(crate) struct Held {
    charges: Box<Charges>,
    /// How many bytes are still to come, where that is known.
    left: Option<u64>,
    /// Whether the caller knows that there is nothing more to come, and so need not poll for the end.
    has_told_end: AtomicBool,
}

impl Held {
    /// `length`: how many bytes the body has, as far as the response's head tells.
    pub(crate) fn until_end(charges: Box<Charges>, length: Option<u64>) -> Self {
        Self {
            charges,
            left: length,
            has_told_end: AtomicBool::new(false),
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

impl Drop for Held {
    fn drop(&mut self) {
        // A server that has sent as many bytes as it has announced does not ask for more.
        let is_complete = self.left == Some(0) || *self.has_told_end.get_mut();
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
    pub(crate) fn inner(body: B, held: Option<Held>) -> Self {
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
                    if let Some(Ok(frame)) = &frame {
                        held.sent(frame.data_ref().map_or(0, Buf::remaining));
                    }
                    let trailers = match &frame {
                        Some(Ok(frame)) => frame.trailers_ref(),
                        _ => None,
                    };
                    // A caller that knows the end from `is_end_stream` does not poll for it.
                    let is_last = match &frame {
                        Some(Ok(_)) => trailers.is_some() || body.is_end_stream(),
                        _ => true,
                    };
                    let how = match &frame {
                        Some(Err(_)) => Ending::Failed,
                        _ => Ending::Complete,
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

    /// True at once for an empty rejection: only then does hyper end the stream with the headers,
    /// which makes a gRPC response trailers-only.
    fn is_end_stream(&self) -> bool {
        match &self.body {
            Either::Inner { body } => {
                let is_over = body.is_end_stream();
                if let Some(held) = self.held.as_ref().filter(|_| is_over) {
                    held.has_told_end.store(true, Ordering::Relaxed);
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
