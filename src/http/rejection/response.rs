//! `Rejection::response`, and rejections by handlers that call a limiter themselves.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_LENGTH, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};

use super::on_rejection::OnRejection;
use super::{Rejection, grpc, number};
use crate::decision::Verdict;
use crate::error::CheckError;
use crate::limiter::{Denied, EarlyRejection, RejectReason};
use crate::request::RequestHead;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");

impl Rejection {
    /// The response to this request, the same as the layer's except for the quota headers. A gRPC
    /// call always gets a gRPC response.
    pub fn response(
        self,
        request: &RequestHead<'_>,
        on_rejection: &dyn OnRejection,
    ) -> Response<Bytes> {
        let mut response = match grpc::Dialect::of(request) {
            Some(dialect) => grpc::response(dialect, &self),
            None => self.over_http(request, on_rejection),
        };
        // RFC 6585, section 4: a cache must not store a 429. Nor should it store any other
        // rejection, since other clients would get it. A redirect is the builder's own.
        if !response.status().is_redirection() {
            let headers = response.headers_mut();
            headers.entry(CACHE_CONTROL).or_insert(NO_STORE);
        }
        if *request.method == Method::HEAD {
            withhold_body(&mut response);
        }
        response.extensions_mut().insert(self);
        response
    }

    fn over_http(
        &self,
        request: &RequestHead<'_>,
        on_rejection: &dyn OnRejection,
    ) -> Response<Bytes> {
        let mut response = on_rejection.respond(request, self);
        // The default of a new response: the builder has set no status.
        if response.status() == StatusCode::OK {
            *response.status_mut() = self.status();
        }
        // On a redirect, `Retry-After` would mean the wait before following it.
        if let Some(secs) = self.retry_after_secs
            && !response.status().is_redirection()
        {
            let headers = response.headers_mut();
            headers.entry(RETRY_AFTER).or_insert(secs.into());
        }
        response
    }

    /// The rejection of a response, by a layer or a handler.
    pub(crate) fn of_response<B>(response: &Response<B>) -> Option<&Self> {
        let extensions = response.extensions();
        let rejection = extensions.get();
        #[cfg(feature = "tonic")]
        let rejection = rejection.or_else(|| {
            let status: &tonic::Status = extensions.get()?;
            std::error::Error::source(status)?.downcast_ref()
        });
        rejection
    }

    /// The decisions by which a handler denied the request.
    pub(in crate::http) fn by_handler(&self) -> Option<&Verdict> {
        self.by_handler.as_ref()?.verdict()
    }
}

/// Raises the wait of a rejection to at least this, for an outer layer whose own policies have no
/// permits until then.
pub(in crate::http) fn prolong(headers: &mut HeaderMap, secs: u64) {
    if number(headers, &RETRY_AFTER).is_some_and(|shown| shown < secs) {
        headers.insert(RETRY_AFTER, secs.into());
    }
    grpc::prolong(headers, secs);
}

/// Removes the body but keeps its length, for the response to `HEAD`. Not every server does this:
/// over HTTP/2 hyper sends the bytes, and clients reset the stream.
fn withhold_body(response: &mut Response<Bytes>) {
    let length = std::mem::take(response.body_mut()).len();
    // An empty body needs no length, and a 204 must not have one: RFC 9110, section 8.6.
    if length > 0 {
        let headers = response.headers_mut();
        headers.entry(CONTENT_LENGTH).or_insert(length.into());
    }
}

/// The rejection of a denied permit, for handlers. With the feature `axum` it is answered as
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

/// The kind is [`Misconfigured`](super::RejectionKind::Misconfigured). So a handler that returns
/// rejections can use `?`. Such errors can occur when [`replace`](crate::Limiter::replace) or a
/// reload removes a policy.
impl From<CheckError> for Rejection {
    fn from(error: CheckError) -> Self {
        EarlyRejection::of_nobody(RejectReason::Misconfigured(error.to_string())).into()
    }
}

/// The response of its [`Rejection`].
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
        // A handler's response is HTTP, and axum itself removes the body for `HEAD`.
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

/// Has the same details and pushback as the layer's response.
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl From<Rejection> for tonic::Status {
    fn from(rejection: Rejection) -> Self {
        let mut response = grpc::response(grpc::Dialect::Grpc, &rejection);
        // The content type belongs to the whole response, not to a method's status.
        response.headers_mut().remove(http::header::CONTENT_TYPE);
        let mut status = Self::from_header_map(response.headers())
            .unwrap_or_else(|| Self::unknown(rejection.to_string()));
        // A layer finds it there and adds the policy to its headers.
        status.set_source(std::sync::Arc::new(rejection));
        status
    }
}

/// The status of its [`Rejection`], so that a method can use `?`.
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl From<Denied> for tonic::Status {
    fn from(denied: Denied) -> Self {
        Rejection::from(denied).into()
    }
}

/// The status of its [`Rejection`], so that a method can use `?`.
#[cfg(feature = "tonic")]
#[cfg_attr(docsrs, doc(cfg(feature = "tonic")))]
impl From<CheckError> for tonic::Status {
    fn from(error: CheckError) -> Self {
        Rejection::from(error).into()
    }
}
