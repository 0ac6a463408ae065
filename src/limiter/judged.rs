//! `Judged`: a request on which all policies have decided.

use std::sync::Arc;

use arc_swap::Guard;
use smallvec::SmallVec;

use super::Limiter;
use super::rules::ReadyRules;
use super::taken::TakenByRequest;
use crate::decision::{Decision, Decisions, Verdict};
use crate::key::Subject;
use crate::mode::Mode;
use crate::policy::ReadyPolicy;
use crate::time::Micros;

/// The policies that were asked about a request.
pub(super) struct Asked {
    /// In a guard, as long as nothing is awaited: then the rules' reference count is not touched,
    /// on which all requests would contend.
    pub(super) rules: Guard<Arc<ReadyRules>>,
    pub(super) each: SmallVec<[AskedPolicy; 4]>,
    /// The keys in words of those that show them, by their position in `each`.
    pub(super) shown: Vec<(usize, Box<str>)>,
    pub(super) has_several_checks: bool,
    pub(super) has_shadows: bool,
    pub(super) may_give_back: bool,
    /// Whether a policy denies that admits nothing, so that no store is asked.
    pub(super) is_denied: bool,
}

/// One policy that applies to a request.
#[derive(Clone, Copy)]
pub(super) struct AskedPolicy {
    pub(super) position: usize,
    pub(super) subject: Subject,
    pub(super) mode: Mode,
    /// Whether the limit for this request admits nothing. It then has no checks.
    pub(super) admits_nothing: bool,
}

impl Asked {
    pub(super) fn under(rules: Guard<Arc<ReadyRules>>) -> Self {
        Self {
            rules,
            each: SmallVec::new(),
            shown: Vec::new(),
            has_several_checks: false,
            has_shadows: false,
            may_give_back: false,
            is_denied: false,
        }
    }

    /// The same, to be kept across an await: the guard becomes a reference count.
    pub(super) fn kept(self) -> Self {
        Self {
            rules: Guard::from_inner(Guard::into_inner(self.rules)),
            ..self
        }
    }

    pub(super) fn policy(&self, asked: &AskedPolicy) -> &Arc<ReadyPolicy> {
        &self.rules.policies[asked.position]
    }

    fn shown(&self, nth: usize) -> Option<&str> {
        let mut shown = self.shown.iter();
        shown.find_map(|(of, words)| (*of == nth).then_some(&**words))
    }

    /// What `read` makes of the answers and of what the request has taken.
    #[inline]
    pub(super) fn judged<T>(
        &self,
        limiter: &Limiter,
        mut taken: TakenByRequest,
        answers: &Decisions,
        read: impl FnOnce(&mut Judged<'_>) -> T,
    ) -> T {
        let of_policies = self.of_policies(answers);
        let decisions = of_policies.as_ref().unwrap_or(answers);
        let without_vain_waits = decisions.without_vain_waits();
        let decisions = without_vain_waits.as_ref().unwrap_or(decisions);
        if let Some(taken) = &mut taken {
            taken.answered(self.of_rates(decisions, answers));
        }
        for (nth, (asked, decision)) in self.each.iter().zip(decisions.iter()).enumerate() {
            let (policy, shown) = (self.policy(asked), self.shown(nth));
            limiter.report(policy, asked.mode, asked.subject, shown, decision);
        }
        let shown = self.has_shadows.then(|| self.without_shadows(decisions));
        let (each, decisions) = match &shown {
            Some((each, decisions)) => (each, decisions),
            None => (&self.each, decisions),
        };
        read(&mut Judged {
            policies: &self.rules.policies,
            each,
            decisions,
            taken,
        })
    }

    /// Clients are not told of policies in shadow.
    fn without_shadows(&self, decisions: &Decisions) -> (SmallVec<[AskedPolicy; 4]>, Decisions) {
        let each = self.each.iter().zip(decisions.iter());
        let enforced = each.filter(|(asked, _)| asked.mode != Mode::Shadow);
        let each = enforced.clone().map(|(asked, _)| *asked);
        (
            each.collect(),
            enforced.map(|(_, decision)| *decision).collect(),
        )
    }

    /// One decision for each policy, according to its mode; `None` if that is what the answers are.
    fn of_policies(&self, answers: &Decisions) -> Option<Decisions> {
        if !self.has_several_checks && !self.has_shadows && !self.is_denied {
            return None;
        }
        let mut each = answers.iter();
        let policies = self.each.iter();
        let decisions = policies.map(|asked| {
            let decision = match asked.admits_nothing {
                true => Decision::of_nothing(1),
                false => self.policy(asked).decision(&mut each),
            };
            match asked.mode {
                Mode::Shadow => decision.in_shadow(),
                _ => decision,
            }
        });
        Some(decisions.collect())
    }

    /// For each rate of each policy, the policy's decision and the rate's own.
    fn of_rates<'a>(
        &'a self,
        decisions: &'a Decisions,
        answers: &'a Decisions,
    ) -> impl Iterator<Item = (&'a Decision, &'a Decision)> + Clone {
        let mut next = 0;
        let policies = self.each.iter().zip(decisions.iter());
        let with_rates = policies.filter(|(asked, _)| !asked.admits_nothing);
        with_rates.flat_map(move |(asked, decision)| {
            let policy = self.policy(asked);
            let rates = &answers[next..next + policy.count_rates()];
            next += policy.count_checks();
            rates.iter().map(move |rate| (decision, rate))
        })
    }
}

