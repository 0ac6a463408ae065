//! `Api`: what the endpoints work on, and what they read from requests.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::extract::rejection::BytesRejection;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::audit::AuditLog;
use super::counters::Counters;
use super::response::Problem;
use crate::limiter::Limiter;
use crate::observers::TopDenied;
use crate::one_line::OneLine;
use crate::request::{AddressExtractor, RequestHead};
use crate::time::Clock;

/// A longer name is cut: it is what a request says.
const LONGEST_NAME: usize = 100;

/// What the endpoints work on.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) limiter: Limiter,
    pub(super) counters: Arc<Counters>,
    pub(super) top: Option<TopDenied>,
    pub(super) audit: Arc<AuditLog>,
    /// By which blocks end.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) client_address: Option<Arc<dyn AddressExtractor>>,
    pub(super) actor: Option<ReadActor>,
}

/// Reads from a request who sends it.
pub(super) type ReadActor = Arc<dyn Fn(&RequestHead<'_>) -> Option<String> + Send + Sync>;

/// Who sends a request, if the application says how to find out.
pub(super) struct Actor(pub(super) Option<String>);

impl FromRequestParts<Api> for Actor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Infallible> {
        let Some(read) = &api.actor else {
            return Ok(Self(None));
        };
        let name = read(&RequestHead {
            method: &parts.method,
            uri: &parts.uri,
            headers: &parts.headers,
            extensions: &parts.extensions,
        });
        let shown = name.map(|name| OneLine(name).to_string());
        Ok(Self(
            shown.map(|name| name.chars().take(LONGEST_NAME).collect()),
        ))
    }
}

/// Reads a body in JSON.
pub(super) fn read<T: DeserializeOwned>(body: Result<Bytes, BytesRejection>) -> Result<T, Problem> {
    let body = body.map_err(|rejection| Problem::new(rejection.status(), rejection.body_text()))?;
    serde_json::from_slice(&body).map_err(|error| Problem::bad_request(format!("body: {error}")))
}
