//! `RateLimit-Policy` and `RateLimit`: the syntax of draft-ietf-httpapi-ratelimit-headers-11.

use std::cell::RefCell;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::text::{SHORT, Text};
use crate::decision::Decision;
use crate::time::Micros;

pub(super) const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(super) const QUOTA: HeaderName = HeaderName::from_static("ratelimit");

/// The longest value of either field, in bytes. Proxies and clients drop responses whose headers
/// are too large in total: proxies often allow 4 KiB, gRPC clients 8 or 16 KiB.
///
/// There is room for six policies with the longest names, or about thirty with ordinary ones.
pub(super) const LONGEST: usize = 1_024;
/// Both fields of one response: lists with one item for each policy, the same policies in both.
#[derive(Debug, PartialEq)]
pub(super) struct Lists {
    pub(super) policy: HeaderValue,
    pub(super) quota: HeaderValue,
}

impl Lists {
    /// In the order of the policies. If not all fit, those closest to exhaustion, the closest
    /// first. `None` if no policy applied or none was evaluated.
    pub(super) fn of<'a>(
        each: impl Iterator<Item = (&'a str, &'a Decision)> + Clone,
    ) -> Option<Self> {
        let decided = each.filter(|(_, decision)| decision.is_evaluated());
        let mut first = decided.clone();
        if let (Some(only), None) = (first.next(), first.next()) {
            return Self::of_one(only);
        }
        // Most responses list few policies and need no larger buffer.
        Self::of_all::<SHORT>(decided.clone())
            .or_else(|| Self::of_all::<LONGEST>(decided.clone()))
            .unwrap_or_else(|| Self::of_tightest(decided))
    }

    /// A single item always fits.
    fn of_one((name, decision): (&str, &Decision)) -> Option<Self> {
        let mut quota = Text::<SHORT>::default();
        quota.push_quota(name, decision)?;
        Some(Self {
            policy: policy(name, decision)?,
            quota: quota.value()?,
        })
    }

    /// `None` if not all fit. The inner `Option` is the result of [`of`](Self::of).
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
        // Up to the first one that does not fit.
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
    /// Adds an item to both fields, or to neither if it does not fit.
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

/// The number of cached fields: enough for the policies of a server.
const PLACES: usize = 16;

thread_local! {
    static RECENT: RefCell<[Option<Announced>; PLACES]> = const { RefCell::new([const { None }; PLACES]) };
}

/// A recently written field. Each thread has its own: threads that share a value would contend for
/// its reference count.
struct Announced {
    name: Box<str>,
    limit: u64,
    window: Micros,
    field: HeaderValue,
}

/// The field of a policy, from one of its decisions.
pub(super) fn policy(name: &str, decision: &Decision) -> Option<HeaderValue> {
    let recent = RECENT.try_with(|recent| {
        let place = &mut recent.borrow_mut()[place_of(name, decision.limit)];
        match place {
            Some(known) if known.is_of(name, decision) => Some(known.field.clone()),
            _ => Some(
                place
                    .insert(Announced::write(name, decision)?)
                    .field
                    .clone(),
            ),
        }
    });
    // A thread that is ending has no cache any more.
    recent.unwrap_or_else(|_| field(name, decision))
}

impl Announced {
    fn write(name: &str, decision: &Decision) -> Option<Self> {
        Some(Self {
            name: name.into(),
            limit: decision.limit,
            window: decision.window,
            field: field(name, decision)?,
        })
    }

    fn is_of(&self, name: &str, decision: &Decision) -> bool {
        self.limit == decision.limit && self.window == decision.window && *self.name == *name
    }
}

fn field(name: &str, decision: &Decision) -> Option<HeaderValue> {
    let mut text = Text::<SHORT>::default();
    text.push_policy(name, decision)?;
    text.value()
}

/// Fast rather than even: policies that collide evict each other.
fn place_of(name: &str, limit: u64) -> usize {
    let last = name.bytes().last().map_or(0, usize::from);
    (name.len() + last).wrapping_add(limit as usize) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Outcome;

    #[test]
    fn the_cached_field_is_the_one_that_the_decision_makes() {
        let names = ["api", "apj", "bpi", "a \"quoted\" one"];
        // More than there are places, so that they evict each other.
        for turn in 0..1_000 {
            let (name, limit) = (names[turn % names.len()], 1 + (turn * turn % 40) as u64);
            let window = Micros::new([0, 1_000_000, 60_000_000][turn % 3]);
            let decision = Decision::unasked(Outcome::Allowed, (limit, window));
            for _ in 0..2 {
                assert_eq!(policy(name, &decision), field(name, &decision));
            }
        }
    }
}
