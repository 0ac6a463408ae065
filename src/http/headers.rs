//! Quota headers: the syntax of draft-ietf-httpapi-ratelimit-headers-11.

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

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
/// A [concurrency](crate::Limit::concurrency) limit knows no window: it has the parameter
/// `qu="concurrent-requests"` instead of `w`, and no `t`.
///
/// The fields are appended, so that nested layers each tell theirs. They are left out of redirects
/// (status 3xx), and for policies to which the store gave no answer
/// or, another denial being known, was not asked for one.
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
    /// `None` when no policy applied, or none got an answer.
    fn of<'a>(each: impl Iterator<Item = (&'a str, &'a Decision)>) -> Option<Self> {
        let (mut policy, mut quota) = (Text::default(), Text::default());
        for (name, decision) in each.filter(|(_, decision)| decision.is_answered()) {
            policy.push_item(name, (";q=", decision.limit.into()));
            quota.push_item(name, (";r=", decision.remaining.into()));
            if counts_in_time(decision) {
                policy.push_parameter((";w=", window_secs(decision)));
                quota.push_parameter((";t=", renewal_secs(decision)));
            } else {
                policy.push(CONCURRENT);
            }
        }
        Some(Self {
            policy: policy.into_value()?,
            quota: quota.into_value()?,
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
    if !counts_in_time(decision) && decision.banned_for().is_none() {
        // Until a lease lapses, which is not what anybody waits for: requests end before.
        return Some(1);
    }
    let wait = decision.retry_after.ceil_secs().max(1);
    Some(match decision.store_failure() {
        Some(_) => wait,
        None => wait.max(renewal_secs(decision)),
    })
}

/// Whether permits come back with time, not with the end of those who hold them.
fn counts_in_time(decision: &Decision) -> bool {
    !decision.window.is_zero()
}

/// The parameter of a policy that counts requests in flight.
const CONCURRENT: &str = ";qu=\"concurrent-requests\"";

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
        let spread = u64::from(decision.remaining).saturating_mul(window_secs(decision));
        spread.div_ceil(decision.limit.max(1).into())
    };
    secs.max(1)
}

/// A field's value while it is written: on the stack, as every response has two.
#[derive(Default)]
struct Text(SmallVec<[u8; 128]>);

impl Text {
    fn push_item(&mut self, name: &str, parameter: (&str, u64)) {
        if !self.0.is_empty() {
            self.push(", ");
        }
        self.push_sf_string(name);
        self.push_parameter(parameter);
    }

    fn push_parameter(&mut self, (key, number): (&str, u64)) {
        self.push(key);
        let mut digits = itoa::Buffer::new();
        self.push(digits.format(number));
    }

    fn push(&mut self, text: &str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// RFC 9651, section 4.1.6. Policy names are printable ASCII, so that nothing else needs care.
    fn push_sf_string(&mut self, text: &str) {
        self.0.push(b'"');
        for byte in text.bytes() {
            if matches!(byte, b'"' | b'\\') {
                self.0.push(b'\\');
            }
            self.0.push(byte);
        }
        self.0.push(b'"');
    }

    /// `None` when nothing was written.
    fn into_value(self) -> Option<HeaderValue> {
        let is_written = !self.0.is_empty();
        is_written.then(|| HeaderValue::from_bytes(&self.0).ok())?
    }
}

#[cfg(test)]
mod tests;
