//! Rejections: why a request was not allowed, and the response.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};

use super::seconds::retry_after_secs;
use crate::decision::{Decision, Outcome};
use crate::error::StoreErrorKind;
use crate::limiter::{Conclusion, Denied, EarlyRejection, RejectReason};
use crate::one_line::OneLine;

mod grpc;
mod on_rejection;
mod response;

pub use self::on_rejection::{OnRejection, PlainText, ProblemJson, responder};
pub(super) use self::response::prolong;

/// Why a request was not allowed.
///
/// Every rejection response has a `Rejection` in its extensions, whatever built its body, so that
/// outer middleware (logs, metrics) can tell it from a response of the service. `Display` is one
/// sentence for the client. It implements `Error` only so that a handler's error type can contain
/// it: the layer answers with a response and adds no error type.
///
/// A handler that calls a limiter itself returns [`Denied`](crate::Denied) or converts it into a
/// `Rejection`. **For axum handlers to return either, enable the feature `axum` of this crate.**
/// Without it the compiler only reports that the function is not a `Handler`. With the feature
/// `tonic`, `into` converts both into a `Status`, whose source is the rejection.
///
/// # Over gRPC and gRPC-Web
///
/// A `POST` with the content type of gRPC gets a trailers-only response, always with HTTP status
/// 200, and these headers:
///
/// - `grpc-status`, as documented at each [`RejectionKind`], and the sentence as `grpc-message`,
///   truncated with `...` after 256 bytes;
/// - `grpc-status-details-bin`, less than 1 KiB: a `RetryInfo` if waiting helps and, if the quota
///   is the reason, a `QuotaFailure` with a violation for each policy, as many as fit. Its
///   `quota_id` is the policy's name; it does not contain the key. Without either, the header is
///   absent;
/// - `grpc-retry-pushback-ms`, the time after which clients may retry automatically: the wait in
///   milliseconds, rounded up, plus up to a tenth of it or 10 ms, so that they do not come back
///   together. `-1` (do not retry) if the wait is longer than 10 seconds or does not help.
///
/// Over gRPC the wait is [`retry_after`](Self::retry_after), not rounded. Under a concurrency limit
/// it is one second, as in [`retry_after_secs`](Self::retry_after_secs).
///
/// A call by another method than `POST`, which gRPC clients never send, is answered as plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    kind: RejectionKind,
    policies: Vec<String>,
    retry_after: Option<Duration>,
    retry_after_secs: Option<u64>,
    has_unasked_policies: bool,
    /// Borrowed text comes from this crate: [`Segment::Plain`].
    explanation: Cow<'static, str>,
    /// Why a handler denied the request, for the headers that an outer layer adds.
    by_handler: Option<Denied>,
}

/// The kinds of rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// The quota is used up for now. HTTP 429, gRPC `RESOURCE_EXHAUSTED`.
    QuotaExceeded,
    /// The request costs more than the limit's capacity, or the limit [admits
    /// nothing](crate::Limit::nothing); waiting does not help. HTTP 429, gRPC `RESOURCE_EXHAUSTED`.
    NeverFits,
    /// The key was denied so often that the policy's [`Penalty`](crate::Penalty) bans it for a
    /// time. HTTP 429, gRPC `RESOURCE_EXHAUSTED`.
    Banned,
    /// The store failed, and the policy's failure mode denies the request. HTTP 503, gRPC
    /// `UNAVAILABLE`.
    StoreFailed(StoreErrorKind),
    /// The client is on the deny list ([`Rules::deny`](crate::Rules::deny)). HTTP 403, gRPC
    /// `PERMISSION_DENIED`.
    Refused,
    /// The deny list contains addresses, and the request's address cannot be parsed. HTTP 400, gRPC
    /// `INVALID_ARGUMENT`.
    BadAddress,
    /// The request has no key. Or the deny list contains keys, and the request's key cannot be
    /// parsed. HTTP 400, gRPC `INVALID_ARGUMENT`.
    MissingKey,
    /// The request's cost cannot be parsed. HTTP 400, gRPC `INVALID_ARGUMENT`.
    BadCost,
    /// The server does not provide what a policy needs, or a handler's call of the limiter [is
    /// invalid](crate::CheckError). HTTP 500, gRPC `INTERNAL`.
    Misconfigured,
}

/// Kinds that share one HTTP status, one gRPC code and one problem type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Quota,
    StoreFailed,
    Refused,
    BadRequest,
    Misconfigured,
}

impl RejectionKind {
    fn of(denied: &Decision) -> Self {
        match denied.outcome() {
            Outcome::NeverFits => Self::NeverFits,
            Outcome::FailedClosed(failure) => Self::StoreFailed(failure),
            Outcome::Banned => Self::Banned,
            Outcome::Refused => Self::Refused,
            _ => Self::QuotaExceeded,
        }
    }

    fn class(self) -> Class {
        match self {
            Self::QuotaExceeded | Self::NeverFits | Self::Banned => Class::Quota,
            Self::StoreFailed(_) => Class::StoreFailed,
            Self::Refused => Class::Refused,
            Self::BadAddress | Self::MissingKey | Self::BadCost => Class::BadRequest,
            Self::Misconfigured => Class::Misconfigured,
        }
    }
}

