//! `RateLimitLayer`: puts a limiter in front of services.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;
use tower_layer::Layer;

use super::RateLimit;
use crate::http::{OnRejection, ProblemJson, QuotaFields, QuotaHeaders, Rejection};
use crate::limiter::{Limiter, Refusal, Verdict};
use crate::request::RequestHead;

/// Lets requests through to a service as a [`Limiter`] allows it.
///
/// Works on axum, tonic and plain hyper alike. All services made by a layer and its clones share
/// the limiter, and with it the counts.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy, QuotaHeaders, RateLimitLayer};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::new(
///     MemoryStore::new(),
///     [Policy::new("everybody", Limit::gcra(100, MINUTE).burst(20))],
/// )?;
/// let app: Router = Router::new()
///     .route("/", get(|| async { "hello" }))
///     .layer(RateLimitLayer::new(limiter).headers(QuotaHeaders::Denials));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    settings: Arc<Settings>,
}

impl RateLimitLayer {
    /// A layer with the default headers ([`QuotaHeaders::Draft11`]) and rejections
    /// ([`ProblemJson`]).
    pub fn new(limiter: Limiter) -> Self {
        Self {
            settings: Arc::new(Settings {
                limiter,
                headers: QuotaHeaders::default(),
                on_rejection: Arc::new(ProblemJson),
            }),
        }
    }

    /// Which quota headers responses carry.
    #[must_use]
    pub fn headers(mut self, headers: QuotaHeaders) -> Self {
        Arc::make_mut(&mut self.settings).headers = headers;
        self
    }

    /// Who builds the response of a rejection: [`PlainText`](crate::PlainText), or a closure (see
    /// [`OnRejection`]).
    #[must_use]
    pub fn on_rejection(mut self, builder: impl OnRejection) -> Self {
        Arc::make_mut(&mut self.settings).on_rejection = Arc::new(builder);
        self
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

/// What all services of a layer share.
#[derive(Clone)]
pub(super) struct Settings {
    pub(super) limiter: Limiter,
    headers: QuotaHeaders,
    on_rejection: Arc<dyn OnRejection>,
}

impl Settings {
    /// What a verdict means for its request.
    pub(super) fn sentence(&self, verdict: &Verdict, request: &RequestHead<'_>) -> Sentence {
        let fields = self.headers.fields(verdict);
        match Rejection::of(verdict) {
            None => Sentence::Pass(fields),
            Some(rejection) => {
                let response = rejection.response(request, &*self.on_rejection);
                Sentence::Reject(with_fields(response, fields))
            }
        }
    }

    /// The response to a request that cannot be judged.
    pub(super) fn refuse(&self, refusal: Refusal, request: &RequestHead<'_>) -> Response<Bytes> {
        Rejection::from(refusal).response(request, &*self.on_rejection)
    }
}

/// What becomes of a request.
pub(super) enum Sentence {
    /// It goes on to the service, whose response gets the fields.
    Pass(Option<QuotaFields>),
    /// It is answered with this.
    Reject(Response<Bytes>),
}

/// Adds the quota fields, unless the response is a redirect: what it leads to has its own.
pub(super) fn with_fields<B>(
    mut response: Response<B>,
    fields: Option<QuotaFields>,
) -> Response<B> {
    if let Some(fields) = fields.filter(|_| !response.status().is_redirection()) {
        fields.append_to(response.headers_mut());
    }
    response
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limiter", &self.limiter)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}
