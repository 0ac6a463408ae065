//! `Throttle`: a service that is ready when its next request may be sent.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::future::ThrottleFuture;
use super::grant::{Grant, Source};
use crate::http::{Feedback, ReadHead};

/// A service that is ready when the whole fleet may send the next request; made by
/// [`ThrottleLayer`](crate::ThrottleLayer).
///
/// When ready, it holds the permits for one request. The call uses them. If the service is dropped
/// before the call, they are refunded, unless somebody has taken permits since. So poll it ready
/// only when there is something to send, and [without a
/// timeout](crate::ThrottleLayer#what-if-callers-give-up). A clone holds no permits: it acquires
/// its own, under the same limit. Callers are served in order of arrival, across all processes,
/// unless [`max_wait`](crate::ThrottleLayer::max_wait) is set.
///
/// The inner service is polled ready before the permits are acquired. If it reserves a place, as
/// tonic's `Channel`, a `Buffer` or a `ConcurrencyLimit` does, the place is occupied [while the
/// caller waits](crate::ThrottleLayer#what-if-the-service-keeps-a-place-for-its-caller).
///
/// Responses and errors are those of the inner service. Needs a tokio runtime with time enabled.
///
/// # Panics
///
/// If it is called without being ready (tower allows this panic), because nothing may be sent
/// uncounted.
pub struct Throttle<S, F = ()> {
    inner: S,
    source: Arc<Source>,
    feedback: F,
    grant: Grant,
}

impl<S, F> Throttle<S, F> {
    pub(super) fn new(inner: S, source: Arc<Source>, feedback: F) -> Self {
        Self {
            inner,
            source,
            feedback,
            grant: Grant::None,
        }
    }

    /// The inner service. Calls made to it directly are not limited.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The inner service, mutably.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The inner service, without the limit. Permits held for a request are refunded, as when this
    /// is dropped.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S, F> Throttle<S, F> {
    /// Ready when the inner service is, and the permits for one request are available.
    fn poll_granted<R>(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>>
    where
        S: Service<R>,
    {
        // The permits come last. If acquired first, they would be unavailable to the fleet while an
        // inner service is slow to become ready, and services that become ready together would send
        // a burst on old permits. The price is that some services reserve a place meanwhile.
        ready!(self.inner.poll_ready(cx))?;
        self.grant.poll_here(&self.source, cx).map(Ok)
    }

    fn call_granted<R>(&mut self, request: R) -> S::Future
    where
        S: Service<R>,
    {
        assert!(
            self.grant.consume(),
            "the service is not ready; poll_ready must be called first"
        );
        self.inner.call(request)
    }
}

impl<S: Service<R>, R> Service<R> for Throttle<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.poll_granted(cx)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.call_granted(request)
    }
}

impl<S, R, H> Service<R> for Throttle<S, Feedback<H>>
where
    S: Service<R>,
    H: ReadHead<S::Response> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ThrottleFuture<S::Future, H>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.poll_granted(cx)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let response = self.call_granted(request);
        ThrottleFuture::new(response, Arc::clone(&self.source), self.feedback.clone())
    }
}

/// A grant is for one request, so a clone has none.
impl<S: Clone, F: Clone> Clone for Throttle<S, F> {
    fn clone(&self) -> Self {
        let (source, feedback) = (Arc::clone(&self.source), self.feedback.clone());
        Self::new(self.inner.clone(), source, feedback)
    }
}

impl<S: fmt::Debug, F> fmt::Debug for Throttle<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("inner", &self.inner)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
