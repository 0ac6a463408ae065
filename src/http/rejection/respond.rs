//! Who builds the HTTP response of a rejection: `ProblemJson`, `PlainText`, or the user.

use std::fmt::{self, Write};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};

use super::{Rejection, RejectionKind};
use crate::request::RequestHead;

/// Builds the HTTP response of a rejection: [`ProblemJson`], [`PlainText`], or a closure.
///
/// The layer adds `Retry-After` and `Cache-Control: no-store` where they are not set, the quota
/// headers, and the [`Rejection`] itself to the extensions. Requests over gRPC are answered in
/// gRPC's own way, and never come here.
///
/// ```
/// use http::Response;
/// use tower_throttle::{OnRejection, Rejection, RequestHead};
///
/// let page = |request: &RequestHead<'_>, rejection: &Rejection| {
///     let text = format!("<h1>Too fast for {}</h1>", rejection.policies().join(", "));
///     let mut response = Response::new(text);
///     *response.status_mut() = rejection.status();
///     response
/// };
/// # fn accepted(_: impl OnRejection) {}
/// # accepted(page);
/// ```
pub trait OnRejection: Send + Sync + 'static {
    /// The response to this request, whose head is all that is left of it.
    fn respond(&self, request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes>;
}

impl<F, B> OnRejection for F
where
    F: Fn(&RequestHead<'_>, &Rejection) -> Response<B> + Send + Sync + 'static,
    B: Into<Bytes>,
{
    fn respond(&self, request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        self(request, rejection).map(Into::into)
    }
}

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
/// `retry-after-secs` is the number in the header `Retry-After`; like the header it is left out
/// when waiting does not help. When the store gave no answer, the type is
/// `...#temporary-reduced-capacity`. For a request that cannot be judged it is `about:blank`, and
/// there is no `violated-policies`: the detail names the policy and what is wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProblemJson;

impl OnRejection for ProblemJson {
    fn respond(&self, _request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        // Writing to a `String` cannot fail.
        let mut json = String::with_capacity(512);
        let _ = write_problem(&mut json, rejection);
        response(rejection, "application/problem+json", json)
    }
}

/// One sentence as `text/plain`.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainText;

impl OnRejection for PlainText {
    fn respond(&self, _request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        let text = format!("{rejection}\n");
        response(rejection, "text/plain; charset=utf-8", text)
    }
}

fn response(rejection: &Rejection, media_type: &'static str, body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    *response.status_mut() = rejection.status();
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}

fn write_problem(json: &mut String, rejection: &Rejection) -> fmt::Result {
    let (name, title) = match rejection.kind {
        RejectionKind::QuotaExceeded | RejectionKind::NeverFits | RejectionKind::Banned => {
            (Some("quota-exceeded"), "Quota exceeded")
        }
        RejectionKind::StoreFailed(_) => (
            Some("temporary-reduced-capacity"),
            "Temporary reduced capacity",
        ),
        // RFC 9457, section 4.2.1: with `about:blank` the title is the status's own phrase.
        RejectionKind::Refused => (None, "Forbidden"),
        RejectionKind::MissingKey | RejectionKind::BadCost => (None, "Bad Request"),
        RejectionKind::Misconfigured => (None, "Internal Server Error"),
    };
    json.push_str(r#"{"type":""#);
    match name {
        Some(name) => {
            json.push_str("https://iana.org/assignments/http-problem-types#");
            json.push_str(name);
        }
        None => json.push_str("about:blank"),
    }
    json.push_str(r#"","title":""#);
    json.push_str(title);
    json.push_str(r#"","status":"#);
    json.push_str(rejection.status().as_str());
    json.push_str(r#","detail":""#);
    write!(Escaped(json), "{rejection}")?;
    json.push('"');
    if name.is_some() {
        json.push_str(r#","violated-policies":["#);
        for (position, policy) in rejection.policies.iter().enumerate() {
            json.push_str(if position > 0 { ",\"" } else { "\"" });
            Escaped(json).write_str(policy)?;
            json.push('"');
        }
        json.push(']');
    }
    if let Some(secs) = rejection.retry_after_secs {
        json.push_str(r#","retry-after-secs":"#);
        json.push_str(itoa::Buffer::new().format(secs));
    }
    json.push('}');
    Ok(())
}

/// What is written here stands in a string of JSON: RFC 8259, section 7.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        // Piece by piece: hardly any text has a character to escape.
        let is_special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
        while let Some(position) = rest.bytes().position(is_special) {
            let (plain, special) = rest.split_at(position);
            self.0.push_str(plain);
            let mut chars = special.chars();
            match chars.next() {
                Some(char @ ('"' | '\\')) => self.0.extend(['\\', char]),
                Some(char) => write!(self.0, "\\u{:04x}", u32::from(char))?,
                None => {}
            }
            rest = chars.as_str();
        }
        self.0.push_str(rest);
        Ok(())
    }
}
