//! Quota headers: the syntax of draft-ietf-httpapi-ratelimit-headers-11.

use std::fmt::Write;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::decision::Decision;
use crate::limiter::Verdict;

/// Which quota headers responses carry.
///
/// Emits the syntax of [draft-ietf-httpapi-ratelimit-headers-11][draft], one item for each policy
/// that applied to the request:
///
/// ```http
/// RateLimit-Policy: "client";q=100;w=60, "everybody";q=10000;w=1
/// RateLimit: "client";r=50;t=30, "everybody";r=9998;t=1
/// ```
///
/// | parameter | meaning |
/// |---|---|
/// | `q` | the permits given in each window |
/// | `w` | the window, in seconds, rounded up |
/// | `r` | the permits that could be taken now |
/// | `t` | in seconds, at least 1: who spreads the `r` permits over it keeps within the policy; when `r` is 0, the time until there are more; with a fixed window, the time to its end |
///
/// The fields are appended, so that nested layers each tell theirs. They are left out of redirects
/// (status 3xx), and for policies to which the store gave no answer.
///
/// Code in a browser sees none of them, unless a CORS layer *outside* of this one exposes them:
/// `CorsLayer::new().expose_headers(QuotaHeaders::Draft11.names().to_vec())`.
///
/// [draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/11/
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum QuotaHeaders {
    /// `RateLimit-Policy` and `RateLimit` on every response.
    #[default]
    Draft11,
    /// The same two, on denials only.
    Denials,
    /// None.
    None,
}

const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const QUOTA: HeaderName = HeaderName::from_static("ratelimit");

impl QuotaHeaders {
    /// The names of all headers that tell about quotas, `Retry-After` among them: what a CORS
    /// layer has to expose.
    pub fn names(self) -> &'static [HeaderName] {
        static NAMES: [HeaderName; 3] = [http::header::RETRY_AFTER, POLICY, QUOTA];
        match self {
            Self::Draft11 | Self::Denials => &NAMES,
            Self::None => &NAMES[..1],
        }
    }

    /// The fields for the response to a request that was judged so.
    pub(crate) fn fields(self, verdict: &Verdict) -> Option<QuotaFields> {
        match self {
            Self::Draft11 => QuotaFields::of(verdict.each()),
            Self::Denials if !verdict.is_allowed() => QuotaFields::of(verdict.each()),
            Self::Denials | Self::None => None,
        }
    }
}

/// The fields of one response.
#[derive(Debug)]
pub(crate) struct QuotaFields {
    policy: HeaderValue,
    quota: HeaderValue,
}

impl QuotaFields {
    /// `None` when no policy applied, or none got an answer from the store.
    fn of<'a>(each: impl Iterator<Item = (&'a str, &'a Decision)>) -> Option<Self> {
        let (mut policy, mut quota) = (String::with_capacity(48), String::with_capacity(48));
        for (name, decision) in each.filter(|(_, decision)| decision.store_failure().is_none()) {
            if !policy.is_empty() {
                policy.push_str(", ");
                quota.push_str(", ");
            }
            push_sf_string(&mut policy, name);
            push_sf_string(&mut quota, name);
            let (q, w) = (decision.limit, window_secs(decision));
            let (r, t) = (decision.remaining, renewal_secs(decision));
            // Writing to a `String` cannot fail.
            let _ = write!(policy, ";q={q};w={w}");
            let _ = write!(quota, ";r={r};t={t}");
        }
        if policy.is_empty() {
            return None;
        }
        Some(Self {
            policy: HeaderValue::try_from(policy).ok()?,
            quota: HeaderValue::try_from(quota).ok()?,
        })
    }

    /// Adds the fields to those of layers further in.
    pub(crate) fn append_to(self, headers: &mut HeaderMap) {
        headers.append(POLICY, self.policy);
        headers.append(QUOTA, self.quota);
    }
}

/// The whole seconds for `Retry-After`; `None` when waiting does not help or is not needed.
///
/// Rounded up, at least 1, and never before the `t` of the same policy, so that the two do not
/// contradict each other.
pub(super) fn retry_after_secs(decision: &Decision) -> Option<u64> {
    decision.retry_after()?;
    let wait = decision.retry_after.ceil_secs().max(1);
    Some(match decision.store_failure() {
        Some(_) => wait,
        None => wait.max(renewal_secs(decision)),
    })
}

/// `w`: the window in whole seconds, rounded up; at least 1, as no window is empty.
fn window_secs(decision: &Decision) -> u64 {
    decision.window.ceil_secs()
}

/// `t`: how long the remaining permits have to last.
fn renewal_secs(decision: &Decision) -> u64 {
    let secs = if decision.renews_whole || decision.remaining == 0 {
        decision.renews_after.ceil_secs()
    } else {
        // From the announced window, not the exact one: r/t must not promise more than q/w.
        let spread = u128::from(decision.remaining) * u128::from(window_secs(decision));
        let secs = spread.div_ceil(u128::from(decision.limit.max(1)));
        u64::try_from(secs).unwrap_or(u64::MAX)
    };
    secs.max(1)
}

/// RFC 9651, section 4.1.6. Policy names are printable ASCII, so that nothing else needs care.
fn push_sf_string(field: &mut String, text: &str) {
    field.push('"');
    for char in text.chars() {
        if matches!(char, '"' | '\\') {
            field.push('\\');
        }
        field.push(char);
    }
    field.push('"');
}

#[cfg(test)]
mod tests;
