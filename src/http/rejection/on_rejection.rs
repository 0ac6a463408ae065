//! The HTTP response of a rejection: `ProblemJson`, `PlainText`, or your own.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};

use super::{Class, Rejection, Segment};
use crate::request::RequestHead;

// Constants, so that their validity is not checked on each denial.
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");
const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Builds the HTTP response of a rejection: [`ProblemJson`], [`PlainText`], or a closure in
/// [`responder`].
///
/// The layer sets the rejection's [status](Rejection::status), unless the builder has set a status
/// other than 200. It adds `Retry-After` and `Cache-Control: no-store`, unless they are set, and
/// the quota headers. A redirect gets none of these, because they would have another meaning there.
/// The layer puts the [`Rejection`] into the response's extensions. For `HEAD` it replaces the body
/// by its length. gRPC calls get a gRPC response without calling the builder.
///
/// ```
/// use http::Response;
/// use tower_throttle::{Limiter, RateLimitLayer, responder};
///
/// fn layer(limiter: Limiter) -> RateLimitLayer {
///     RateLimitLayer::new(limiter).on_rejection(responder(|_request, rejection| {
///         Response::new(format!("<h1>Too fast for {}</h1>", rejection.policies().join(", ")))
///     }))
/// }
/// ```
///
/// The body is text or bytes. axum's `into_response` makes a stream, which does not fit: build the
/// response as above, and a JSON body by `serde_json::to_string`.
///
/// A status of 200 counts as not set, since it is the default of a new response. So a builder
/// cannot turn a denial into a success. For a protocol that reports errors with 200, such as
/// JSON-RPC, set the status outside of the layer:
///
/// ```
/// # use axum::{Router, routing::post};
/// # use http::StatusCode;
/// # use tower_throttle::{Limiter, RateLimitLayer, Rejection};
/// use axum::{middleware::map_response, response::Response};
///
/// async fn ok(mut response: Response) -> Response {
///     if response.extensions().get::<Rejection>().is_some() {
///         *response.status_mut() = StatusCode::OK;
///     }
///     response
/// }
///
/// # fn app(limiter: Limiter) -> Router {
/// Router::new()
///     .route("/rpc", post(async || "{}"))
///     .layer(RateLimitLayer::new(limiter))
///     .layer(map_response(ok))
/// # }
/// ```
///
/// A `Box<dyn OnRejection>` is a builder that is chosen at run time, an `Arc<dyn OnRejection>` one
/// that layers share.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not build the response of a rejection",
    label = "expected a closure that returns an `http::Response` with text or bytes as its body",
    note = "axum's `into_response` makes a stream: build the response by \
            `Response::new(text)`, which gets the rejection's status, and a JSON body by \
            `serde_json::to_string`",
    note = "write a closure as `responder(|request, rejection| ..)`, or annotate its types: \
            `|request: &RequestHead<'_>, rejection: &Rejection| ..`"
)]
pub trait OnRejection: Send + Sync + 'static {
    /// The response to this request. Only its head is still available.
    fn respond(&self, request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes>;
}

