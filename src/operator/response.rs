//! Answers in JSON, and to a request that makes no sense.

use std::time::Duration;

use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use crate::error::{CheckError, ConfigError};
use crate::time::Micros;

/// All answers consist of texts, numbers and maps of them, which JSON has.
pub(super) fn json(answer: &impl Serialize) -> Response {
    let text = serde_json::to_vec(answer).unwrap_or_default();
    let media_type = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, media_type)], text).into_response()
}

/// Rounded up: a wait is never reported too short.
pub(super) fn millis(time: Duration) -> u64 {
    Micros::from(time).ceil_millis()
}

/// Problem details, RFC 9457.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    /// What is wrong, and what would be right.
    detail: String,
}

#[derive(Serialize)]
struct Body<'a> {
    r#type: &'a str,
    title: &'a str,
    status: u16,
    detail: &'a str,
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { status, detail }
    }

    pub(super) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }
}

impl From<ConfigError> for Problem {
    fn from(error: ConfigError) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        Self::new(StatusCode::NOT_FOUND, error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = Body {
            // With this type, the title is the status's own phrase.
            r#type: "about:blank",
            title: self.status.canonical_reason().unwrap_or_default(),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let mut response = (self.status, json(&body)).into_response();
        let media_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, media_type);
        response
    }
}
