//! `ResponseBody`: the one body type that leaves the layer, whatever body is inside.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

pin_project! {
    /// The body of every response that leaves the layer: the inner service's, frame by frame with
    /// its trailers, or that of a rejection.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        body: Either<B>,
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
    pub(crate) fn inner(body: B) -> Self {
        Self {
            body: Either::Inner { body },
        }
    }

    pub(crate) fn rejection(bytes: Bytes) -> Self {
        Self {
            body: Either::Rejection { bytes },
        }
    }
}

impl<B: Default> Default for ResponseBody<B> {
    fn default() -> Self {
        Self::inner(B::default())
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
        match self.project().body.project() {
            EitherProjected::Inner { body } => body.poll_frame(cx),
            EitherProjected::Rejection { bytes } if bytes.is_empty() => Poll::Ready(None),
            EitherProjected::Rejection { bytes } => {
                let bytes = std::mem::take(bytes);
                Poll::Ready(Some(Ok(Frame::data(bytes.into()))))
            }
        }
    }

    /// True at once for an empty rejection: only then does hyper end the stream with the headers,
    /// which is what makes a gRPC answer trailers-only.
    fn is_end_stream(&self) -> bool {
        match &self.body {
            Either::Inner { body } => body.is_end_stream(),
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

#[cfg(test)]
mod tests {
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
        let body = ResponseBody::inner(Full::new(Bytes::from("hello")));
        assert_eq!(body.size_hint().exact(), Some(5));
        let collected = ResponseBody::inner(inner).collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "hello");
    }
}
