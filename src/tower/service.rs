//! `RateLimit`: a service behind a limiter.

use std::marker::PhantomData;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response};
use tower_service::Service;

use super::admission::{Disposition, Evaluated, Settings};
use super::future::ResponseFuture;
use crate::http::{BodyKind, Kept};
use crate::request::RequestHead;

/// A service behind a limiter; made by [`RateLimitLayer`](crate::RateLimitLayer).
///
/// A denied request is answered without calling the inner service. The inner service's errors pass
/// through unchanged.
///
/// A delayed request (see [`Policy::max_wait`](crate::Policy::max_wait)) reserves nothing in the
/// inner service. After its delay it waits until the service is ready; if that fails, it fails with
/// the service's error. Requests whose delay has ended may accumulate while the service is not
/// ready, and then go on together.
///
/// Dropping the future at any point is safe. An admitted request stays charged; one that still
/// waits for the store may be charged. A request that is delayed, or would have been, is refunded,
/// except for permits behind which others have queued. Permits of a
/// [concurrency](crate::Limit::concurrency) limit are released, as when the response's body ends or
/// is dropped.
///
/// A tokio runtime with time enabled is needed to delay requests, to hold permits of a concurrency
/// limit, and for refunds over Redis. Without it, a lease expires while its request runs.
#[derive(Clone, Debug)]
pub struct RateLimit<S, K = Kept> {
    inner: S,
    settings: Arc<Settings>,
    kind: PhantomData<K>,
}

impl<S, K> RateLimit<S, K> {
    pub(super) fn new(inner: S, settings: Arc<Settings>) -> Self {
        Self {
            inner,
            settings,
            kind: PhantomData,
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

    /// The inner service, without the limits.
    pub fn into_inner(self) -> S {
        self.inner
    }
}

impl<S: Clone, K> RateLimit<S, K> {
    /// Takes the instance that was polled ready and leaves an unready clone for the next call.
    fn take_ready(&mut self) -> S {
        let unready = self.inner.clone();
        std::mem::replace(&mut self.inner, unready)
    }

    /// Drops the ready instance, since others need what it reserved for this request (a permit, a
    /// place in a queue).
    fn give_up_ready(&mut self) {
        self.inner = self.inner.clone();
    }
}

impl<S, ReqBody, ResBody, K> Service<Request<ReqBody>> for RateLimit<S, K>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: BodyKind<ResBody>,
{
    type Response = Response<K::Body>;
    type Error = S::Error;
    type Future = ResponseFuture<S, ReqBody, K>;

    /// Ready when the inner service is.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<ReqBody>) -> Self::Future {
        let head = RequestHead::new(&request);
        match self.settings.evaluate(&head) {
            Evaluated::Ready(Disposition::Admit(mut admitted)) if admitted.delay.is_zero() => {
                admitted.begin(&mut request);
                ResponseFuture::calling(self.inner.call(request), admitted)
            }
            Evaluated::Ready(Disposition::Admit(admitted)) => {
                self.give_up_ready();
                ResponseFuture::waiting(self.inner.clone(), request, admitted, &self.settings)
            }
            Evaluated::Ready(Disposition::Reject(response)) => {
                self.give_up_ready();
                ResponseFuture::rejected(response)
            }
            Evaluated::Pending(evaluation) => {
                let ready = self.take_ready();
                ResponseFuture::asking(evaluation, ready, request, Arc::clone(&self.settings))
            }
        }
    }
}

/// Allows wrapping a single tonic service: `Server::builder().add_service(...)` routes by this
/// name.
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl<S: tonic::server::NamedService, K> tonic::server::NamedService for RateLimit<S, K> {
    const NAME: &'static str = S::NAME;
}
