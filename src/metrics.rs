//! `Metrics`: what is decided and how the store fares, as counters, gauges and histograms of the
//! crate `metrics`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::metrics::{
    Counter, Gauge, Histogram, Label, Unit, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};

use crate::by_policy::ByPolicy;
use crate::error::StoreErrorKind;
use crate::observe::{BreakerState, DecisionEvent, DecisionResult, Observer, RefusalReason};
#[cfg(feature = "memory")]
use crate::store::memory::MemoryStore;

const DECISIONS: &str = "tower_throttle_decisions_total";
const LEASED: &str = "tower_throttle_leased_total";
const UNANSWERED: &str = "tower_throttle_unanswered_total";
const REFUSALS: &str = "tower_throttle_refusals_total";
const DELAY: &str = "tower_throttle_delay_seconds";
const STORE_DURATION: &str = "tower_throttle_store_duration_seconds";
const STORE_FAILURES: &str = "tower_throttle_store_failures_total";
const BREAKER: &str = "tower_throttle_breaker_state";
#[cfg(feature = "memory")]
const MEMORY_KEYS: &str = "tower_throttle_memory_keys";

/// An [`Observer`] that hands on what it is told to the recorder of the crate `metrics`, and so to
/// Prometheus or whatever else is installed there. Clones share everything.
///
/// ```
/// use metrics_exporter_prometheus::PrometheusBuilder;
/// use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Metrics, Policy};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let prometheus = PrometheusBuilder::new().install_recorder()?;
/// let store = MemoryStore::new();
/// let metrics = Metrics::new().watch_memory(store.clone());
/// let limiter = Limiter::builder(store)
///     .policy(Policy::new("api", Limit::gcra(100, MINUTE)))
///     .observe(metrics.clone())
///     .build()?;
/// limiter.check("api", "alice").await?;
///
/// metrics.collect();
/// let text = prometheus.render();
/// assert!(text.contains(r#"tower_throttle_decisions_total{policy="api",result="allowed"} 1"#));
/// assert!(text.contains("tower_throttle_memory_keys 1"));
/// # Ok(())
/// # }
/// ```
///
/// Make it after the recorder is installed: what is made before goes nowhere, as the crate
/// `metrics` has it.
///
/// | metric | labels | |
/// |---|---|---|
/// | `tower_throttle_decisions_total` | `policy`, `result` | decisions; the results are those of [`DecisionResult`] |
/// | `tower_throttle_leased_total` | `policy` | those of them that were taken from a [batch](crate::QuotaLease), without a trip |
/// | `tower_throttle_unanswered_total` | `policy`, `kind` | those of them that were taken without an answer from the store, by its [kind](StoreErrorKind::as_str) of failure |
/// | `tower_throttle_refusals_total` | `policy`, `reason` | requests refused without asking; the reasons are those of [`RefusalReason`] |
/// | `tower_throttle_delay_seconds` | `policy` | how long requests are held up that are |
/// | `tower_throttle_store_duration_seconds` | `result` | the store's trips: `ok`, or the kind of failure |
/// | `tower_throttle_store_failures_total` | `kind` | those of them that failed |
/// | `tower_throttle_breaker_state` | `state` | 1 for the [state](BreakerState) of the circuit breaker, 0 for the others |
/// | `tower_throttle_memory_keys` | | keys in the memory store that is [watched](Self::watch_memory) |
///
/// The labels have as many values as the operator has named policies: no subject, and nothing else
/// that a request says, is ever in one. A decision about a policy that is known costs a look into a
/// short table and an atomic addition, and allocates nothing.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
    #[cfg(feature = "memory")]
    memory: Option<(MemoryStore, Gauge)>,
}

struct Shared {
    labels: Vec<Label>,
    policies: ByPolicy<OfPolicy>,
    refusals: OfRefusals,
    store: OfStore,
    breaker: [(BreakerState, Gauge); 3],
}

impl Metrics {
    /// For the only limiter of a process, or for several that need not be told apart; but for the
    /// breaker's state, which is that of whichever changed last.
    pub fn new() -> Self {
        Self::with_labels(Vec::new())
    }

    /// For one of several limiters: everything is labelled `limiter` with this name.
    pub fn named(limiter: impl Into<String>) -> Self {
        Self::with_labels(vec![Label::new("limiter", limiter.into())])
    }

    fn with_labels(labels: Vec<Label>) -> Self {
        describe();
        let of_state = |state: BreakerState| {
            let labels = and(&labels, "state", state.as_str());
            (state, gauge!(BREAKER, labels))
        };
        let metrics = Self {
            shared: Arc::new(Shared {
                policies: ByPolicy::new(),
                refusals: OfRefusals::new(&labels),
                store: OfStore::new(&labels),
                breaker: BREAKER_STATES.map(of_state),
                labels,
            }),
            #[cfg(feature = "memory")]
            memory: None,
        };
        metrics.on_breaker(BreakerState::default());
        metrics
    }

    /// Tells how many keys this store holds, whenever it is asked to [`collect`](Self::collect).
    #[cfg(feature = "memory")]
    #[cfg_attr(docsrs, doc(cfg(feature = "memory")))]
    #[must_use]
    pub fn watch_memory(mut self, store: MemoryStore) -> Self {
        describe_gauge!(MEMORY_KEYS, "Keys that the memory store holds.");
        let gauge = gauge!(MEMORY_KEYS, self.shared.labels.clone());
        self.memory = Some((store, gauge));
        self.collect();
        self
    }

