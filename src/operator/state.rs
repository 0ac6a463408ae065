//! What operators see, as JSON. The names of times end in their unit.

use std::cmp::Reverse;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

use super::api::Api;
use super::audit::Change;
use super::blocks::BlockState;
use super::counters::Counters;
use super::enforcement::Enforcement;
use super::history::Minutes;
use super::response::millis;
use super::subject;
use crate::limiter::PolicySummary;
use crate::observers::{TopDenied, TopEntry};
use crate::one_line::OneLine;

/// How many of the most denied subjects are listed.
const MOST_DENIED: usize = 10;

/// Everything known of a limiter.
#[derive(serde::Serialize)]
pub(super) struct State {
    on: bool,
    enforcement: Enforcement,
    /// The machine's name: modes, counts and the switch are those of one process.
    host: String,
    uptime_ms: u64,
    /// All decisions since the start, including those of policies that no longer exist.
    decisions: Counts,
    refusals: Counts,
    /// What policies in shadow mode would have refused.
    shadow_refusals: Counts,
    history: HistoryState,
    store: StoreState,
    /// `null` if the limits come from no file, or if the limiter does not have this observer.
    config: Option<ConfigState>,
    policies: Vec<PolicyState>,
    /// Absent if nobody keeps the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    top_denied: Option<Vec<Denied>>,
    /// The clients that are blocked for a time.
    blocks: Vec<BlockState>,
    /// Whether they can be blocked by their addresses.
    blocks_addresses: bool,
    /// What was changed through the router, the latest first.
    changes: Vec<Change>,
}

/// The last hour by the minute, up to the current one.
#[derive(serde::Serialize)]
struct HistoryState {
    /// When the first minute began.
    from_ms: u64,
    allowed: Vec<u64>,
    denied: Vec<u64>,
    /// What policies in shadow mode would have denied or refused.
    shadow_denied: Vec<u64>,
    /// Decided without an answer from the store.
    failed: Vec<u64>,
    refused: Vec<u64>,
}

#[derive(serde::Serialize)]
struct Denied {
    policy: String,
    subject: String,
    /// The subject in clear, if the policy shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    shown_subject: Option<String>,
    denials: u64,
    /// By how much that may be too high.
    overestimate: u64,
    mode: &'static str,
}

#[derive(serde::Serialize)]
struct StoreState {
    /// Without credentials.
    name: String,
    breaker: &'static str,
    /// `null` while the breaker is closed.
    outage: Option<OutageState>,
    /// Questions to the store, and the time of all of them together.
    answers: u64,
    failures: u64,
    answering_us: u64,
    last_failure: Option<Failure>,
}

#[derive(serde::Serialize)]
struct OutageState {
    duration_ms: u64,
    /// How many requests have passed uncounted meanwhile.
    uncounted: u64,
}

#[derive(serde::Serialize)]
struct Failure {
    reason: String,
    ago_ms: u64,
}

/// The configuration file, as it was last read.
#[derive(serde::Serialize)]
struct ConfigState {
    read_ago_ms: u64,
    /// Why it was refused.
    error: Option<String>,
}

#[derive(serde::Serialize)]
struct PolicyState {
    name: String,
    algorithm: &'static str,
    limit: String,
    mode: &'static str,
    /// The share of the subjects for whom it is enforced in that mode, as `5%`.
    enforced_for: String,
    /// What its keys are made of: as words, and as the parts of a subject.
    key: String,
    subject: Value,
    /// Empty for all requests.
    routes: Vec<String>,
    on_store_failure: String,
    penalty: Option<String>,
    group: Option<String>,
    prefetch: Option<String>,
    settle: Option<String>,
    decisions: Counts,
    /// How many of them were taken from a batch of permits.
    prefetched: u64,
}

/// Numbers by their names.
pub(super) struct Counts(Vec<(&'static str, u64)>);

impl State {
    pub(super) fn of(api: &Api) -> Self {
        let (limiter, counters) = (&api.limiter, &*api.counters);
        let (answers, failures) = counters.answers();
        let last_failure = counters.last_failure().map(|(kind, ago)| Failure {
            reason: kind.to_string(),
            ago_ms: millis(ago),
        });
        let config = counters.last_config_read().map(|read| ConfigState {
            read_ago_ms: millis(read.at.elapsed()),
            error: read.error,
        });
        let policies = limiter.summaries();
        Self {
            on: limiter.is_on(),
            enforcement: Enforcement::of(limiter, &policies),
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            uptime_ms: millis(counters.uptime()),
            decisions: Counts(counters.total.each()),
            refusals: Counts(counters.refusals.each()),
            shadow_refusals: Counts(counters.shadow_refusals.each()),
            history: HistoryState::of(counters.minutes()),
            store: StoreState {
                name: limiter.store_name().to_owned(),
                outage: limiter.outage().map(|outage| OutageState {
                    duration_ms: millis(outage.duration),
                    uncounted: outage.uncounted,
                }),
                breaker: limiter.breaker_state().as_str(),
                answers,
                failures,
                answering_us: counters.answering_us(),
                last_failure,
            },
            config,
            policies: policies
                .into_iter()
                .map(|summary| PolicyState::of(summary, counters))
                .collect(),
            top_denied: api.top.as_ref().map(Denied::most),
            blocks: BlockState::all(api),
            blocks_addresses: api.client_address.is_some(),
            changes: api.audit.list(),
        }
    }
}

impl HistoryState {
    fn of(minutes: Minutes) -> Self {
        let [allowed, denied, shadow_denied, failed, refused] = minutes.each;
        Self {
            from_ms: minutes.from_ms,
            allowed,
            denied,
            shadow_denied,
            failed,
            refused,
        }
    }
}

impl Denied {
    /// Ordered by how often each was denied at least, the most first. If more subjects are denied
    /// than the list has room for, the last one may have been denied as often as any in it, or only
    /// once.
    fn most(top: &TopDenied) -> Vec<Self> {
        let mut list = top.list();
        list.sort_by_key(|entry| Reverse(entry.denials - entry.overestimate));
        list.iter().take(MOST_DENIED).map(Self::of).collect()
    }

    fn of(entry: &TopEntry) -> Self {
        Self {
            policy: entry.policy.to_string(),
            subject: entry.subject.to_string(),
            shown_subject: entry
                .shown_subject
                .as_deref()
                .map(|shown| OneLine(shown).to_string()),
            denials: entry.denials,
            overestimate: entry.overestimate,
            mode: entry.mode.as_str(),
        }
    }
}

impl PolicyState {
    fn of(summary: PolicySummary, counters: &Counters) -> Self {
        let (decisions, prefetched) = counters.of(&summary.name);
        Self {
            name: summary.name,
            algorithm: summary.algorithm,
            limit: summary.limit,
            mode: summary.mode.as_str(),
            enforced_for: summary.enforced_for.to_string(),
            key: summary.key.to_string(),
            subject: subject::template(&summary.key),
            routes: summary.routes,
            on_store_failure: summary.on_store_failure.to_string(),
            penalty: summary.penalty,
            group: summary.group,
            prefetch: summary.prefetch,
            settle: summary.settle,
            decisions: Counts(decisions),
            prefetched,
        }
    }
}

impl Serialize for Counts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, count) in &self.0 {
            map.serialize_entry(name, count)?;
        }
        map.end()
    }
}
