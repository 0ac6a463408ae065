//! `RateLimit-Policy` and `RateLimit`: the syntax of draft-ietf-httpapi-ratelimit-headers-11.

use http::{HeaderMap, HeaderName, HeaderValue};

mod announced;

use super::seconds::{renewal_secs, window_secs};
use crate::decision::Decision;

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const QUOTA: HeaderName = HeaderName::from_static("ratelimit");

/// The longest that either field gets, in bytes. Proxies and clients drop responses whose headers
/// are too large in total: proxies often allow 4 KiB, gRPC clients 8 or 16.
///
/// There is room for six policies with the longest names, or about thirty with ordinary ones.
pub(super) const LONGEST: usize = 1_024;
const SHORT: usize = 192;

/// Both fields of one response: lists with one item for each policy, the same policies in both.
#[derive(Debug, PartialEq)]
pub(super) struct Lists {
    pub(super) policy: HeaderValue,
    pub(super) quota: HeaderValue,
}

impl Lists {
    /// In the order of the policies. If there is no room for all, those closest to exhaustion, the
    /// closest first. `None` if no policy applied or none was decided.
    pub(super) fn of<'a>(
        each: impl Iterator<Item = (&'a str, &'a Decision)> + Clone,
    ) -> Option<Self> {
        let decided = each.filter(|(_, decision)| decision.is_evaluated());
        let mut first = decided.clone();
        if let (Some(only), None) = (first.next(), first.next()) {
            return Self::of_one(only);
        }
        // Most responses list a few policies, and need not clear more room.
        Self::of_all::<SHORT>(decided.clone())
            .or_else(|| Self::of_all::<LONGEST>(decided.clone()))
            .unwrap_or_else(|| Self::of_tightest(decided))
    }

    /// There is always room for a single item.
    fn of_one((name, decision): (&str, &Decision)) -> Option<Self> {
        let mut quota = Text::<SHORT>::default();
        quota.push_quota(name, decision)?;
        Some(Self {
            policy: announced::policy(name, decision)?,
            quota: quota.value()?,
        })
    }

    /// The inner `Option` is what [`of`](Self::of) returns if there is room for all; `None` if
    /// there is not.
    fn of_all<'a, const ROOM: usize>(
        mut decided: impl Iterator<Item = (&'a str, &'a Decision)>,
    ) -> Option<Option<Self>> {
        let mut texts = Texts::<ROOM>::default();
        decided
            .all(|policy| texts.push(policy))
            .then(|| texts.lists())
    }

    fn of_tightest<'a>(decided: impl Iterator<Item = (&'a str, &'a Decision)>) -> Option<Self> {
        let mut tightest: Vec<_> = decided.collect();
        tightest.sort_by_key(|(_, decision)| decision.tightest_first());
        let mut texts = Texts::<LONGEST>::default();
        // Up to the first for which there is no room.
        let _ = tightest.into_iter().all(|policy| texts.push(policy));
        texts.lists()
    }

    /// Appends the items to those of inner layers.
    pub(super) fn append_to(self, headers: &mut HeaderMap) {
        headers.append(POLICY, self.policy);
        headers.append(QUOTA, self.quota);
    }
}

/// Both fields while they are written.
#[derive(Default)]
struct Texts<const ROOM: usize> {
    policy: Text<ROOM>,
    quota: Text<ROOM>,
}

impl<const ROOM: usize> Texts<ROOM> {
    /// Adds an item to both fields, or to neither if there is no room for it.
    fn push(&mut self, (name, decision): (&str, &Decision)) -> bool {
        let before = (self.policy.length, self.quota.length);
        let written = self.write(name, decision);
        if written.is_none() {
            (self.policy.length, self.quota.length) = before;
        }
        written.is_some()
    }

    fn write(&mut self, name: &str, decision: &Decision) -> Option<()> {
        self.policy.push_policy(name, decision)?;
        self.quota.push_quota(name, decision)
    }

    fn lists(&self) -> Option<Lists> {
        Some(Lists {
            policy: self.policy.value()?,
            quota: self.quota.value()?,
        })
    }
}

/// The parameter of a policy that counts requests in flight.
const CONCURRENT: &str = ";qu=\"concurrent-requests\"";

/// A field's value while it is written, on the stack since every response has two. Pushing returns
/// `None` if there is no room.
struct Text<const ROOM: usize> {
    bytes: [u8; ROOM],
    length: usize,
}

impl<const ROOM: usize> Default for Text<ROOM> {
    fn default() -> Self {
        Self {
            bytes: [0; ROOM],
            length: 0,
        }
    }
}

impl<const ROOM: usize> Text<ROOM> {
    fn push_policy(&mut self, name: &str, decision: &Decision) -> Option<()> {
        self.push_item(name, ";q=", decision.limit)?;
        if decision.counts_in_time() {
            self.push_parameter(";w=", window_secs(decision))
        } else if decision.limit > 0 {
            self.push(CONCURRENT)
        } else {
            // It admits nothing, neither in any time nor at the same time.
            Some(())
        }
    }

    fn push_quota(&mut self, name: &str, decision: &Decision) -> Option<()> {
        self.push_item(name, ";r=", decision.remaining)?;
        if decision.counts_in_time() {
            self.push_parameter(";t=", renewal_secs(decision))
        } else {
            Some(())
        }
    }

    fn push_item(&mut self, name: &str, key: &str, number: u64) -> Option<()> {
        if self.length > 0 {
            self.push(", ")?;
        }
        self.push_sf_string(name)?;
        self.push_parameter(key, number)
    }

    fn push_parameter(&mut self, key: &str, number: u64) -> Option<()> {
        self.push(key)?;
        self.push(itoa::Buffer::new().format(number))
    }

    fn push(&mut self, text: &str) -> Option<()> {
        let end = self.length + text.len();
        let room = self.bytes.get_mut(self.length..end)?;
        room.copy_from_slice(text.as_bytes());
        self.length = end;
        Some(())
    }

    /// RFC 9651, section 4.1.6. Policy names are printable ASCII, so nothing else needs escaping.
    fn push_sf_string(&mut self, text: &str) -> Option<()> {
        self.push("\"")?;
        // Piece by piece: hardly any name has a character to escape.
        let mut rest = text;
        while let Some(position) = rest.bytes().position(|byte| matches!(byte, b'"' | b'\\')) {
            let (plain, special) = rest.split_at(position);
            self.push(plain)?;
            self.push("\\")?;
            let (special, after) = special.split_at(1);
            self.push(special)?;
            rest = after;
        }
        self.push(rest)?;
        self.push("\"")
    }

    /// `None` if nothing was written.
    fn value(&self) -> Option<HeaderValue> {
        let written = self.bytes.get(..self.length)?;
        let is_written = !written.is_empty();
        is_written.then(|| HeaderValue::from_bytes(written).ok())?
    }
}
