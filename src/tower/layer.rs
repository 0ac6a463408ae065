//! `RateLimitLayer`: limits the requests to a service.

use std::marker::PhantomData;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tower_layer::Layer;

use super::admission::Settings;
use super::service::RateLimit;
use crate::http::{Kept, OnRejection, ProblemJson, QuotaHeaders, Wrapped};
use crate::limiter::Limiter;

/// Limits the requests to a service with a [`Limiter`].
///
/// Works with axum, tonic and plain hyper. All services of a layer and its clones share the limiter
/// and its counts. A request that passes two of them is counted twice, and the log warns about it.
/// If some limits belong outside of the authentication and others inside, build two limiters; they
/// can share clones of one store.
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
/// **Routes added after `.layer()` are not rate-limited.** `Router::layer` also applies to requests
/// that match no route, so it counts responses with 404. `Router::route_layer` does not. Both count
/// responses with 405, because those match a route by path.
///
/// # The response's body
///
/// axum's and tonic's bodies keep their type, so a layer fits wherever their services do: in
/// `option_layer`, for an optional layer, or around a whole `Router`, which is needed to rewrite
/// paths before routing:
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
/// Services with other response bodies need [`wrap_body`](Self::wrap_body): plain hyper, and an
/// inner layer that changes the body, such as compression.
#[derive(Clone, Debug)]
pub struct RateLimitLayer<K = Kept> {
    settings: Arc<Settings>,
    kind: PhantomData<K>,
}

impl RateLimitLayer {
    /// Creates a layer with the default headers ([`QuotaHeaders::DRAFT_11`]) and rejections
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
    /// Accepts services with any response body, as with plain hyper. Responses then have a
    /// [`ResponseBody`](crate::ResponseBody) around that body.
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

    /// Sets the quota headers of responses.
    #[must_use]
    pub fn headers(mut self, headers: QuotaHeaders) -> Self {
        Arc::make_mut(&mut self.settings).headers = Arc::new(ArcSwap::from_pointee(headers));
        self
    }

    /// Sets quota headers that may change at any time.
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

    /// Does not limit CORS preflights: requests with the method `OPTIONS` and the headers `Origin`
    /// and `Access-Control-Request-Method`.
    ///
    /// For a service that answers preflights itself, or whose CORS layer is inside of this one.
    /// Browsers send preflights on their own, and a denied preflight fails the actual request. The
    /// only remaining check is the [deny list](crate::Rules::deny) of addresses. Anybody can send
    /// preflights, so answering them should be cheap.
    ///
    /// **Preflights must reach only the code that answers them.** They are recognized by their head
    /// alone. If the service treats one as another request, it bypasses all limits. A handler for
    /// any method does so, and so does tonic, which serves calls by any method. A CORS layer in
    /// between prevents this if it answers every `OPTIONS`, as tower-http's does.
    ///
    /// If possible, put the CORS layer *outside* of this one instead: it answers preflights, and
    /// browser code can see denials and quota headers (see [`QuotaHeaders`]).
    #[must_use]
    pub fn skip_preflights(mut self) -> Self {
        Arc::make_mut(&mut self.settings).skips_preflights = true;
        self
    }

    /// Adds a [`Verdict`](crate::Verdict) to the extensions of each admitted request, so that the
    /// service can see what remains. In axum handlers, `Option<Decision>` is then an extractor. The
    /// verdict is empty if no policy was evaluated, for example while limiting is
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
