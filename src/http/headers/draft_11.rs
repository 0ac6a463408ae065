//! `RateLimit-Policy` and `RateLimit`: the syntax of draft-ietf-httpapi-ratelimit-headers-11.

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;

use super::seconds::{counts_in_time, renewal_secs, window_secs};
use super::single::by_tightness;
use crate::decision::Decision;

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const QUOTA: HeaderName = HeaderName::from_static("ratelimit");

/// The longest that either field gets, in bytes. Proxies and clients drop a response whose headers
/// are too large together: the former often have 4 KiB for all of them, gRPC clients 8 or 16.
///
/// Six policies with the longest names find room, and about thirty with ordinary ones.
pub(super) const LONGEST: usize = 1_024;

/// Both fields of one response: lists with an item for each policy, the same ones in both.
#[derive(Debug, PartialEq)]
pub(super) struct Lists {
    pub(super) policy: HeaderValue,
    pub(super) quota: HeaderValue,
}

impl Lists {
    /// In the order of the policies; where there is no room for all of them, those closest to
    /// exhaustion, the closest first. `None` when no policy applied, or none was judged.
    pub(super) fn of<'a>(
        each: impl Iterator<Item = (&'a str, &'a Decision)> + Clone,
    ) -> Option<Self> {
        let judged = each.filter(|(_, decision)| decision.is_judged());
        let mut texts = Texts::default();
        if !judged.clone().all(|policy| texts.push(policy)) {
            let mut tightest: Vec<_> = judged.collect();
            tightest.sort_by(|(_, a), (_, b)| by_tightness(b, a));
            texts = Texts::default();
            // Up to the first for which there is no room.
            let _ = tightest.into_iter().all(|policy| texts.push(policy));
        }
        texts.into_lists()
    }

    /// Adds the items to those of layers further in.
    pub(super) fn append_to(self, headers: &mut HeaderMap) {
        headers.append(POLICY, self.policy);
        headers.append(QUOTA, self.quota);
    }
}

/// Both fields while they are written.
#[derive(Default)]
struct Texts {
    policy: Text,
    quota: Text,
}

impl Texts {
    /// Adds an item to both, or to none when there is no room for it.
    fn push(&mut self, (name, decision): (&str, &Decision)) -> bool {
        let before = (self.policy.0.len(), self.quota.0.len());
        self.policy.push_item(name, (";q=", decision.limit.into()));
        self.quota
            .push_item(name, (";r=", decision.remaining.into()));
        if counts_in_time(decision) {
            self.policy.push_parameter((";w=", window_secs(decision)));
            self.quota.push_parameter((";t=", renewal_secs(decision)));
        } else {
            self.policy.push(CONCURRENT);
        }
        let fits = self.policy.0.len().max(self.quota.0.len()) <= LONGEST;
        if !fits {
            self.policy.0.truncate(before.0);
            self.quota.0.truncate(before.1);
        }
        fits
    }

    fn into_lists(self) -> Option<Lists> {
        Some(Lists {
            policy: self.policy.into_value()?,
            quota: self.quota.into_value()?,
        })
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
