//! A request after a history, and what its response and its events report about each policy.

use std::collections::HashMap;
use std::time::Duration;

use tower_throttle::{Decision, Outcome};

use super::history::{History, ShownOnFailure, Step};
use super::policies::NAMES;
use super::stage::{Event, How, Response, Stage};
use super::{denial, promises};
use support::bench::Bench;

/// The client whose answer is checked. It looks, and asks again after the reported wait.
pub(crate) const ASKED: usize = 0;
/// What each of the others does after the request.
pub(crate) const TAKES_WHAT_REMAINS: usize = 1;
pub(crate) const TAKES_ONE_MORE: usize = 2;
pub(crate) const ASKS_EARLY: usize = 3;
pub(crate) const TAKES_AT_RENEWAL: usize = 4;
pub(crate) const LOOKS_AT_RESET: usize = 5;
pub(crate) const LOOKS_BEFORE_RESET: usize = 6;
pub(crate) const LOOKS_AT_HEADERS_RESET: usize = 7;
const CALLS: usize = 8;
pub(crate) const CALLS_EARLY: usize = 9;
pub(crate) const CALLS_IN_TIME: usize = 10;
const CLIENTS: usize = 11;

pub(crate) async fn check_answers(bench: &Bench, history: &History) {
    let _shown = ShownOnFailure(history);
    let Some(mut stage) = Stage::open(bench, &history.policies) else {
        return;
    };
    let (last, before) = history.steps.split_last().unwrap();
    for (number, step) in before.iter().enumerate() {
        if history.changes_at == Some(number) {
            stage.change();
        }
        bench.advance_us(step.pause_us);
        for client in 0..CLIENTS {
            stage.operate(client, step).await;
        }
        assert!(stage.take_events().is_empty());
        let _ = stage.send_by_each(0..CLIENTS, step, How::Http).await;
        let events = stage.take_events();
        assert_eq!(events.len(), CLIENTS * stage.policies.len());
        each_policy_is_reported_once(&stage, &events);
    }
    bench.advance_us(last.pause_us);
    let asked = Asked::by_each(&mut stage, last, history).await;
    stage.lists_each_denial();
    asked.shadows_hold_up_nobody(&stage);
    asked.lists_tell_the_decisions(&stage);
    denial::check_answers(&asked);
    asked.remaining_permits_can_be_acquired(&stage).await;
    asked.looks_tell_the_same(&stage).await;
    promises::hold(&stage, &asked, history).await;
}

/// For each request.
fn each_policy_is_reported_once(stage: &Stage<'_>, events: &[Event]) {
    let names = &NAMES[..stage.policies.len()];
    for of_request in events.chunks(names.len()) {
        let reported = of_request.iter().map(|event| &*event.policy);
        assert!(reported.eq(names.iter().copied()), "{events:?}");
    }
}

/// The last request, with its responses and events.
pub(crate) struct Asked<'a> {
    pub(crate) step: &'a Step,
    /// The decision of each policy before it.
    looked: Vec<Decision>,
    pub(crate) response: Response,
    pub(crate) events: Vec<Event>,
    /// Whether all clients got the same answer, from the store.
    pub(crate) are_alike: bool,
    /// What another policy denies has the reset that it would have under a changed window.
    pub(crate) tells_exact_resets: bool,
    pub(crate) over_grpc: Response,
    /// Of a call with a deadline, and whether its wait is exact.
    pub(crate) within: (Response, bool),
}

impl<'a> Asked<'a> {
    async fn by_each(stage: &mut Stage<'_>, step: &'a Step, history: &History) -> Self {
        let mut looked = Vec::new();
        for policy in 0..stage.policies.len() {
            looked.push(stage.peek(ASKED, policy, step).await);
        }
        assert!(stage.take_events().is_empty(), "a look decides nothing");
        let mut responses = stage.send_by_each(ASKED..CALLS, step, How::Http).await;
        let mut events = stage.take_events();
        each_policy_is_reported_once(stage, &events);
        let others = events.split_off(stage.policies.len());
        assert_eq!(others.len(), (CALLS - 1) * events.len());
        let response = responses.swap_remove(0);
        let over_grpc = stage.send(CALLS, step, How::Grpc).await;
        let calls = stage.take_events();
        // What is remembered of one may have been driven out by others.
        let is_remembered = |event: &Event| event.decision.is_remembered();
        let mut all = events.iter().chain(&others).chain(&calls);
        let are_alike = !all.any(is_remembered);
        if are_alike {
            for others in others.chunks(events.len()) {
                let each = events.iter().zip(others);
                let mut outcomes = each.map(|(one, other)| (&one.decision, &other.decision));
                assert!(outcomes.all(|(one, other)| one.outcome() == other.outcome()));
            }
            for other in responses {
                assert_eq!(other.status, response.status);
                assert_eq!(other.headers, response.headers);
                assert_eq!(other.body, response.body);
            }
        }
        let mut within = Vec::new();
        for client in [CALLS_EARLY, CALLS_IN_TIME] {
            let how = How::GrpcWithin(history.deadline_ms);
            within.push(stage.send(client, step, how).await);
        }
        let calls = stage.take_events();
        let is_exact = |event: &Event| {
            let decision = &event.decision;
            !decision.is_remembered() && decision.outcome() != Outcome::NotAsked
        };
        Self {
            step,
            looked,
            are_alike,
            tells_exact_resets: history.changes_at.is_none() || response.status == 200,
            response,
            over_grpc,
            within: (within.remove(0), calls.iter().all(is_exact)),
            events,
        }
    }