#[diagnostic::do_not_recommend]
impl<F, B> OnRejection for F
where
    F: Fn(&RequestHead<'_>, &Rejection) -> Response<B> + Send + Sync + 'static,
    B: Into<Bytes>,
{
    fn respond(&self, request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        self(request, rejection).map(Into::into)
    }
}

/// Returns the closure unchanged, so that the compiler infers its parameter types. For
/// [`RateLimitLayer::on_rejection`](crate::RateLimitLayer::on_rejection); see [`OnRejection`].
pub fn responder<F, B>(respond: F) -> F
where
    F: Fn(&RequestHead<'_>, &Rejection) -> Response<B>,
{
    respond
}

macro_rules! on_rejection_behind {
    ($($pointer:ident)+) => {$(
        impl OnRejection for $pointer<dyn OnRejection> {
            fn respond(&self, request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
                (**self).respond(request, rejection)
            }
        }
    )+};
}
on_rejection_behind!(Arc Box);

/// Problem details, RFC 9457: `application/problem+json`. The default.
///
/// ```json
/// {
///   "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
///   "title": "Quota exceeded",
///   "status": 429,
///   "detail": "policy \"client\": the quota is used up, retry after 30 s",
///   "violated-policies": ["client"],
///   "retry-after-secs": 30
/// }
/// ```
///
/// `retry-after-secs` is the number in the header `Retry-After`, unless an outer layer has [raised
/// the header](crate::QuotaHeaders#retry-after). Like the header, it is omitted if waiting does not
/// help. If the store failed, the type is `...#temporary-reduced-capacity`. If the request could
/// not be evaluated, the type is `about:blank`, and `violated-policies` is omitted: the detail
/// names the policy and the problem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProblemJson;

impl OnRejection for ProblemJson {
    fn respond(&self, _request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        response(rejection, PROBLEM_JSON, problem(rejection))
    }
}

/// The rejection's sentence as `text/plain`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlainText;

impl OnRejection for PlainText {
    fn respond(&self, _request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        let text = format!("{rejection}\n");
        response(rejection, PLAIN_TEXT, text)
    }
}

fn response(rejection: &Rejection, media_type: HeaderValue, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = rejection.status();
    response.headers_mut().insert(CONTENT_TYPE, media_type);
    response
}

fn problem(rejection: &Rejection) -> String {
    let mut json = String::with_capacity(512);
    let class = rejection.kind.class();
    json.push_str(beginning(class));
    let Ok(()) = rejection.sentence(|part| {
        match part {
            Segment::Plain(words) => json.push_str(words),
            Segment::Name(name) => push_quoted(&mut json, name),
            Segment::Text(text) => push_escaped(&mut json, text),
        }
        Ok::<_, Infallible>(())
    });
    // These kinds come from decisions, so there is a policy.
    if matches!(class, Class::Quota | Class::StoreFailed) {
        json.push_str(r#"","violated-policies":[""#);
        for (position, policy) in rejection.policies.iter().enumerate() {
            json.push_str(if position > 0 { "\",\"" } else { "" });
            push_escaped(&mut json, policy);
        }
        json.push_str("\"]");
    } else {
        json.push('"');
    }
    if let Some(secs) = rejection.retry_after_secs {
        json.push_str(r#","retry-after-secs":"#);
        json.push_str(itoa::Buffer::new().format(secs));
    }
    json.push('}');
    json
}

/// Everything before the detail, in one piece for each kind: many small pieces would be a
/// measurable part of the cost of a denial.
fn beginning(class: Class) -> &'static str {
    match class {
        Class::Quota => concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Quota exceeded","status":429,"detail":""#,
        ),
        Class::StoreFailed => concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#temporary-reduced-capacity","#,
            r#""title":"Temporary reduced capacity","status":503,"detail":""#,
        ),
        // RFC 9457, section 4.2.1: with `about:blank` the title is the status's own phrase.
        Class::Refused => r#"{"type":"about:blank","title":"Forbidden","status":403,"detail":""#,
        Class::BadRequest => {
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":""#
        }
        Class::Misconfigured => {
            r#"{"type":"about:blank","title":"Internal Server Error","status":500,"detail":""#
        }
    }
}

/// Escapes text for a JSON string: RFC 8259, section 7.
fn push_escaped(json: &mut String, text: &str) {
    let mut rest = text;
    // In large pieces: hardly any text has a character to escape.
    while let Some(position) = rest.bytes().position(is_special) {
        let (plain, special) = rest.split_at(position);
        json.push_str(plain);
        let mut chars = special.chars();
        match chars.next() {
            Some(char @ ('"' | '\\')) => json.extend(['\\', char]),
            Some(char) => json.push_str(&format!("\\u{:04x}", u32::from(char))),
            None => {}
        }
        rest = chars.as_str();
    }
    json.push_str(rest);
}

/// Escapes text that is quoted as by `Debug`.
fn push_quoted(json: &mut String, text: &str) {
    let shown = |byte: u8| is_special(byte) || !(b' '..=b'~').contains(&byte);
    if text.bytes().any(shown) {
        return push_escaped(json, &format!("{text:?}"));
    }
    json.push_str("\\\"");
    json.push_str(text);
    json.push_str("\\\"");
}

fn is_special(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\' | 0..=0x1f)
}
