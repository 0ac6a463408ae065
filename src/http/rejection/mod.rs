//! Rejections: why a request was not let through, and the response that says so.

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

/// Why a request was not let through.
///
/// Every rejection response has a `Rejection` in its extensions, whatever built its body, so that
/// outer middleware (logs, metrics) can tell it from a response of the service. `Display` is one
/// sentence for the client. It is an error only so that a handler's own error can hold it: the layer
/// answers with a response, and adds no error to those of the service.
///
/// A handler that asks a limiter itself answers with [`Denied`](crate::Denied), or makes a rejection of
/// it by `into`. **For a handler of axum to return either, enable the feature `axum` of this crate.**
/// Without it the compiler says no more than that the function is no `Handler`. With the feature
/// `tonic`, `into` turns both into a `Status`, whose source is the rejection.
///
/// # Over gRPC and gRPC-Web
///
/// A `POST` with the content type of a gRPC call is answered trailers-only, always with HTTP status
/// 200, with
///
/// - `grpc-status`, as documented at each [`RejectionKind`], and the sentence as `grpc-message`,
///   which ends in `...` if it is longer than 256 bytes;
/// - `grpc-status-details-bin`, less than 1 KiB: a `RetryInfo` if waiting helps and, if the quota
///   is the reason, a `QuotaFailure` with a violation for each policy, as many as fit. Its
///   `quota_id` is the policy's name; it does not say whose quota it is. If there is neither, there
///   are no details;
/// - `grpc-retry-pushback-ms`, which tells clients that retry automatically when to do so: after
///   the wait in milliseconds, rounded up, and up to a tenth of it or 10 ms more, so that they do
///   not come back together. `-1` (do not retry) if the wait is longer than 10 seconds or does not
///   help.
///
/// Over gRPC the wait is [`retry_after`](Self::retry_after), not rounded. If requests in flight
/// have to end first, it is one second, as in [`retry_after_secs`](Self::retry_after_secs).
///
/// A call by another method than `POST`, which no gRPC client sends though tonic serves it, is
/// answered as over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    kind: RejectionKind,
    policies: Vec<String>,
    retry_after: Option<Duration>,
    retry_after_secs: Option<u64>,
    has_unasked_policies: bool,
    /// Borrowed text is our own: [`Segment::Plain`].
    explanation: Cow<'static, str>,
    /// Why a handler's permit was denied, of which only a layer around it can tell in headers.
    by_handler: Option<Denied>,
}

/// The kinds of rejection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RejectionKind {
    /// The quota is used up for now. HTTP 429, gRPC `RESOURCE_EXHAUSTED`.
    QuotaExceeded,
    /// The request costs more than the quota can ever hold, or the quota
    /// [admits nothing](crate::Limit::nothing); waiting does not help. HTTP 429, gRPC
    /// `RESOURCE_EXHAUSTED`.
    NeverFits,
    /// The quota was exceeded so often that its [`Penalty`](crate::Penalty) bans the subject for a
    /// time. HTTP 429, gRPC `RESOURCE_EXHAUSTED`.
    Banned,
    /// The store gave no answer and the policy's failure mode refuses. HTTP 503, gRPC
    /// `UNAVAILABLE`.
    StoreFailed(StoreErrorKind),
    /// The client is on the deny list ([`Rules::deny`](crate::Rules::deny)). HTTP
    /// 403, gRPC `PERMISSION_DENIED`.
    Refused,
    /// Addresses are denied, and the request's address cannot be read, so that it may be one of
    /// them. HTTP 400, gRPC `INVALID_ARGUMENT`.
    BadAddress,
    /// The request has no key; or keys are denied, and its key cannot be read. HTTP 400, gRPC
    /// `INVALID_ARGUMENT`.
    MissingKey,
    /// The request states a cost that cannot be read. HTTP 400, gRPC `INVALID_ARGUMENT`.
    BadCost,
    /// The server does not provide what a policy needs, or a handler has asked what the limiter
    /// [cannot answer](crate::CheckError). HTTP 500, gRPC `INTERNAL`.
    Misconfigured,
}

/// The kinds that are told alike: by one status, one code over gRPC and one type of problem.
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
    /// The rejection by these decisions; `None` if they let the request pass.
    pub(crate) fn of(conclusion: &Conclusion<'_>) -> Option<Self> {
        let worst = conclusion.denied_by()?;
        Some(Self::by(conclusion.each(), worst))
    }

    /// The rejection by these decisions, of which the worst denies.
    pub(super) fn by<'a>(
        each: impl Iterator<Item = (&'a str, &'a Decision)> + Clone,
        worst: &Decision,
    ) -> Self {
        let denying = each.clone().filter(|(_, decision)| !decision.is_allowed());
        let retry_after = worst.retry_after();
        // Not only that of the worst denial: if requests in flight have to end, it is less than the
        // wait.
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

    /// What kind of rejection it is.
    pub fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// The names of the policies that do not let the request pass, in the order in which the
    /// limiter has them.
    pub fn policies(&self) -> &[String] {
        &self.policies
    }

    /// How long to wait until none of the policies that were asked would deny the same request,
    /// exactly, if nobody else asks meanwhile: the longest wait of those that deny. `None` if
    /// waiting does not help. A policy that was not asked
    /// [may deny for longer](Self::has_unasked_policies), and a remembered denial is as exact as
    /// [`DenyCache`](crate::store::DenyCache#what-is-exact) describes.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The same in whole seconds, as in the header `Retry-After`: rounded up, and at least 1. It is
    /// 1 if requests in flight have to end first. A layer further out may
    /// [raise the header](crate::QuotaHeaders#retry-after).
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after_secs
    }

    /// Whether a policy for this request was [not asked](Outcome::NotAsked), because another one
    /// was known to deny it. It may deny for longer than is told here.
    pub fn has_unasked_policies(&self) -> bool {
        self.has_unasked_policies
    }

    /// The HTTP status, unless an [`OnRejection`] sets another.
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

/// `None` also for a date, which only a builder of the user's writes.
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
    /// Our own words, which need no escaping.
    Plain(&'a str),
    /// A policy's name, which is shown in quotes.
    Name(&'a str),
    /// Text that may contain anything.
    Text(&'a str),
}

impl Rejection {
    /// Gives the sentence part by part. Not by `fmt`, whose cost shows in that of a denial.
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
