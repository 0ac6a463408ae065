//! What was decided about a request, and its meter, as extractors of axum's handlers.

use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::decision::{Decision, Verdict};
use crate::response::Meter;

/// All that was decided about the request, which may be nothing. Answers with 500 when no layer
/// [exposes decisions](crate::RateLimitLayer::expose_decisions).
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> FromRequestParts<S> for Verdict {
    type Rejection = NoDecision;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoDecision> {
        parts.extensions.get().cloned().ok_or(NoDecision)
    }
}

/// The decision of the policy that is [closest to exhaustion](Verdict::tightest); `None` when no
/// policy was asked about the request. Answers with 500 when no layer
/// [exposes decisions](crate::RateLimitLayer::expose_decisions).
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{Decision, Limiter, RateLimitLayer};
///
/// async fn hello(decision: Option<Decision>) -> String {
///     match decision {
///         Some(decision) => format!("{} left", decision.remaining()),
///         None => "not limited".to_owned(),
///     }
/// }
///
/// fn app(limiter: Limiter) -> Router {
///     let limits = RateLimitLayer::new(limiter).expose_decisions();
///     Router::new().route("/", get(hello)).layer(limits)
/// }
/// ```
///
/// A handler has to take the `Option`. Whoever operates the service can bring it about at any moment
/// that nobody is asked (the [kill switch](crate::Limiter::turn_off), a [`Mode`](crate::Mode), an
/// [allow list](crate::Limiter::set_allowed)), and no handler may fail for that:
///
/// ```compile_fail,E0277
/// # use axum::{Router, routing::get};
/// # use tower_throttle::Decision;
/// let app: Router = Router::new().route("/", get(async |_: Decision| "hello"));
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> OptionalFromRequestParts<S> for Decision {
    type Rejection = NoDecision;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, NoDecision> {
        let verdict: &Verdict = parts.extensions.get().ok_or(NoDecision)?;
        Ok(verdict.tightest().copied())
    }
}

/// No layer in front of the handler tells it what was decided.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub struct NoDecision;

impl fmt::Display for NoDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no layer exposes its decisions to this handler: call `expose_decisions` on the \
             `RateLimitLayer` in front of it",
        )
    }
}

impl std::error::Error for NoDecision {}

impl IntoResponse for NoDecision {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}

/// The request's meter. Where no policy of a layer in front of the handler settles at the end, or the
/// request is not limited, it counts for nobody.
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> FromRequestParts<S> for Meter {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
