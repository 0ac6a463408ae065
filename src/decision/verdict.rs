//! `Verdict`: the decisions about a request that was let through.

use std::sync::Arc;

use super::Decision;

/// The decisions about a request, with the names of the policies.
///
/// A [`Permit`](crate::Permit) has one, and so has [`Denied`](crate::Denied). With
/// [`RateLimitLayer::expose_decisions`](crate::RateLimitLayer::expose_decisions) it is in the
/// request's extensions, so that a handler can see what is left. Policies in
/// [shadow mode](crate::Mode::Shadow) are not in that of a layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict(Arc<[(Arc<str>, Decision)]>);

impl Verdict {
    /// These decisions, after those of outer layers.
    pub(crate) fn new(
        outer: Option<&Self>,
        each: impl Iterator<Item = (Arc<str>, Decision)>,
    ) -> Self {
        let outer = outer.into_iter().flat_map(|outer| outer.0.iter().cloned());
        Self(outer.chain(each).collect())
    }

    /// Each policy's name and decision, those of outer layers first.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Decision)> + Clone {
        self.0.iter().map(|(name, decision)| (&**name, decision))
    }

    /// The decision of the policy of this name, if it was asked.
    pub fn get(&self, policy: &str) -> Option<&Decision> {
        let mut each = self.iter();
        each.find_map(|(name, decision)| (name == policy).then_some(decision))
    }

    /// The decision of the policy that is closest to exhaustion: the one with the fewest permits
    /// left; among equals, the one that is reset last. A policy that let the request pass for lack
    /// of an answer from the store counts only if there is no other, as it is not known what it has
    /// left. `None` if no policy was asked.
    pub fn tightest(&self) -> Option<&Decision> {
        let each = self.iter().map(|(_, decision)| decision);
        each.min_by_key(|decision| (!decision.is_evaluated(), decision.tightest_first()))
    }
}
