//! `Line`: a request of the log, and how it was answered.

use std::net::IpAddr;

use http::header::HeaderValue;
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use tower_throttle::Micros;
use tower_throttle::UserId;

use crate::fields::Fields;
use crate::{combined, json};

/// A request of the log.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) at: Micros,
    pub(crate) address: IpAddr,
    /// With its [`Answer`] in the extensions.
    pub(crate) request: Request<()>,
    /// As it stands in the log.
    pub(crate) text: Box<[u8]>,
}

/// How a request was answered: what the service behind the layer answers again.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) grpc_status: Option<HeaderValue>,
}

/// What a line says, in either format.
pub(crate) struct Said {
    pub(crate) at: Micros,
    pub(crate) address: IpAddr,
    pub(crate) method: Method,
    pub(crate) target: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) user: Option<String>,
    pub(crate) answer: Answer,
}

impl Line {
    /// Reads a line: JSON if it begins with a brace, the combined or common format otherwise.
    ///
    /// # Errors
    ///
    /// Says what is missing.
    pub(crate) fn read(line: &[u8], fields: &Fields) -> Result<Self, String> {
        let line = line.trim_ascii();
        let text = std::str::from_utf8(line).map_err(|_| "is not UTF-8")?;
        let said = match text.starts_with('{') {
            true => json::read(text, fields)?,
            false => combined::read(text)?,
        };
        let mut request = Request::new(());
        *request.method_mut() = said.method;
        *request.uri_mut() = said.target;
        *request.headers_mut() = said.headers;
        request.extensions_mut().insert(said.answer);
        if let Some(user) = said.user {
            request.extensions_mut().insert(UserId::new(user));
        }
        Ok(Self {
            at: said.at,
            address: said.address,
            request,
            text: line.into(),
        })
    }
}
