//! `RateLimitLayer`: puts a limiter in front of services.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{Request, Response};
use tower_layer::Layer;

use super::RateLimit;
use crate::decision::Verdict;
use crate::http::{
    BodyKind, Kept, OnRejection, ProblemJson, QuotaFields, QuotaHeaders, Rejection, ResponseBody,
    Wrapped, is_preflight,
};
use crate::limiter::{CountedBy, Delay, Judged, Judging, Limiter, Refusal, TakenByRequest};
use crate::request::RequestHead;
use crate::response::ResponseHead;
use crate::time::SystemClock;

/// Lets requests through to a service as a [`Limiter`] allows.
///
/// Works with axum, tonic and plain hyper. All services made by a layer and its clones share the
/// limiter, and with it the counts: a request that passes two of them is counted twice, of which the
/// log warns. If some limits belong outside of the authentication and others inside, build two
/// limiters, over clones of one store if you like.
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
///     .layer(RateLimitLayer::new(limiter).headers(QuotaHeaders::DRAFT_11.on_denials()));
/// # Ok(())
/// # }
/// ```
///
/// # On an axum router
///
/// `Router::layer` applies to the routes that were added before: **a route that is added after the
/// layer is not limited.** It also applies to requests that no route matches, and counts what is
/// answered with 404. `Router::route_layer` does not. Both count what is answered with 405, since a
/// route matches it by its path.
///
/// # The response's body
///
/// axum's and tonic's bodies stay what they are, so a layer fits wherever a service of theirs does:
/// in `option_layer`, if it may be absent, or around a whole `Router`, as it must be for a path to be
/// rewritten before routing:
///
/// ```
/// use axum::{Router, extract::Request, routing::get};
/// use axum::ServiceExt;
/// use tower::{Layer, util::option_layer};
/// use tower_throttle::{Limiter, RateLimitLayer};
///
/// fn app(limiter: Option<Limiter>) -> Router {
///     let limits = option_layer(limiter.map(RateLimitLayer::new));
///     Router::new().route("/", get(async || "hello")).layer(limits)
/// }
///
/// async fn serve(app: Router, limiter: Limiter) -> std::io::Result<()> {
///     let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
///     let app = RateLimitLayer::new(limiter).layer(app);
///     axum::serve(listener, ServiceExt::<Request>::into_make_service(app)).await
/// }
/// ```
///
/// Around a service whose responses have another body, [`wrap_body`](Self::wrap_body) is needed: with
/// plain hyper, and where a layer further in has changed the body, as one that compresses it does.
#[derive(Clone, Debug)]
pub struct RateLimitLayer<K = Kept> {
    settings: Arc<Settings>,
    kind: PhantomData<K>,
}

impl RateLimitLayer {
    /// A layer with the default headers ([`QuotaHeaders::DRAFT_11`]) and rejections
    /// ([`ProblemJson`]).
    pub fn new(limiter: Limiter) -> Self {
        Self {
            settings: Arc::new(Settings {
                limiter,
                headers: Arc::default(),
                on_rejection: Arc::new(ProblemJson),
                skips_preflights: false,
                exposes_decisions: false,
            }),
            kind: PhantomData,
        }
    }
}

impl<K> RateLimitLayer<K> {
    /// The same layer for services whose responses have any body, as with plain hyper: those behind
    /// the layer have a [`ResponseBody`](crate::ResponseBody) around it.
    ///
    /// ```
    /// use std::convert::Infallible;
    ///
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Full;
    /// use hyper::body::Incoming;
    /// use hyper_util::service::TowerToHyperService;
    /// use tower::{Layer, service_fn};
    /// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Policy, RateLimitLayer};
    ///
    /// async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    ///     Ok(Response::new(Full::from("hello")))
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::new(MemoryStore::new(), [Policy::new("all", Limit::gcra(9, MINUTE))])?;
    /// let layer = RateLimitLayer::new(limiter).wrap_body();
    /// let service = TowerToHyperService::new(layer.layer(service_fn(hello)));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn wrap_body(self) -> RateLimitLayer<Wrapped> {
        RateLimitLayer {
            settings: self.settings,
            kind: PhantomData,
        }
    }

    /// Sets which quota headers responses carry.
    #[must_use]
    pub fn headers(mut self, headers: QuotaHeaders) -> Self {
        Arc::make_mut(&mut self.settings).headers = Arc::new(ArcSwap::from_pointee(headers));
        self
    }

    /// The same, with headers that may change at any time.
    #[cfg(feature = "config")]
    pub(crate) fn headers_in_force(mut self, headers: Arc<ArcSwap<QuotaHeaders>>) -> Self {
        Arc::make_mut(&mut self.settings).headers = headers;
        self
    }

    /// Sets what builds the response of a rejection: [`PlainText`](crate::PlainText), or a closure as
    /// `responder(|request, rejection| ..)`, see [`OnRejection`].
    #[must_use]
    pub fn on_rejection(mut self, builder: impl OnRejection) -> Self {
        Arc::make_mut(&mut self.settings).on_rejection = Arc::new(builder);
        self
    }

    /// Lets CORS preflights through unjudged: requests with the method `OPTIONS` and the headers
    /// `Origin` and `Access-Control-Request-Method`.
    ///
    /// For a service that answers preflights itself, or has its CORS layer inside of this one.
    /// Browsers send preflights on their own, and a denied one fails the request that it is for.
    /// Preflights are then not limited at all, except for clients that are
    /// [refused](crate::Rules::deny) by their address. Anybody can send them, so answering them
    /// should be cheap.
    ///
    /// **They must reach nothing but what answers them.** A preflight is known by its head alone.
    /// If the service takes it for another request, it is a way around all limits. A handler for
    /// any method does so, and so does tonic, which serves calls by any method. A CORS layer in
    /// between prevents it if it answers every `OPTIONS`, as that of tower-http does.
    ///
    /// If the CORS layer can be *outside* of this one, that is better: it answers preflights, and
    /// code in a browser can see denials and quota headers (see [`QuotaHeaders`]).
    #[must_use]
    pub fn skip_preflights(mut self) -> Self {
        Arc::make_mut(&mut self.settings).skips_preflights = true;
        self
    }

    /// Puts a [`Verdict`] into the extensions of each request that is let through, so that the
    /// service can see what is left. In axum's handlers, `Option<Decision>` is then an extractor.
    /// The verdict is empty if no policy was asked, for example while limiting is
    /// [off](Limiter::turn_off). Off by default, since it takes an allocation or two for each
    /// request.
    #[must_use]
    pub fn expose_decisions(mut self) -> Self {
        Arc::make_mut(&mut self.settings).exposes_decisions = true;
        self
    }
}

impl<S, K> Layer<S> for RateLimitLayer<K> {
    type Service = RateLimit<S, K>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.settings))
    }
}

/// The settings that all services of a layer share.
#[derive(Clone)]
pub(super) struct Settings {
    limiter: Limiter,
    headers: Arc<ArcSwap<QuotaHeaders>>,
    on_rejection: Arc<dyn OnRejection>,
    skips_preflights: bool,
    exposes_decisions: bool,
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
