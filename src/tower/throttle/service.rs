//! `Throttle`: a service that is ready when its next request may be sent.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tower_service::Service;

use super::grant::{Grant, Source};

/// A service that is ready when the whole fleet may send the next request; made by
/// [`ThrottleLayer`](crate::ThrottleLayer).
///
/// Being ready, it holds the permits for one request. They are used by the call, and given back
/// when the service is dropped before it, unless somebody has taken permits since; so become ready
/// when there is something to send, and not before, and wait for it
/// [without a timeout](crate::ThrottleLayer#what-if-callers-give-up). A clone holds none: it waits for its
/// own, under the same limit. Those who wait are served in the order in which they came, in all processes,
/// unless there is a [longest wait](crate::ThrottleLayer::max_wait).
///
/// The inner service is ready before the permits are asked for. A place that it keeps for its caller,
/// as a `Channel` of tonic, a `Buffer` or a `ConcurrencyLimit` does, is held
/// [while the caller waits](crate::ThrottleLayer#what-if-the-service-keeps-a-place-for-its-caller).
///
/// Responses and errors are those of the inner service. Needs a tokio runtime with time enabled.
///
/// # Panics
///
/// When it is called without having been ready, as tower allows: nothing may be sent that was not
/// counted.
pub struct Throttle<S> {
    inner: S,
    source: Arc<Source>,
    grant: Grant,
}

impl<S> Throttle<S> {
    pub(super) fn new(inner: S, source: Arc<Source>) -> Self {
        Self {
            inner,
            source,
            grant: Grant::None,
        }
    }

    /// The service that is limited. What is asked of it here passes every limit.
    pub fn get_ref(&self) -> &S {
        &self.inner
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self) -> &mut S {
        &mut self.inner
    }

    /// The service, limited no more. Permits that are there for a request are given back, as when this is dropped.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Service<R>, R> Service<R> for Throttle<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    /// Ready when the inner service is and the permits for one request are there.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        // The permits come last. Taken first, they would be kept from the fleet while an inner service
        // is slow to be ready, and when many are ready at once after a while, all would send on
        // permits of times gone by. The price is the place that some services keep for their caller.
        ready!(self.inner.poll_ready(cx))?;
        self.grant.poll_here(&self.source, cx).map(Ok)
    }

    fn call(&mut self, request: R) -> S::Future {
        assert!(
            self.grant.spend(),
            "the service is not ready; poll_ready must be called first"
        );
        self.inner.call(request)
    }
}

/// A grant is for one request, so that a clone has none.
impl<S: Clone> Clone for Throttle<S> {
    fn clone(&self) -> Self {
        Self::new(self.inner.clone(), Arc::clone(&self.source))
    }
}

impl<S: fmt::Debug> fmt::Debug for Throttle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("inner", &self.inner)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
