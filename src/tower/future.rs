//! `ResponseFuture`: the future of a request in the layer.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use pin_project_lite::pin_project;
use tower_service::Service;

use super::admission::{Admitted, Disposition, Settings};
use crate::http::{BodyKind, Kept};
use crate::limiter::{Delay, PendingEvaluation};
use crate::request::RequestHead;

pin_project! {
    /// The future of [`RateLimit`](crate::RateLimit).
    pub struct ResponseFuture<S, B, K = Kept>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B>,
        kind: PhantomData<K>,
    }
}

pin_project! {
    #[project = StateProjected]
    enum State<S, B>
    where
        S: Service<Request<B>>,
    {
        /// Waiting for the store's answer.
        Asking {
            // Taken when the answer is there.
            asking: Option<Asking<S, B>>,
        },
        /// Allowed, waiting for the end of its delay.
        Waiting {
            delay: Delay,
            // Taken when the wait is over.
            waiting: Option<Waiting<S, B>>,
        },
        /// The delay is over; waiting for the inner service to become ready.
        Entering {
            // Taken when the service is ready or has failed.
            waiting: Option<Waiting<S, B>>,
        },
        /// Allowed: the inner service is running.
        Calling {
            #[pin]
            response: S::Future,
            admitted: Admitted,
        },
        /// Denied, or rejected before it was evaluated.
        Rejected {
            // Taken when it is returned.
            response: Option<Response<Bytes>>,
        },
    }
}

/// What is needed to go on after the store's answer.
struct Asking<S, B> {
    evaluation: PendingEvaluation,
    ready: S,
    request: Request<B>,
    settings: Arc<Settings>,
}

/// What is needed to go on after the delay.
struct Waiting<S, B> {
    /// Not polled ready during the delay, so that it reserves nothing in the service.
    service: S,
    request: Request<B>,
    admitted: Admitted,
}

impl<S, B, K> ResponseFuture<S, B, K>
where
    S: Service<Request<B>>,
{
    fn new(state: State<S, B>) -> Self {
        Self {
            state,
            kind: PhantomData,
        }
    }

    pub(super) fn asking(
        evaluation: PendingEvaluation,
        ready: S,
        request: Request<B>,
        settings: Arc<Settings>,
    ) -> Self {
        let asking = Some(Asking {
            evaluation,
            ready,
            request,
            settings,
        });
        Self::new(State::Asking { asking })
    }

    pub(super) fn waiting(
        service: S,
        request: Request<B>,
        admitted: Admitted,
        settings: &Settings,
    ) -> Self {
        Self::new(State::waiting(service, request, admitted, settings))
    }

    pub(super) fn calling(response: S::Future, admitted: Admitted) -> Self {
        Self::new(State::Calling { response, admitted })
    }

    pub(super) fn rejected(response: Response<Bytes>) -> Self {
        Self::new(State::Rejected {
            response: Some(response),
        })
    }
}

impl<S, B> State<S, B>
where
    S: Service<Request<B>>,
{
    fn waiting(service: S, request: Request<B>, admitted: Admitted, settings: &Settings) -> Self {
        Self::Waiting {
            delay: settings.delay(admitted.delay),
            waiting: Some(Waiting {
                service,
                request,
                admitted,
            }),
        }
    }

    fn calling(mut ready: S, mut request: Request<B>, mut admitted: Admitted) -> Self {
        admitted.begin(&mut request);
        Self::Calling {
            response: ready.call(request),
            admitted,
        }
    }
}

impl<S, B> Asking<S, B>
where
    S: Service<Request<B>> + Clone,
{
    fn poll_next(asking: &mut Option<Self>, cx: &mut Context<'_>) -> Poll<State<S, B>> {
        let evaluation = &mut asking.as_mut().expect(POLLED_AGAIN).evaluation;
        ready!(evaluation.poll_answered(cx));
        let Self {
            mut evaluation,
            ready,
            request,
            settings,
        } = asking.take().expect(POLLED_AGAIN);
        let head = RequestHead::new(&request);
        let disposition = settings.dispose(evaluation.conclude(), &head);
        Poll::Ready(match disposition {
            Disposition::Admit(admitted) if admitted.delay.is_zero() => {
                State::calling(ready, request, admitted)
            }
            // The ready instance is dropped here, which frees what it reserved.
            Disposition::Admit(admitted) => {
                State::waiting(ready.clone(), request, admitted, &settings)
            }
            Disposition::Reject(response) => State::Rejected {
                response: Some(response),
            },
        })
    }
}

impl<S, B> Waiting<S, B>
where
    S: Service<Request<B>>,
{
    /// Goes on when the service is ready. If the service fails instead, it was never called, so all
    /// permits of the request are refunded.
    fn poll_enter(
        waiting: &mut Option<Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<State<S, B>, S::Error>> {
        let polled = waiting.as_mut().expect(POLLED_AGAIN).service.poll_ready(cx);
        let is_ready = ready!(polled);
        let entering = waiting.take().expect(POLLED_AGAIN);
        let enter = |()| State::calling(entering.service, entering.request, entering.admitted);
        Poll::Ready(is_ready.map(enter))
    }
}

/// `Future` allows this panic.
const POLLED_AGAIN: &str = "the future was polled after it was done";

impl<S, ReqBody, ResBody, K> Future for ResponseFuture<S, ReqBody, K>
where
    S: Service<Request<ReqBody>, Response = Response<ResBody>> + Clone,
    K: BodyKind<ResBody>,
{
    type Output = Result<Response<K::Body>, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjected::Asking { asking } => ready!(Asking::poll_next(asking, cx)),
                StateProjected::Waiting { delay, waiting } => {
                    ready!(delay.as_mut().poll(cx));
                    State::Entering {
                        waiting: waiting.take(),
                    }
                }
                StateProjected::Entering { waiting } => {
                    match ready!(Waiting::poll_enter(waiting, cx)) {
                        Ok(calling) => calling,
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
                StateProjected::Calling { response, admitted } => {
                    return Poll::Ready(match ready!(response.poll(cx)) {
                        Ok(response) => Ok(admitted.finish::<K, _>(response)),
                        Err(error) => {
                            admitted.fail();
                            Err(error)
                        }
                    });
                }
                StateProjected::Rejected { response } => {
                    let response = response.take().expect(POLLED_AGAIN);
                    return Poll::Ready(Ok(response.map(K::rejection)));
                }
            };
            state.set(next);
        }
    }
}

impl<S, B, K> fmt::Debug for ResponseFuture<S, B, K>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
