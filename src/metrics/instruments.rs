//! The counters, gauges and histograms: their names, labels and descriptions.

use std::time::Duration;

use ::metrics::{
    Counter, Gauge, Histogram, Label, SharedString, Unit, counter, describe_counter,
    describe_gauge, describe_histogram, gauge, histogram,
};

use crate::error::StoreErrorKind;
use crate::mode::Mode;
use crate::observe::{BreakerState, DecisionEvent, DecisionResult, RefusalReason};

const DECISIONS: &str = "tower_throttle_decisions_total";
const LEASED: &str = "tower_throttle_leased_total";
const UNANSWERED: &str = "tower_throttle_unanswered_total";
pub(super) const REFUSALS: &str = "tower_throttle_refusals_total";
const SHADOW_REFUSALS: &str = "tower_throttle_shadow_refusals_total";
const DELAY: &str = "tower_throttle_delay_seconds";
const STORE_DURATION: &str = "tower_throttle_store_duration_seconds";
const STORE_FAILURES: &str = "tower_throttle_store_failures_total";
const BREAKER: &str = "tower_throttle_breaker_state";
#[cfg(feature = "memory")]
const MEMORY_KEYS: &str = "tower_throttle_memory_keys";

/// The metrics of one policy. All are registered together: a counter that first appears as 1 would
/// make a rate too low.
pub(super) struct OfPolicy {
    decisions: [Counter; DecisionResult::EACH.len()],
    leased: Counter,
    unanswered: [Counter; StoreErrorKind::EACH.len()],
    refusals: OfRefusals,
    shadow_refusals: OfRefusals,
    delay: Histogram,
}

impl OfPolicy {
    pub(super) fn new(labels: &[Label], policy: &str) -> Self {
        let labels = and(labels, "policy", policy.to_owned());
        let of_result =
            |result: DecisionResult| counter!(DECISIONS, and(&labels, "result", result.as_str()));
        let of_kind =
            |kind: StoreErrorKind| counter!(UNANSWERED, and(&labels, "kind", kind.as_str()));
        Self {
            decisions: DecisionResult::EACH.map(of_result),
            leased: counter!(LEASED, labels.clone()),
            unanswered: StoreErrorKind::EACH.map(of_kind),
            refusals: OfRefusals::new(REFUSALS, &labels),
            shadow_refusals: OfRefusals::new(SHADOW_REFUSALS, &labels),
            delay: histogram!(DELAY, labels),
        }
    }

    pub(super) fn count(&self, event: &DecisionEvent<'_>) {
        let result = event.result();
        self.decisions[result as usize].increment(1);
        if result == DecisionResult::Waited {
            self.delay.record(event.decision.delay());
        }
        if event.decision.is_from_batch() {
            self.leased.increment(1);
        }
        if let Some(kind) = event.decision.store_failure() {
            self.unanswered[kind as usize].increment(1);
        }
    }

    pub(super) fn refusals(&self, mode: Mode) -> &OfRefusals {
        match mode {
            Mode::Shadow => &self.shadow_refusals,
            Mode::Enforce | Mode::Off => &self.refusals,
        }
    }
}

pub(super) struct OfRefusals([Counter; RefusalReason::EACH.len()]);

impl OfRefusals {
    pub(super) fn new(metric: &'static str, labels: &[Label]) -> Self {
        let of_reason =
            |reason: RefusalReason| counter!(metric, and(labels, "reason", reason.as_str()));
        Self(RefusalReason::EACH.map(of_reason))
    }

    pub(super) fn count(&self, reason: RefusalReason) {
        self.0[reason as usize].increment(1);
    }
}

pub(super) struct OfStore {
    answered: Histogram,
    /// `None` where the store is not asked, of which observers are not told.
    failed: [Option<(Histogram, Counter)>; StoreErrorKind::EACH.len()],
}

impl OfStore {
    pub(super) fn new(labels: &[Label]) -> Self {
        let of_kind = |kind: StoreErrorKind| match kind {
            StoreErrorKind::Overloaded | StoreErrorKind::BreakerOpen => None,
            kind => Some((
                histogram!(STORE_DURATION, and(labels, "result", kind.as_str())),
                counter!(STORE_FAILURES, and(labels, "kind", kind.as_str())),
            )),
        };
        Self {
            answered: histogram!(STORE_DURATION, and(labels, "result", "ok")),
            failed: StoreErrorKind::EACH.map(of_kind),
        }
    }

    pub(super) fn record(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        match failure {
            None => self.answered.record(elapsed),
            Some(kind) => {
                if let Some((duration, count)) = &self.failed[kind as usize] {
                    duration.record(elapsed);
                    count.increment(1);
                }
            }
        }
    }
}

/// One gauge for each state of the circuit breaker.
pub(super) struct OfBreaker([(BreakerState, Gauge); BreakerState::EACH.len()]);

impl OfBreaker {
    pub(super) fn new(labels: &[Label]) -> Self {
        let of_state = |state: BreakerState| {
            let labels = and(labels, "state", state.as_str());
            (state, gauge!(BREAKER, labels))
        };
        Self(BreakerState::EACH.map(of_state))
    }

    pub(super) fn set(&self, state: BreakerState) {
        for (each, gauge) in &self.0 {
            gauge.set(if *each == state { 1.0 } else { 0.0 });
        }
    }
}

#[cfg(feature = "memory")]
pub(super) fn memory_keys(labels: &[Label]) -> Gauge {
    describe_gauge!(MEMORY_KEYS, "Keys that the memory store holds.");
    gauge!(MEMORY_KEYS, labels.to_vec())
}

fn and(labels: &[Label], name: &'static str, value: impl Into<SharedString>) -> Vec<Label> {
    let more = Label::new(name, value);
    labels.iter().cloned().chain([more]).collect()
}

pub(super) fn describe() {
    describe_counter!(DECISIONS, "Decisions of policies about requests.");
    describe_counter!(
        LEASED,
        "Decisions that were made from a batch of permits, without a round trip."
    );
    describe_counter!(
        UNANSWERED,
        "Decisions that were made without an answer from the store."
    );
    describe_counter!(REFUSALS, "Requests refused without asking any policy.");
    describe_counter!(
        SHADOW_REFUSALS,
        "Requests that policies in shadow mode would have refused without asking."
    );
    describe_histogram!(DELAY, Unit::Seconds, "How long requests were delayed.");
    describe_histogram!(
        STORE_DURATION,
        Unit::Seconds,
        "How long the store took to answer a question, or to fail."
    );
    describe_counter!(STORE_FAILURES, "Questions to the store that failed.");
    describe_gauge!(
        BREAKER,
        "1 for the state that the circuit breaker is in, 0 for the others."
    );
}