impl Rejection {
    /// The rejection by these decisions; `None` if they allow the request.
    pub(crate) fn of(conclusion: &Conclusion<'_>) -> Option<Self> {
        let worst = conclusion.denied_by()?;
        Some(Self::by(conclusion.each(), worst))
    }

    /// The rejection by these decisions. `worst` is the denial with the longest wait.
    pub(super) fn by<'a>(
        each: impl Iterator<Item = (&'a str, &'a Decision)> + Clone,
        worst: &Decision,
    ) -> Self {
        let denying = each.clone().filter(|(_, decision)| !decision.is_allowed());
        let retry_after = worst.retry_after();
        // Of all denials, not only of the worst one: under a concurrency limit, the seconds are
        // less than the wait.
        let secs = denying.clone();
        let secs = secs.filter_map(|(_, decision)| retry_after_secs(decision));
        let outcomes = each.map(|(_, decision)| decision.outcome());
        Self {
            kind: RejectionKind::of(worst),
            policies: denying.map(|(name, _)| name.to_owned()).collect(),
            retry_after,
            retry_after_secs: retry_after.and_then(|_| secs.max()),
            has_unasked_policies: outcomes.into_iter().any(|it| it == Outcome::NotAsked),
            explanation: worst.reason().into(),
            by_handler: None,
        }
    }

    /// The kind of rejection.
    pub fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The names of the policies that do not allow the request, in the limiter's order.
    pub fn policies(&self) -> &[String] {
        &self.policies
    }

    /// The exact time until none of the evaluated policies would deny the same request, if no other
    /// request arrives: the longest wait of those that deny. `None` if waiting does not help. A
    /// policy that was not evaluated [may deny for longer](Self::has_unasked_policies). For cached
    /// denials see [`DenyCache`](crate::store::DenyCache#what-is-exact).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The wait in whole seconds, as in the header `Retry-After`: rounded up, at least 1. Under a
    /// concurrency limit it is 1. An outer layer may [raise the
    /// header](crate::QuotaHeaders#retry-after).
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after_secs
    }

    /// Whether a policy was [not evaluated](Outcome::NotAsked) because another one denied the
    /// request. It may deny for longer than the wait shown here.
    pub fn has_unasked_policies(&self) -> bool {
        self.has_unasked_policies
    }

    /// The HTTP status. An [`OnRejection`] may set another one.
    pub fn status(&self) -> StatusCode {
        match self.kind.class() {
            Class::Quota => StatusCode::TOO_MANY_REQUESTS,
            Class::StoreFailed => StatusCode::SERVICE_UNAVAILABLE,
            Class::Refused => StatusCode::FORBIDDEN,
            Class::BadRequest => StatusCode::BAD_REQUEST,
            Class::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// The number in a header. `None` also for a date, which only the user's own builder writes.
fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}

impl From<EarlyRejection> for Rejection {
    fn from(refusal: EarlyRejection) -> Self {
        let (kind, explanation) = match refusal.reason {
            RejectReason::Listed => (
                RejectionKind::Refused,
                "requests of this client are refused".into(),
            ),
            RejectReason::BadAddress => (
                RejectionKind::BadAddress,
                "the address of the client cannot be read".into(),
            ),
            RejectReason::NoKey => (
                RejectionKind::MissingKey,
                "the request does not identify its sender".into(),
            ),
            RejectReason::BadKey => (
                RejectionKind::MissingKey,
                "the sender of the request cannot be read".into(),
            ),
            RejectReason::BadCost(text) => (RejectionKind::BadCost, text.into()),
            RejectReason::Misconfigured(text) => (RejectionKind::Misconfigured, text.into()),
        };
        Self {
            kind,
            policies: refusal.policy.into_iter().collect(),
            retry_after: None,
            retry_after_secs: None,
            has_unasked_policies: false,
            explanation,
            by_handler: None,
        }
    }
}

/// A part of the sentence.
enum Segment<'a> {
    /// Text of this crate, which needs no escaping.
    Plain(&'a str),
    /// A policy's name, which is shown in quotes.
    Name(&'a str),
    /// Text that may contain anything.
    Text(&'a str),
}

impl Rejection {
    /// Emits the sentence part by part. `fmt` would be a measurable part of the cost of a denial.
    fn sentence<E>(&self, mut say: impl FnMut(Segment<'_>) -> Result<(), E>) -> Result<(), E> {
        let noun = if self.policies.len() == 1 {
            "policy "
        } else {
            "policies "
        };
        for (position, policy) in self.policies.iter().enumerate() {
            say(Segment::Plain(if position == 0 { noun } else { ", " }))?;
            say(Segment::Name(policy))?;
        }
        if !self.policies.is_empty() {
            say(Segment::Plain(": "))?;
        }
        say(match &self.explanation {
            Cow::Borrowed(words) => Segment::Plain(words),
            Cow::Owned(text) => Segment::Text(text),
        })?;
        match self.retry_after_secs {
            Some(secs) => {
                say(Segment::Plain(", retry after "))?;
                say(Segment::Plain(itoa::Buffer::new().format(secs)))?;
                say(Segment::Plain(" s"))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sentence(|part| match part {
            Segment::Name(name) => fmt::Debug::fmt(name, f),
            Segment::Plain(text) => f.write_str(text),
            Segment::Text(text) => OneLine(text).fmt(f),
        })
    }
}

impl std::error::Error for Rejection {}

#[cfg(test)]
mod tests;
