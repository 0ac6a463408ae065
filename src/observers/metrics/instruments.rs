//! The counters, gauges and histograms: their names, labels and descriptions.

use std::time::{Duration, SystemTime};

use ::metrics::{
    Counter, Gauge, Histogram, Label, SharedString, Unit, counter, describe_counter,
    describe_gauge, describe_histogram, gauge, histogram,
};

use crate::error::StoreErrorKind;
use crate::mode::{Mode, Percent};
use crate::observer::{BreakerState, DecisionEvent, DecisionResult, RefusalReason};

const DECISIONS: &str = "tower_throttle_decisions_total";
const PREFETCHED: &str = "tower_throttle_prefetched_total";
const UNANSWERED: &str = "tower_throttle_unanswered_total";
pub(super) const REFUSALS: &str = "tower_throttle_refusals_total";
const SHADOW_REFUSALS: &str = "tower_throttle_shadow_refusals_total";
const HOLDS: &str = "tower_throttle_holds_total";
const DELAY: &str = "tower_throttle_delay_seconds";
const STORE_DURATION: &str = "tower_throttle_store_duration_seconds";
const STORE_FAILURES: &str = "tower_throttle_store_failures_total";
const BREAKER: &str = "tower_throttle_breaker_state";
const ENABLED: &str = "tower_throttle_enabled";
const POLICY_MODE: &str = "tower_throttle_policy_mode";
const POLICY_ENFORCED: &str = "tower_throttle_policy_enforced_ratio";
const CONFIG_SUCCESSFUL: &str = "tower_throttle_config_last_reload_successful";
const CONFIG_SUCCESS_TIME: &str = "tower_throttle_config_last_reload_success_timestamp_seconds";
#[cfg(feature = "memory")]
const MEMORY_KEYS: &str = "tower_throttle_memory_keys";

/// The metrics of one policy. All are registered together: a counter that first appears as 1 would
/// make a rate too low.
pub(super) struct OfPolicy {
    decisions: [Counter; DecisionResult::EACH.len()],
    prefetched: Counter,
    unanswered: [Counter; StoreErrorKind::EACH.len()],
    refusals: OfRefusals,
    shadow_refusals: OfRefusals,
    pub(super) holds: Counter,
    delay: Histogram,
    /// One gauge for each mode.
    modes: [Gauge; Mode::EACH.len()],
    enforced: Gauge,
}

impl OfPolicy {
    pub(super) fn new(labels: &[Label], policy: &str) -> Self {
        let labels = and(labels, "policy", policy.to_owned());
        let of_result =
            |result: DecisionResult| counter!(DECISIONS, and(&labels, "result", result.as_str()));
        let of_kind =
            |kind: StoreErrorKind| counter!(UNANSWERED, and(&labels, "kind", kind.as_str()));
        let enforced = gauge!(POLICY_ENFORCED, labels.clone());
        enforced.set(1.0);
        Self {
            enforced,
            decisions: DecisionResult::EACH.map(of_result),
            prefetched: counter!(PREFETCHED, labels.clone()),
            unanswered: StoreErrorKind::EACH.map(of_kind),
            refusals: OfRefusals::new(REFUSALS, &labels),
            shadow_refusals: OfRefusals::new(SHADOW_REFUSALS, &labels),
            holds: counter!(HOLDS, labels.clone()),
            modes: Mode::EACH.map(|mode| gauge!(POLICY_MODE, and(&labels, "mode", mode.as_str()))),
            delay: histogram!(DELAY, labels),
        }
    }

    pub(super) fn count(&self, event: &DecisionEvent<'_>) {
        let result = event.result();
        self.decisions[result as usize].increment(1);
        if result == DecisionResult::Waited {
            self.delay.record(event.decision.delay());
        }
        if event.decision.is_prefetched() {
            self.prefetched.increment(1);
        }
        if let Some(kind) = event.decision.store_failure() {
            self.unanswered[kind as usize].increment(1);
        }
    }

    /// `None` for a removed policy.
    pub(super) fn set_mode(&self, mode: Option<Mode>) {
        for (each, gauge) in Mode::EACH.into_iter().zip(&self.modes) {
            gauge.set(flag(mode == Some(each)));
        }
    }

    pub(super) fn set_enforced_for(&self, share: Percent) {
        self.enforced.set(f64::from(share.get()) / 100.0);
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
    /// `None` for kinds without a store call, which observers do not see.
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
            gauge.set(flag(*each == state));
        }
    }
}

pub(super) fn enabled(labels: &[Label]) -> Gauge {
    gauge!(ENABLED, labels.to_vec())
}

/// Records a reading of the configuration file. The metrics appear with the first reading, so a
/// limiter without a file has none.
pub(super) fn record_config_read(labels: &[Label], is_success: bool) {
    gauge!(CONFIG_SUCCESSFUL, labels.to_vec()).set(flag(is_success));
    if is_success {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = since_epoch.unwrap_or_default().as_secs_f64();
        gauge!(CONFIG_SUCCESS_TIME, labels.to_vec()).set(now);
    }
}

pub(super) fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

#[cfg(feature = "memory")]
pub(super) fn memory_keys(labels: &[Label]) -> Gauge {
    describe_gauge!(MEMORY_KEYS, "Keys in the memory store.");
    gauge!(MEMORY_KEYS, labels.to_vec())
}

fn and(labels: &[Label], name: &'static str, value: impl Into<SharedString>) -> Vec<Label> {
    let more = Label::new(name, value);
    labels.iter().cloned().chain([more]).collect()
}

pub(super) fn describe() {
    describe_counter!(DECISIONS, "Decisions of policies about requests.");
    describe_counter!(
        PREFETCHED,
        "Decisions from a prefetched batch of permits, without a round trip."
    );
    describe_counter!(UNANSWERED, "Decisions without the store's answer.");
    describe_counter!(REFUSALS, "Requests rejected before any policy decided.");
    describe_counter!(
        SHADOW_REFUSALS,
        "Requests that policies in shadow mode would have rejected before deciding."
    );
    describe_counter!(HOLDS, "Times that an upstream asked to wait.");
    describe_histogram!(DELAY, Unit::Seconds, "Delays of delayed requests.");
    describe_histogram!(
        STORE_DURATION,
        Unit::Seconds,
        "Time until a store call succeeded or failed."
    );
    describe_counter!(STORE_FAILURES, "Store calls that failed.");
    describe_gauge!(
        BREAKER,
        "1 for the current state of the circuit breaker, 0 for the others."
    );
    describe_gauge!(
        ENABLED,
        "1 while requests are limited, 0 while limiting is turned off."
    );
    describe_gauge!(
        POLICY_MODE,
        "1 for the policy's current mode, 0 for the others; 0 for all if the policy was removed."
    );
    describe_gauge!(
        POLICY_ENFORCED,
        "The share of the keys for which the mode enforce holds, 0 to 1; the others are in shadow mode."
    );
    describe_gauge!(
        CONFIG_SUCCESSFUL,
        "1 if the last reading of the configuration file was accepted, 0 if it was rejected."
    );
    describe_gauge!(
        CONFIG_SUCCESS_TIME,
        Unit::Seconds,
        "When a configuration file was last accepted, in seconds since the Unix epoch."
    );
}