/// All decisions about one request, except those of policies in shadow.
pub(crate) struct Judged<'a> {
    policies: &'a [Arc<ReadyPolicy>],
    /// Empty if nobody was asked.
    each: &'a [AskedPolicy],
    decisions: &'a Decisions,
    taken: TakenByRequest,
}

impl<'a> Judged<'a> {
    pub(super) fn by_nobody<T>(read: impl FnOnce(&mut Judged<'_>) -> T) -> T {
        read(&mut Judged {
            policies: &[],
            each: &[],
            decisions: &Decisions::default(),
            taken: None,
        })
    }

    pub(crate) fn is_allowed(&self) -> bool {
        self.decisions.all_allow()
    }

    /// How long the request is held up.
    pub(crate) fn delay(&self) -> Micros {
        let delays = self.decisions.iter().map(|decision| decision.delay);
        delays.max().unwrap_or_default()
    }

    /// What the request has taken and may have to give back.
    pub(crate) fn take_taken(&mut self) -> TakenByRequest {
        self.taken.take()
    }

    /// Each policy's name and decision.
    pub(crate) fn each(&self) -> impl Iterator<Item = (&'a str, &'a Decision)> + Clone {
        let names = self.policies().map(|policy| policy.id.name());
        names.zip(self.decisions.iter())
    }

    /// The decisions of the policies whose cost stays, whatever the response is.
    pub(crate) fn each_for_good(&self) -> impl Iterator<Item = &'a Decision> {
        let each = self.policies().zip(self.decisions.iter());
        each.filter_map(|(policy, decision)| (!policy.settles()).then_some(decision))
    }

    /// The decision that a rejection is about.
    pub(crate) fn denied_by(&self) -> Option<(&'a str, &'a Decision)> {
        self.each().nth(self.decisions.denied_by()?)
    }

    /// The names of the policies that were asked.
    pub(super) fn names(&self) -> impl Iterator<Item = Arc<str>> {
        self.policies().map(|policy| policy.id.shared_name())
    }

    /// The verdict to pass on to the service, after the decisions of outer layers.
    pub(crate) fn verdict(&self, outer: Option<&Verdict>) -> Verdict {
        Verdict::new(outer, self.names().zip(self.decisions.iter().copied()))
    }

    fn policies(&self) -> impl Iterator<Item = &'a ReadyPolicy> + Clone + use<'a> {
        let policies = self.policies;
        let asked = self.each.iter();
        asked.map(|asked| &*policies[asked.position])
    }
}
