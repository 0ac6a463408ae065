//! `AllowedHosts`: by which names operators reach the router, and whose pages may press its buttons.

use std::sync::Arc;

use axum::extract::Request;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderName, StatusCode, Uri};

use super::response::Problem;
use crate::error::ConfigError;

/// The hosts by which operators reach the router; empty if any will do.
#[derive(Clone, Default)]
pub(super) struct AllowedHosts(Arc<[Authority]>);

impl AllowedHosts {
    pub(super) fn new(
        hosts: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Self, ConfigError> {
        let hosts = hosts.into_iter().map(|host| read(host.as_ref()));
        let hosts = hosts.collect::<Result<Arc<[_]>, _>>()?;
        if hosts.is_empty() {
            let expected = "at least one host, or none would be answered";
            return Err(ConfigError::out_of_range("allowed_hosts", "[]", expected));
        }
        Ok(Self(hosts))
    }

    /// Refuses a request for another host. A page whose own name was made to lead here (DNS rebinding)
    /// cannot hide that name.
    pub(super) fn refuse_host(&self, request: &Request) -> Option<Problem> {
        if self.0.is_empty() {
            return None;
        }
        match host(request) {
            Some(host) if self.have(&host) => None,
            _ => Some(forbidden(
                "host: this router answers only for the hosts that `Operator::allowed_hosts` names",
            )),
        }
    }

    /// Refuses what a page of another origin sends. Programs that are no browsers say no origin.
    pub(super) fn refuse_origin(&self, request: &Request) -> Option<Problem> {
        let origin = request.headers().get(ORIGIN)?;
        // Of several, or of what cannot be read, nobody can say whose page it was.
        let origin = only(request, &ORIGIN).and(origin.to_str().ok());
        let origin = origin.and_then(|origin| origin.parse::<Uri>().ok());
        let is_own = origin.is_some_and(|origin| {
            let Some(page) = origin.authority() else {
                return false;
            };
            let is_host =
                host(request).is_some_and(|host| is_same(&host, page, origin.scheme_str()));
            is_host || self.have(page)
        });
        (!is_own).then(|| {
            forbidden(
                "origin: the request comes from a page of another host; if a proxy in front changes \
                 the host, name both hosts with `Operator::allowed_hosts`",
            )
        })
    }

    /// An entry without a port stands for all ports.
    fn have(&self, host: &Authority) -> bool {
        self.0.iter().any(|allowed| {
            let is_port = allowed.port().is_none() || allowed.port_u16() == host.port_u16();
            is_port && allowed.host().eq_ignore_ascii_case(host.host())
        })
    }
}

fn read(text: &str) -> Result<Authority, ConfigError> {
    let host = text.parse::<Authority>().ok();
    let host = host.filter(|host| !host.host().is_empty() && !text.contains('@'));
    host.ok_or_else(|| {
        let expected = "a host without a scheme, such as limits.internal or 127.0.0.1:9000";
        ConfigError::out_of_range("allowed_hosts", format_args!("{text:?}"), expected)
    })
}

/// The host that the request is for: over HTTP/2 it stands in the target.
fn host(request: &Request) -> Option<Authority> {
    match request.uri().authority() {
        Some(authority) => Some(authority.clone()),
        None => only(request, &HOST)?.parse().ok(),
    }
}

/// The value of a header that is there once.
fn only<'r>(request: &'r Request, name: &HeaderName) -> Option<&'r str> {
    let mut values = request.headers().get_all(name).iter();
    let value = values.next()?.to_str().ok();
    value.filter(|_| values.next().is_none())
}

/// A browser leaves out the port that a scheme implies.
fn is_same(one: &Authority, other: &Authority, scheme: Option<&str>) -> bool {
    let implied = match scheme {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    };
    let port = |host: &Authority| host.port_u16().or(implied);
    one.host().eq_ignore_ascii_case(other.host()) && port(one) == port(other)
}

fn forbidden(detail: &str) -> Problem {
    Problem::new(StatusCode::FORBIDDEN, detail)
}
