//! `RateLimit-Policy` and `RateLimit`: the syntax of draft-ietf-httpapi-ratelimit-headers-11.

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::seconds::{counts_in_time, renewal_secs, window_secs};
use crate::decision::Decision;

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const QUOTA: HeaderName = HeaderName::from_static("ratelimit");

/// Both fields of one response: lists with an item for each policy.
#[derive(Debug, PartialEq)]
pub(super) struct Lists {
    pub(super) policy: HeaderValue,
    pub(super) quota: HeaderValue,
}

impl Lists {
    /// `None` when no policy applied, or none was judged.
    pub(super) fn of<'a>(each: impl Iterator<Item = (&'a str, &'a Decision)>) -> Option<Self> {
        let (mut policy, mut quota) = (Text::default(), Text::default());
        for (name, decision) in each.filter(|(_, decision)| decision.is_judged()) {
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

    /// Adds the items to those of layers further in.
    pub(super) fn append_to(self, headers: &mut HeaderMap) {
        headers.append(POLICY, self.policy);
        headers.append(QUOTA, self.quota);
    }
}

/// The parameter of a policy that counts requests in flight.
const CONCURRENT: &str = ";qu=\"concurrent-requests\"";

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
