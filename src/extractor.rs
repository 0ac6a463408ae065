//! What was decided about a request, as extractors of axum's handlers.

use std::convert::Infallible;
use std::fmt;

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;

use crate::decision::{Decision, Verdict};

/// All that was decided about the request. Answers with 500 when no layer
/// [exposes decisions](crate::RateLimitLayer::expose_decisions).
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> FromRequestParts<S> for Verdict {
    type Rejection = NoDecision;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoDecision> {
        parts.extensions.get().cloned().ok_or(NoDecision)
    }
}

/// The decision of the policy that is closest to exhaustion. Answers with 500 when no policy was
/// asked about the request, or no layer
/// [exposes decisions](crate::RateLimitLayer::expose_decisions); take an `Option<Decision>` where
/// that may be.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::{Decision, Limiter, RateLimitLayer};
///
/// async fn hello(decision: Decision) -> String {
///     format!("{} left", decision.remaining())
/// }
///
/// fn app(limiter: Limiter) -> Router {
///     let limits = RateLimitLayer::new(limiter).expose_decisions();
///     Router::new().route("/", get(hello)).layer(limits)
/// }
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> FromRequestParts<S> for Decision {
    type Rejection = NoDecision;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, NoDecision> {
        let verdict: Option<&Verdict> = parts.extensions.get();
        verdict
            .and_then(Verdict::tightest)
            .copied()
            .ok_or(NoDecision)
    }
}

/// `None` when no policy was asked about the request.
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl<S: Sync> OptionalFromRequestParts<S> for Decision {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        let verdict: Option<&Verdict> = parts.extensions.get();
        Ok(verdict.and_then(Verdict::tightest).copied())
    }
}

/// There is no decision about the request that a handler could see.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
pub struct NoDecision;

impl fmt::Display for NoDecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "no policy was asked about the request, or its layer does not expose decisions: call \
             `RateLimitLayer::expose_decisions`",
        )
    }
}

impl std::error::Error for NoDecision {}

impl IntoResponse for NoDecision {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response()
    }
}
