//! `Tally`: what each policy decides, told by the limiter itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tower_throttle::{
    Clock, DecisionEvent, DecisionResult, ManualClock, Micros, Observer, Outcome, RefusalEvent,
    Subject,
};

use crate::series::Series;

/// Observes a limiter. Clones share the counts.
#[derive(Clone)]
pub(crate) struct Tally {
    clock: ManualClock,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) policies: BTreeMap<String, Decided>,
    /// The longest delay of the request at hand.
    pub(crate) delay: Duration,
    /// Requests that were refused before they were counted, by the policy, if any, and why.
    pub(crate) refused: BTreeMap<(String, &'static str), u64>,
}

/// What a policy has decided.
pub(crate) struct Decided {
    pub(crate) requests: u64,
    pub(crate) denied: u64,
    /// Of those denied: they cost more than the limit ever holds.
    pub(crate) never_fit: u64,
    pub(crate) delayed: u64,
    pub(crate) longest_delay: Duration,
    pub(crate) longest_denial: Option<Denial>,
    /// Whom it has denied.
    pub(crate) subjects: HashMap<Subject, Denied>,
    pub(crate) by_hour: Series,
    pub(crate) over_time: Series,
}

pub(crate) struct Denial {
    /// What the client was told to wait.
    pub(crate) wait: Duration,
    pub(crate) subject: Subject,
    pub(crate) at: Micros,
}

pub(crate) struct Denied {
    pub(crate) requests: u64,
    /// As the policy shows it, or its hash.
    pub(crate) shown: Box<str>,
}

impl Tally {
    pub(crate) fn new(clock: ManualClock) -> Self {
        Self {
            clock,
            counts: Arc::default(),
        }
    }

    /// Has these policies counted.
    pub(crate) fn expect(&self, policies: impl Iterator<Item = String>) {
        let policies = policies.map(|policy| (policy, Decided::new()));
        self.counts().policies.extend(policies);
    }

    pub(crate) fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Tally {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let now = self.clock.now();
        let mut counts = self.counts();
        if event.decision.is_allowed() {
            counts.delay = counts.delay.max(event.decision.delay());
        }
        if let Some(decided) = counts.policies.get_mut(event.policy) {
            decided.add(event, now);
        }
    }

    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        let policy = event.policy.unwrap_or_default().to_owned();
        let mut counts = self.counts();
        *counts
            .refused
            .entry((policy, event.reason.as_str()))
            .or_default() += 1;
    }
}

impl Decided {
    fn new() -> Self {
        Self {
            requests: 0,
            denied: 0,
            never_fit: 0,
            delayed: 0,
            longest_delay: Duration::ZERO,
            longest_denial: None,
            subjects: HashMap::new(),
            by_hour: Series::hourly(),
            over_time: Series::coarsening(),
        }
    }

    fn add(&mut self, event: &DecisionEvent<'_>, now: Micros) {
        // In memory, a denial of an enforced policy is one, and one in shadow would be one.
        let is_denied = matches!(
            event.result(),
            DecisionResult::Denied
                | DecisionResult::DeniedFromMemory
                | DecisionResult::ShadowDenied
        );
        self.requests += 1;
        self.by_hour.add(now, is_denied);
        self.over_time.add(now, is_denied);
        let delay = event.decision.delay();
        if event.result() == DecisionResult::Waited {
            self.delayed += 1;
            self.longest_delay = self.longest_delay.max(delay);
        }
        if is_denied {
            self.deny(event, now);
        }
    }

    fn deny(&mut self, event: &DecisionEvent<'_>, now: Micros) {
        self.denied += 1;
        self.never_fit += u64::from(event.decision.outcome() == Outcome::NeverFits);
        let denied = self
            .subjects
            .entry(event.subject)
            .or_insert_with(|| Denied {
                requests: 0,
                shown: match event.shown_subject {
                    // It is what a client has sent.
                    Some(shown) => shown.escape_debug().to_string().into(),
                    None => event.subject.to_string().into(),
                },
            });
        denied.requests += 1;
        let before = self.longest_denial.as_ref().map(|denial| denial.wait);
        if let Some(wait) = event.decision.retry_after()
            && before.is_none_or(|before| wait > before)
        {
            self.longest_denial = Some(Denial {
                wait,
                subject: event.subject,
                at: now,
            });
        }
    }

    /// Those denied most, in descending order.
    pub(crate) fn most_denied(&self, most: usize) -> Vec<Subject> {
        let mut subjects: Vec<_> = self.subjects.iter().collect();
        subjects.sort_unstable_by(|(_, one), (_, other)| {
            let by_requests = other.requests.cmp(&one.requests);
            by_requests.then_with(|| one.shown.cmp(&other.shown))
        });
        let subjects = subjects.into_iter().take(most);
        subjects.map(|(subject, _)| *subject).collect()
    }
}
