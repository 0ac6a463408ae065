//! What the layer asks the limiter, and what it does with the decisions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};

use crate::decision::Verdict;
use crate::http::{
    BodyKind, OnRejection, QuotaFields, QuotaHeaders, Rejection, ResponseBody, is_preflight,
};
use crate::limiter::{CountedBy, Delay, Judged, Judging, Limiter, Refusal, TakenByRequest};
use crate::request::RequestHead;
use crate::response::ResponseHead;
use crate::time::SystemClock;

/// The settings that all services of a layer share.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) limiter: Limiter,
    pub(super) headers: Arc<ArcSwap<QuotaHeaders>>,
    pub(super) on_rejection: Arc<dyn OnRejection>,
    pub(super) skips_preflights: bool,
    pub(super) exposes_decisions: bool,
}

impl Settings {
    /// Asks the limiter.
    pub(super) fn judge(&self, request: &RequestHead<'_>) -> Result<Judging<Sentence>, Refusal> {
        let is_exempt = self.skips_preflights && is_preflight(request);
        let sentence = |judged: &mut Judged<'_>| self.sentence(judged, request);
        self.limiter.judge(request, is_exempt, sentence)
    }

    /// Delays a request.
    pub(super) fn delay(&self, delay: Duration) -> Delay {
        self.limiter.delay(delay)
    }

    /// Turns the decisions into what happens to the request.
    pub(super) fn sentence(&self, judged: &mut Judged<'_>, request: &RequestHead<'_>) -> Sentence {
        let headers = **self.headers.load();
        let mut fields = headers.fields(judged, &SystemClock);
        let counted_by = self.limiter.follow(judged, request);
        match Rejection::of(judged) {
            None => Sentence::Pass(Pass {
                headers,
                fields,
                counted_by,
                verdict: self.exposed(judged, request),
                delay: judged.delay().to_duration(),
                taken: judged.take_taken(),
            }),
            Some(rejection) => {
                let mut response = rejection.response(request, &*self.on_rejection);
                fields.add_to(&mut response);
                Sentence::Reject(response)
            }
        }
    }

    fn exposed(&self, judged: &Judged<'_>, request: &RequestHead<'_>) -> Option<Verdict> {
        let expose = || judged.verdict(request.extensions.get());
        self.exposes_decisions.then(expose)
    }

    /// The response to a request that cannot be judged.
    pub(super) fn refuse(&self, refusal: Refusal, request: &RequestHead<'_>) -> Response<Bytes> {
        Rejection::from(refusal).response(request, &*self.on_rejection)
    }
}

/// What happens to a request.
pub(super) enum Sentence {
    /// It goes on to the service.
    Pass(Pass),
    /// It is answered with this response.
    Reject(Response<Bytes>),
}

/// What accompanies a request to the service.
pub(super) struct Pass {
    headers: QuotaHeaders,
    /// The quota headers of its response.
    fields: QuotaFields,
    /// How long it is delayed before.
    pub(super) delay: Duration,
    /// Passed to the service in the request's extensions.
    verdict: Option<Verdict>,
    /// The same, for another layer of the limiter.
    counted_by: Option<CountedBy>,
    taken: TakenByRequest,
}

impl Pass {
    /// Call this just before the service is called with this request.
    pub(super) fn go_on<B>(&mut self, request: &mut Request<B>) {
        if let Some(verdict) = self.verdict.take() {
            request.extensions_mut().insert(verdict);
        }
        if let Some(counted_by) = self.counted_by.take() {
            request.extensions_mut().insert(counted_by);
        }
        if let Some(taken) = &mut self.taken {
            taken.go_on();
        }
    }

    /// Call this when the service has answered.
    pub(super) fn finish<K, B>(&mut self, mut response: Response<B>) -> Response<K::Body>
    where
        K: BodyKind<B>,
    {
        let taken = self.taken.take();
        if let Some(taken) = &taken {
            taken.settle(&ResponseHead::of(&response));
        }
        self.headers.tell_of_handler(&mut response, &SystemClock);
        self.fields.add_to(&mut response);
        // Leases are held until the response's body has ended.
        let held = taken.filter(|taken| taken.has_leases());
        response.map(|body| match held {
            None => K::plain(body),
            held => K::holding(ResponseBody::inner(body, held)),
        })
    }

    /// Call this when the service has failed: nothing runs any more, however long its future is
    /// kept.
    pub(super) fn fail(&mut self) {
        self.taken = None;
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limiter", &self.limiter)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
