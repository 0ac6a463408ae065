//! `ThrottleFuture`: a response whose head may hold the fleet.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use super::grant::Source;
use crate::http::{Feedback, ReadHead};

pin_project! {
    /// The response of a [`Throttle`](crate::Throttle) with [`Feedback`]: that of the inner service,
    /// read on its way.
    pub struct ThrottleFuture<F, H> {
        #[pin]
        response: F,
        source: Arc<Source>,
        feedback: Feedback<H>,
    }
}

impl<F, H> ThrottleFuture<F, H> {
    pub(super) fn new(response: F, source: Arc<Source>, feedback: Feedback<H>) -> Self {
        Self {
            response,
            source,
            feedback,
        }
    }
}

impl<F, H, R, E> Future for ThrottleFuture<F, H>
where
    F: Future<Output = Result<R, E>>,
    H: ReadHead<R>,
{
    type Output = Result<R, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.response.poll(cx))?;
        if let Some(time) = this.feedback.read(&response) {
            this.source.hold(time);
        }
        Poll::Ready(Ok(response))
    }
}

impl<F, H> fmt::Debug for ThrottleFuture<F, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThrottleFuture").finish_non_exhaustive()
    }
}
