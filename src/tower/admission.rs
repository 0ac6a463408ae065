//! What the layer asks the limiter, and what it does with the decisions.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};

use crate::decision::Verdict;
use crate::http::{
    BodyKind, Held, OnRejection, QuotaFields, QuotaHeaders, Rejection, ResponseBody, is_preflight,
};
use crate::limiter::{
    Conclusion, CountedBy, Delay, EarlyRejection, Limiter, PendingEvaluation, RequestCharges,
};
use crate::request::RequestHead;
use crate::response::{Ending, Meter, ResponseHead};
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
    pub(super) fn evaluate(&self, request: &RequestHead<'_>) -> Evaluated {
        let is_exempt = self.skips_preflights && is_preflight(request);
        let mut evaluation = self.limiter.evaluation();
        match self.limiter.evaluate(&mut evaluation, request, is_exempt) {
            Ok(()) if evaluation.is_in_flight() => {
                Evaluated::Pending(self.limiter.pending(evaluation))
            }
            Ok(()) => {
                let conclusion = evaluation.conclude(&self.limiter);
                Evaluated::Ready(self.dispose(conclusion, request))
            }
            Err(refusal) => Evaluated::Ready(Disposition::Reject(self.refuse(refusal, request))),
        }
    }

    /// Delays a request.
    pub(super) fn delay(&self, delay: Duration) -> Delay {
        self.limiter.delay(delay)
    }

    /// Turns what the limiter has concluded into what happens to the request.
    pub(super) fn dispose(
        &self,
        mut conclusion: Conclusion<'_>,
        request: &RequestHead<'_>,
    ) -> Disposition {
        let headers = **self.headers.load();
        let mut fields = headers.fields(&conclusion, &SystemClock);
        let counted_by = conclusion.follow(&self.limiter, request);
        match Rejection::of(&conclusion) {
            None => Disposition::Admit(Admitted {
                headers,
                fields,
                counted_by,
                verdict: match self.exposes_decisions {
                    true => Some(conclusion.verdict(request.extensions.get())),
                    false => None,
                },
                delay: conclusion.delay().to_duration(),
                charges: conclusion.take_charges(),
                method: None,
            }),
            Some(rejection) => {
                let mut response = rejection.response(request, &*self.on_rejection);
                fields.add_to(&mut response);
                Disposition::Reject(response)
            }
        }
    }

    /// The response to a request that no policy could be asked about.
    fn refuse(&self, refusal: EarlyRejection, request: &RequestHead<'_>) -> Response<Bytes> {
        Rejection::from(refusal).response(request, &*self.on_rejection)
    }
}

/// What the limiter says of a request.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on the memory path"
)]
pub(super) enum Evaluated {
    Ready(Disposition),
    /// It takes a round trip to the store.
    Pending(PendingEvaluation),
}

/// What happens to a request.
pub(super) enum Disposition {
    /// It goes on to the service.
    Admit(Admitted),
    /// It is answered with this response.
    Reject(Response<Bytes>),
}

/// What accompanies a request to the service.
pub(super) struct Admitted {
    headers: QuotaHeaders,
    /// The quota headers of its response.
    fields: QuotaFields,
    /// How long it is delayed before.
    pub(super) delay: Duration,
    /// Passed to the service in the request's extensions.
    verdict: Option<Verdict>,
    /// The same, for another layer of the limiter.
    counted_by: Option<CountedBy>,
    charges: RequestCharges,
    /// Of the request.
    method: Option<Method>,
}

impl Admitted {
    /// Call this just before the service is called with this request.
    pub(super) fn begin<B>(&mut self, request: &mut Request<B>) {
        if let Some(verdict) = self.verdict.take() {
            request.extensions_mut().insert(verdict);
        }
        if let Some(counted_by) = self.counted_by.take() {
            request.extensions_mut().insert(counted_by);
        }
        if let Some(charges) = &mut self.charges {
            charges.begin_use();
            if charges.settles_at_end() {
                // One for all layers that the request passes.
                let known: Option<&Meter> = request.extensions().get();
                let meter = known.cloned().unwrap_or_default();
                request.extensions_mut().insert(meter.clone());
                charges.meter_by(meter);
                self.method = Some(request.method().clone());
            }
        }
    }

    /// Call this when the service has answered.
    pub(super) fn finish<K, B>(&mut self, mut response: Response<B>) -> Response<K::Body>
    where
        K: BodyKind<B>,
    {
        let mut charges = self.charges.take();
        if let Some(charges) = &mut charges {
            charges.settle_at_head(&ResponseHead::new(&response));
            if let Some(method) = self.method.take()
                && has_no_body(&method, response.status())
            {
                charges.settle_at_end(Ending::Complete, None);
            }
        }
        self.headers.tell_of_handler(&mut response, &SystemClock);
        self.fields.add_to(&mut response);
        let held = charges.filter(|charges| charges.has_leases() || charges.awaits_end());
        let held = held.map(|charges| Held::until_end(charges, length_of(&response)));
        response.map(|body| match held {
            None => K::plain(body),
            held => K::holding(ResponseBody::inner(body, held)),
        })
    }

    /// Call this when the service has failed: nothing runs any more, however long its future is
    /// kept.
    pub(super) fn fail(&mut self) {
        self.charges = None;
    }
}

/// Whether the response to such a request ends with its head, or becomes another protocol there.
fn has_no_body(method: &Method, status: StatusCode) -> bool {
    *method == Method::HEAD
        || status.is_informational()
        || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status)
        || (*method == Method::CONNECT && status.is_success())
}

/// The length of the body that the head announces.
fn length_of<B>(response: &Response<B>) -> Option<u64> {
    let length = response.headers().get(CONTENT_LENGTH)?;
    length.to_str().ok()?.parse().ok()
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limiter", &self.limiter)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