    /// Reads what nobody tells by itself: how many keys are in memory. Call it before what is
    /// recorded is read, in the handler of `/metrics` that is; or every few seconds, where an
    /// exporter reads or pushes on its own. It takes some microseconds, and requests nothing.
    pub fn collect(&self) {
        #[cfg(feature = "memory")]
        if let Some((store, gauge)) = &self.memory {
            gauge.set(store.len() as f64);
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        self.shared.with_policy(event.policy, |policy| {
            let result = event.result();
            policy.decisions[result as usize].increment(1);
            if result == DecisionResult::Waited {
                policy.delay.record(event.decision.delay());
            }
            if event.decision.is_leased() {
                policy.leased.increment(1);
            }
            if let Some(kind) = event.decision.store_failure() {
                policy.unanswered[kind as usize].increment(1);
            }
        });
    }

    fn on_refusal(&self, policy: Option<&str>, reason: RefusalReason) {
        match policy {
            None => self.shared.refusals.count(reason),
            Some(policy) => {
                let count = |policy: &OfPolicy| policy.refusals.count(reason);
                self.shared.with_policy(policy, count);
            }
        }
    }

    fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        let store = &self.shared.store;
        match failure {
            None => store.answered.record(elapsed),
            Some(kind) => {
                let (duration, count) = &store.failed[kind as usize];
                duration.record(elapsed);
                count.increment(1);
            }
        }
    }

    fn on_breaker(&self, state: BreakerState) {
        for (each, gauge) in &self.shared.breaker {
            gauge.set(if *each == state { 1.0 } else { 0.0 });
        }
    }
}

impl Shared {
    fn with_policy(&self, policy: &str, work: impl FnOnce(&OfPolicy)) {
        let make = || OfPolicy::new(&self.labels, policy);
        self.policies.with(policy, make, work);
    }
}

/// What is counted for one policy. All of it is registered with the first: a rate of what begins
/// at 1 would be too low.
struct OfPolicy {
    decisions: [Counter; DecisionResult::ALL.len()],
    leased: Counter,
    unanswered: [Counter; StoreErrorKind::ALL.len()],
    refusals: OfRefusals,
    delay: Histogram,
}

impl OfPolicy {
    fn new(labels: &[Label], policy: &str) -> Self {
        let labels = and(labels, "policy", policy.to_owned());
        let of_result =
            |result: DecisionResult| counter!(DECISIONS, and(&labels, "result", result.as_str()));
        let of_kind =
            |kind: StoreErrorKind| counter!(UNANSWERED, and(&labels, "kind", kind.as_str()));
        Self {
            decisions: DecisionResult::ALL.map(of_result),
            leased: counter!(LEASED, labels.clone()),
            unanswered: StoreErrorKind::ALL.map(of_kind),
            refusals: OfRefusals::new(&labels),
            delay: histogram!(DELAY, labels),
        }
    }
}

struct OfRefusals([Counter; RefusalReason::ALL.len()]);

impl OfRefusals {
    fn new(labels: &[Label]) -> Self {
        let of_reason =
            |reason: RefusalReason| counter!(REFUSALS, and(labels, "reason", reason.as_str()));
        Self(RefusalReason::ALL.map(of_reason))
    }

    fn count(&self, reason: RefusalReason) {
        self.0[reason as usize].increment(1);
    }
}

struct OfStore {
    answered: Histogram,
    failed: [(Histogram, Counter); StoreErrorKind::ALL.len()],
}

impl OfStore {
    fn new(labels: &[Label]) -> Self {
        let of_kind = |kind: StoreErrorKind| {
            let word = kind.as_str();
            (
                histogram!(STORE_DURATION, and(labels, "result", word)),
                counter!(STORE_FAILURES, and(labels, "kind", word)),
            )
        };
        Self {
            answered: histogram!(STORE_DURATION, and(labels, "result", "ok")),
            failed: StoreErrorKind::ALL.map(of_kind),
        }
    }
}

// What is counted is found by its place in the list.
const _: () = {
    let mut place = 0;
    while place < DecisionResult::ALL.len() {
        assert!(DecisionResult::ALL[place] as usize == place);
        place += 1;
    }
    let mut place = 0;
    while place < RefusalReason::ALL.len() {
        assert!(RefusalReason::ALL[place] as usize == place);
        place += 1;
    }
    let mut place = 0;
    while place < StoreErrorKind::ALL.len() {
        assert!(StoreErrorKind::ALL[place] as usize == place);
        place += 1;
    }
};

const BREAKER_STATES: [BreakerState; 3] = [
    BreakerState::Closed,
    BreakerState::HalfOpen,
    BreakerState::Open,
];

fn and(
    labels: &[Label],
    name: &'static str,
    value: impl Into<::metrics::SharedString>,
) -> Vec<Label> {
    let more = Label::new(name, value);
    labels.iter().cloned().chain([more]).collect()
}

fn describe() {
    describe_counter!(DECISIONS, "Decisions of policies about requests.");
    describe_counter!(
        LEASED,
        "Decisions that were taken from a batch of permits, without a trip."
    );
    describe_counter!(
        UNANSWERED,
        "Decisions that were taken without an answer from the store."
    );
    describe_counter!(REFUSALS, "Requests refused without asking any policy.");
    describe_histogram!(DELAY, Unit::Seconds, "How long requests were held up.");
    describe_histogram!(
        STORE_DURATION,
        Unit::Seconds,
        "How long the store took to answer, or to fail."
    );
    describe_counter!(STORE_FAILURES, "Trips to the store that failed.");
    describe_gauge!(
        BREAKER,
        "1 for the state that the circuit breaker is in, 0 for the others."
    );
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("labels", &self.shared.labels)
            .finish_non_exhaustive()
    }
}
