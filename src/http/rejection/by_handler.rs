//! Rejections by handlers that ask a limiter themselves, about what only they know.

use http::Response;

use super::Rejection;
use crate::decision::Verdict;
use crate::error::CheckError;
use crate::limiter::{Denied, EarlyRejection, RejectReason};

impl Rejection {
    /// The rejection that a response tells of, be it a layer's or a handler's.
    pub(crate) fn told_by<B>(response: &Response<B>) -> Option<&Self> {
        let extensions = response.extensions();
        let told = extensions.get();
        #[cfg(feature = "tonic")]
        let told = told.or_else(|| {
            let status: &tonic::Status = extensions.get()?;
            std::error::Error::source(status)?.downcast_ref()
        });
        told
    }

    /// The policies of a permit that was denied to a handler, with their decisions.
    pub(in crate::http) fn by_handler(&self) -> Option<&Verdict> {
        self.by_handler.as_ref()?.verdict()
    }
}

/// The answer to a permit that was denied to a handler: with the feature `axum`, that of
/// [`ProblemJson`](crate::ProblemJson); for another body, use [`response`](Rejection::response).
///
/// ```
/// use axum::{Json, Router, routing::post};
/// use tower_throttle::{Denied, Key, Limit, Limiter, MINUTE, MemoryStore, NoRequest, Policy};
///
/// # #[derive(serde::Deserialize)]
/// # struct Login { user: String }
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let login = Policy::new("login", Limit::sliding_log(5, 15 * MINUTE)).on(NoRequest);
/// let limiter = Limiter::new(MemoryStore::new(), [login])?;
/// let app: Router = Router::new().route("/login", post(async move |Json(login): Json<Login>| {
///     let _permit = limiter.admit("login", Key::user(login.user)).await?;
///     Ok::<_, Denied>("welcome")
/// }));
/// # Ok(())
/// # }
/// ```
impl From<Denied> for Rejection {
    fn from(denied: Denied) -> Self {
        match (denied.verdict(), denied.decision(), denied.error()) {
            (Some(verdict), Some(worst), _) => Self {
                by_handler: Some(denied.clone()),
                ..Self::by(verdict.iter(), worst)
            },
            (_, _, error) => {
                let text = error.map(CheckError::to_string).unwrap_or_default();
                EarlyRejection::of_nobody(RejectReason::Misconfigured(text)).into()
            }
        }
    }
}

/// Its kind is [`Misconfigured`](super::RejectionKind::Misconfigured). So a handler that returns
/// rejections can ask with `?`, and needs no panic for a policy that a
/// [`replace`](crate::Limiter::replace) or a file that was read again has removed.
impl From<CheckError> for Rejection {
    fn from(error: CheckError) -> Self {
        EarlyRejection::of_nobody(RejectReason::Misconfigured(error.to_string())).into()
    }
}

/// That of its [`Rejection`].
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl axum::response::IntoResponse for Denied {
    fn into_response(self) -> axum::response::Response {
        Rejection::from(self).into_response()
    }
}

/// The response of [`ProblemJson`](crate::ProblemJson).
#[cfg(feature = "axum")]
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl axum::response::IntoResponse for Rejection {
    fn into_response(self) -> axum::response::Response {
        // A handler's answer goes over HTTP, and axum itself strips its body for `HEAD`.
        let request = http::Request::new(());
        let head = crate::request::RequestHead::new(&request);
        self.response(&head, &super::ProblemJson).map(Into::into)
    }
}

/// Without the feature there is no such method, and the compiler would not say why.
#[cfg(not(feature = "axum"))]
impl Rejection {
    #[doc(hidden)]
    pub fn into_response<T>(self) -> http::Response<bytes::Bytes>
    where
        Self: without_axum::IntoResponse<T>,
    {
        unreachable!("nothing implements the trait")
    }
}

#[cfg(not(feature = "axum"))]
mod without_axum {
    #[diagnostic::on_unimplemented(
        message = "a `Rejection` is a response of axum with the feature `axum` of tower-throttle",
        label = "enable the feature `axum` of tower-throttle"
    )]
    pub trait IntoResponse<T> {}
}

/// With the details and the pushback of the layer's response.
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl From<Rejection> for tonic::Status {
    fn from(rejection: Rejection) -> Self {
        let mut response = super::grpc::response(super::grpc::Dialect::Grpc, &rejection);
        // It describes the whole response, not the status that a method returns.
        response.headers_mut().remove(http::header::CONTENT_TYPE);
        let mut status = Self::from_header_map(response.headers())
            .unwrap_or_else(|| Self::unknown(rejection.to_string()));
        // A layer finds it there, and tells of the policy in its headers.
        status.set_source(std::sync::Arc::new(rejection));
        status
    }
}

/// That of its [`Rejection`], so that a method can ask with `?`.
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl From<Denied> for tonic::Status {
    fn from(denied: Denied) -> Self {
        Rejection::from(denied).into()
    }
}

/// That of its [`Rejection`], so that a method can ask with `?`.
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl From<CheckError> for tonic::Status {
    fn from(error: CheckError) -> Self {
        Rejection::from(error).into()
    }
}