    pub(crate) fn decision(&self, policy: usize) -> &Decision {
        &self.events[policy].decision
    }

    pub(crate) fn is_denied(&self) -> bool {
        self.response.status == 429
    }

    /// The policies that responses show.
    pub(crate) fn shown(&self, stage: &Stage<'_>) -> Vec<usize> {
        let is_shown = |policy: &usize| {
            let is_asked = self.decision(*policy).outcome() != Outcome::NotAsked;
            is_asked && !stage.policies[*policy].is_shadow
        };
        (0..stage.policies.len()).filter(is_shown).collect()
    }

    /// Whether the request was decided by the policy's own limit, by which operations go.
    pub(crate) fn is_by_own_limit(&self, stage: &Stage<'_>, policy: usize) -> bool {
        !(self.step.is_premium && stage.policies[policy].has_tiers)
    }

    /// Those of them for which the store gave all clients the same answer, by the limit that
    /// operations use.
    pub(crate) fn exact(&self, stage: &Stage<'_>) -> Vec<usize> {
        let mut shown = self.shown(stage);
        shown.retain(|policy| self.are_alike && self.is_by_own_limit(stage, *policy));
        shown
    }

    fn shadows_hold_up_nobody(&self, stage: &Stage<'_>) {
        for (policy, event) in stage.policies.iter().zip(&self.events) {
            let decision = &event.decision;
            assert!(!policy.is_shadow || decision.is_allowed(), "{event:?}");
            let must_wait = !decision.delay().is_zero() && decision.is_allowed();
            assert!(
                !must_wait || !(policy.is_shadow || self.is_denied()),
                "{event:?}"
            );
        }
    }

    fn lists_tell_the_decisions(&self, stage: &Stage<'_>) {
        let shown = self.shown(stage);
        let quotas = items(self.response.text("ratelimit"));
        let policies = items(self.response.text("ratelimit-policy"));
        assert_eq!(quotas.len(), shown.len());
        assert_eq!(policies.len(), shown.len());
        for (policy, (quota, announced)) in shown.iter().zip(quotas.iter().zip(&policies)) {
            let decision = self.decision(*policy);
            let context = || format!("{quota:?} of {announced:?} by {decision:?}");
            assert_eq!((&*quota.0, &*announced.0), (NAMES[*policy], NAMES[*policy]));
            let (q, w) = (announced.1["q"], announced.1["w"]);
            assert_eq!(q, decision.limit(), "{}", context());
            assert_eq!(w, secs(decision.window()), "{}", context());
            let (r, t) = (quota.1["r"], quota.1["t"]);
            assert_eq!(r, decision.remaining(), "{}", context());
            assert!(t >= 1, "{}", context());
            if let Some(wait) = decision.retry_after() {
                assert!(t <= secs(wait).max(1), "{}", context());
            } else if r > 0 && !stage.policies[*policy].is_a_window() {
                assert!(r * w <= q * t, "{}", context());
            }
        }
    }

    async fn remaining_permits_can_be_acquired(&self, stage: &Stage<'_>) {
        for policy in self.exact(stage) {
            let decision = self.decision(policy);
            let take = async |client, permits| {
                let taken = stage.check(client, policy, self.step, permits).await;
                taken.is_allowed()
            };
            let remaining = decision.remaining();
            let can_be_taken = remaining == 0 || take(TAKES_WHAT_REMAINS, remaining).await;
            assert!(can_be_taken, "{decision:?}");
            assert!(!take(TAKES_ONE_MORE, remaining + 1).await, "{decision:?}");
        }
    }

    async fn looks_tell_the_same(&self, stage: &Stage<'_>) {
        for policy in self.exact(stage) {
            let (decision, before) = (self.decision(policy), &self.looked[policy]);
            for _ in 0..2 {
                let after = stage.peek(ASKED, policy, self.step).await;
                assert!(after.is_allowed());
                assert_eq!(after.remaining(), decision.remaining(), "{decision:?}");
                assert_eq!(after.banned_for(), decision.banned_for());
                if self.tells_exact_resets {
                    assert_eq!(after.reset_after(), decision.reset_after());
                }
            }
            if decision.banned_for().is_some() {
                continue;
            }
            let cost = self.step.costs[policy];
            let taken = if self.is_denied() { 0 } else { cost };
            let left = before.remaining().saturating_sub(taken);
            assert_eq!(decision.remaining(), left, "{before:?}, {decision:?}");
            let (fits, drawn) = (before.remaining() >= cost, &stage.policies[policy]);
            // A queue may have room, and yet too long a wait.
            if fits && !(drawn.queues() && drawn.delays()) {
                assert!(decision.is_allowed(), "{before:?}, {decision:?}");
            }
            if fits && !drawn.queues() {
                assert!(decision.delay().is_zero(), "{before:?}, {decision:?}");
            }
        }
    }
}

/// A list of draft 11.
pub(crate) fn items(list: Option<&str>) -> Vec<(String, HashMap<&str, u64>)> {
    let each = list.into_iter().flat_map(|list| list.split(", "));
    each.map(|text| {
        let (name, parameters) = text.split_once(';').unwrap();
        let parameters = parameters.split(';').map(|parameter| {
            let (key, value) = parameter.split_once('=').unwrap();
            (key, value.parse().unwrap())
        });
        (name.trim_matches('"').to_owned(), parameters.collect())
    })
    .collect()
}

/// Rounded up.
pub(crate) fn secs(time: Duration) -> u64 {
    us(time).div_ceil(1_000_000)
}

pub(crate) fn us(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap()
}
