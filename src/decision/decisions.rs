//! `Decisions`: the decisions on a question, in the order of its checks. `Verdict`: those about a
//! request, for handlers.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Decision, Outcome};
use crate::error::StoreErrorKind;
use crate::time::Micros;

/// The decisions on a question, in the order of its checks.
#[derive(Clone, Default)]
pub struct Decisions(Each);

/// Most questions have one check, whose decision is built in place; moving a list moves its whole
/// capacity. An empty list would be moved with it, too.
#[derive(Clone, Default)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on the memory path"
)]
enum Each {
    #[default]
    None,
    One(Decision),
    Several(SmallVec<[Decision; 4]>),
}

impl Decisions {
    #[cfg(feature = "redis")]
    pub(crate) fn of(each: &[Decision]) -> Self {
        match each {
            [decision] => Self(Each::One(*decision)),
            several => Self(Each::Several(several.into())),
        }
    }

    /// Whether every check allows the request.
    pub fn all_allow(&self) -> bool {
        self.iter().all(Decision::is_allowed)
    }

    /// The position of the decision that explains a rejection: among those that deny, the one with
    /// the longest wait, the first of equals. One that never fits outlasts every wait.
    pub fn denied_by(&self) -> Option<usize> {
        self.iter()
            .enumerate()
            .rev()
            .filter(|(_, decision)| !decision.is_allowed())
            .max_by_key(|(_, decision)| decision.wait())
            .map(|(position, _)| position)
    }

    /// Takes away the waits that a denial makes pointless, since nobody goes on.
    #[inline]
    pub(crate) fn drop_vain_waits(&mut self) {
        let would_wait = |decision: &Decision| decision.is_allowed() && !decision.delay.is_zero();
        if self.iter().any(would_wait) && !self.all_allow() {
            let each = self.each_mut().iter_mut();
            each.filter(|decision| would_wait(decision))
                .for_each(|decision| decision.delay = Micros::ZERO);
        }
    }

    /// Takes the place of others; a single one without the room for more around it.
    #[inline]
    pub(crate) fn replace_by(&mut self, others: &mut Self) {
        match &others.0 {
            Each::One(decision) => self.0 = Each::One(*decision),
            _ => std::mem::swap(self, others),
        }
    }

    /// Moves so many decisions from the front to the end.
    pub(crate) fn rotate_left(&mut self, front: usize) {
        self.each_mut().rotate_left(front);
    }

    fn each_mut(&mut self) -> &mut [Decision] {
        match &mut self.0 {
            Each::None => &mut [],
            Each::One(decision) => std::slice::from_mut(decision),
            Each::Several(decisions) => decisions,
        }
    }

    /// Records that the store could not carry out this check, and lets it pass.
    pub(crate) fn fail_open(&mut self, position: usize, kind: StoreErrorKind) {
        if let Some(decision) = self.each_mut().get_mut(position) {
            let quota = (decision.limit, decision.window);
            *decision = Decision::unasked(Outcome::FailedOpen(kind), quota);
        }
    }
}

impl Deref for Decisions {
    type Target = [Decision];

    #[inline]
    fn deref(&self) -> &[Decision] {
        match &self.0 {
            Each::None => &[],
            Each::One(decision) => std::slice::from_ref(decision),
            Each::Several(decisions) => decisions,
        }
    }
}

/// The only decision on a question of one check.
impl From<Decision> for Decisions {
    #[inline]
    fn from(decision: Decision) -> Self {
        Self(Each::One(decision))
    }
}

impl FromIterator<Decision> for Decisions {
    fn from_iter<I: IntoIterator<Item = Decision>>(decisions: I) -> Self {
        Self(Each::Several(decisions.into_iter().collect()))
    }
}

impl PartialEq for Decisions {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Decisions {}

impl fmt::Debug for Decisions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Decisions").field(&&**self).finish()
    }
}

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
