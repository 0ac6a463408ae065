//! `RateLimitLayer`: puts a limiter in front of services.

use std::marker::PhantomData;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tower_layer::Layer;

use super::admission::Settings;
use super::service::RateLimit;
use crate::http::{Kept, OnRejection, ProblemJson, QuotaHeaders, Wrapped};
use crate::limiter::Limiter;

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

    /// Lets CORS preflights through unevaluated: requests with the method `OPTIONS` and the headers
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

    /// Puts a [`Verdict`](crate::Verdict) into the extensions of each request that is let through,
    /// so that the service can see what is left. In axum's handlers, `Option<Decision>` is then an extractor.
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
