//! `Metrics`: decisions and the store's state as metrics of the crate `metrics`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Gauge, Label};

use self::instruments::{OfBreaker, OfPolicy, OfRefusals, OfStore, REFUSALS, describe};
use super::per_policy::PerPolicy;
use crate::error::StoreErrorKind;
use crate::observer::{
    BreakerState, ChangeEvent, DecisionEvent, HoldEvent, Observer, RefusalEvent,
};
#[cfg(feature = "memory")]
use crate::store::memory::MemoryStore;

mod instruments;

/// An [`Observer`] that records metrics with the crate `metrics`, for Prometheus or any other
/// recorder. Clones share everything.
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
/// let limiter = Limiter::builder(store, [Policy::new("api", Limit::gcra(100, MINUTE))])
///     .observe(metrics.clone())
///     .build()?;
/// assert!(limiter.check("api", "alice").await?.is_allowed());
///
/// metrics.collect();
/// let text = prometheus.render();
/// assert!(text.contains(r#"tower_throttle_decisions_total{policy="api",result="allowed"} 1"#));
/// assert!(text.contains("tower_throttle_memory_keys 1"));
/// # Ok(())
/// # }
/// ```
///
/// Create it after the recorder is installed: metrics that are created earlier are lost. Counters
/// are registered once, so one that the exporter removes (`idle_timeout` of
/// `metrics-exporter-prometheus`) never comes back: do not let it expire them. A recorder from
/// `install_recorder` keeps every recorded duration until it is scraped or its `run_upkeep` is
/// called: call that every few seconds.
///
/// | metric | labels | |
/// |---|---|---|
/// | `tower_throttle_decisions_total` | `policy`, `result` | decisions, by [result](crate::DecisionResult) |
/// | `tower_throttle_prefetched_total` | `policy` | decisions from a [prefetched batch](crate::Prefetch), without a round trip |
/// | `tower_throttle_unanswered_total` | `policy`, `kind` | decisions without the store's answer, by [kind](StoreErrorKind::as_str) of failure |
/// | `tower_throttle_refusals_total` | `policy`, `reason` | requests rejected before any policy decided, by [reason](crate::RefusalReason) |
/// | `tower_throttle_shadow_refusals_total` | `policy`, `reason` | requests that a policy in shadow mode would have rejected so |
/// | `tower_throttle_delay_seconds` | `policy` | the delays of delayed requests, in seconds |
/// | `tower_throttle_holds_total` | `policy` | times that an upstream asked this process to [wait](crate::Feedback) |
/// | `tower_throttle_store_duration_seconds` | `result` | the time of each store call, in seconds: `ok`, or the kind of failure |
/// | `tower_throttle_store_failures_total` | `kind` | store calls that failed |
/// | `tower_throttle_breaker_state` | `state` | 1 for the [state](BreakerState) of the circuit breaker, 0 for the others |
/// | `tower_throttle_enabled` | | 1 while requests are limited, 0 while limiting is [turned off](crate::Limiter::turn_off) |
/// | `tower_throttle_policy_mode` | `policy`, `mode` | 1 for the [mode](crate::Mode) that the policy is in, 0 for the others |
/// | `tower_throttle_policy_enforced_ratio` | `policy` | the share of the subjects for whom the policy is [enforced](crate::Policy::enforce_for) in the mode `enforce`: 0 to 1 |
/// | `tower_throttle_config_last_reload_successful` | | 1 if the configuration file was accepted when it was last read, 0 if it was refused |
/// | `tower_throttle_config_last_reload_success_timestamp_seconds` | | when a file was last accepted, in seconds since the Unix epoch |
/// | `tower_throttle_memory_keys` | | keys in the [watched](Self::watch_memory) memory store |
///
/// Labels contain only names that the operator chose, never keys or other text of requests. A
/// decision of a known policy costs a lookup in a short table and an atomic addition, and does not
/// allocate.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<Shared>,
    #[cfg(feature = "memory")]
    memory: Option<(MemoryStore, Gauge)>,
}

struct Shared {
    labels: Vec<Label>,
    policies: PerPolicy<OfPolicy>,
    refusals: OfRefusals,
    store: OfStore,
    breaker: OfBreaker,
    enabled: Gauge,
}

impl Metrics {
    /// For the only limiter of a process, or for several without their own labels. The breaker's
    /// state is then the one that changed last.
    pub fn new() -> Self {
        Self::with_labels(Vec::new())
    }

    /// For one of several limiters: adds the label `limiter` with this name to every metric.
    pub fn named(limiter: impl Into<String>) -> Self {
        Self::with_labels(vec![Label::new("limiter", limiter.into())])
    }

    fn with_labels(labels: Vec<Label>) -> Self {
        describe();
        let metrics = Self {
            shared: Arc::new(Shared {
                policies: PerPolicy::new(),
                refusals: OfRefusals::new(REFUSALS, &labels),
                store: OfStore::new(&labels),
                breaker: OfBreaker::new(&labels),
                enabled: instruments::enabled(&labels),
                labels,
            }),
            #[cfg(feature = "memory")]
            memory: None,
        };
        metrics.on_breaker(BreakerState::default());
        metrics.shared.enabled.set(1.0);
        metrics
    }

    /// Records the number of keys of this store with each [`collect`](Self::collect).
    #[cfg(feature = "memory")]
    #[cfg_attr(docsrs, doc(cfg(feature = "memory")))]
    #[must_use]
    pub fn watch_memory(mut self, store: MemoryStore) -> Self {
        let gauge = instruments::memory_keys(&self.shared.labels);
        self.memory = Some((store, gauge));
        self.collect();
        self
    }

    /// Updates the metrics that no event updates: the number of keys in memory. Call it in your
    /// `/metrics` handler before you render, or every few seconds if the exporter reads or pushes
    /// itself. It takes a few microseconds and does not call the store.
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
        let count = |policy: &OfPolicy| policy.count(event);
        self.shared.with_policy(event.policy, count);
    }

    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        match event.policy {
            None => self.shared.refusals.count(event.reason),
            Some(policy) => {
                let count = |policy: &OfPolicy| policy.refusals(event.mode).count(event.reason);
                self.shared.with_policy(policy, count);
            }
        }
    }

    fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        self.shared.store.record(elapsed, failure);
    }

    fn on_breaker(&self, state: BreakerState) {
        self.shared.breaker.set(state);
    }

    fn on_hold(&self, event: &HoldEvent<'_>) {
        let count = |policy: &OfPolicy| policy.holds.increment(1);
        self.shared.with_policy(event.policy, count);
    }

    fn on_change(&self, event: &ChangeEvent) {
        let shared = &self.shared;
        match event {
            ChangeEvent::Switched { is_on } => shared.enabled.set(instruments::flag(*is_on)),
            ChangeEvent::PolicyMode { policy, to, .. } => {
                shared.with_policy(policy, |policy| policy.set_mode(*to));
            }
            ChangeEvent::EnforcedFor { policy, to, .. } => {
                shared.with_policy(policy, |policy| policy.set_enforced_for(*to));
            }
            ChangeEvent::ConfigRead { error } => {
                instruments::record_config_read(&shared.labels, error.is_none());
            }
            ChangeEvent::AccessList { .. } => {}
        }
    }
}

impl Shared {
    fn with_policy(&self, policy: &str, work: impl FnOnce(&OfPolicy)) {
        self.policies
            .with(policy, || OfPolicy::new(&self.labels, policy), work);
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics")
            .field("labels", &self.shared.labels)
            .finish_non_exhaustive()
    }
}
