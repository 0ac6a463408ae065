//! `Counters`: the events that an operator observed, as numbers since the start.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::history::{History, Minutes, Totals};
use crate::error::StoreErrorKind;
use crate::mode::Mode;
use crate::observer::{DecisionResult, RefusalReason};
use crate::observers::PerPolicy;
use crate::time::{Clock, Micros};

/// The events that an operator observed, as numbers since the start.
pub(super) struct Counters {
    clock: Arc<dyn Clock>,
    since: Micros,
    /// All decisions, including those of policies that no longer exist.
    pub(super) total: ByResult,
    policies: PerPolicy<OfPolicy>,
    pub(super) refusals: ByReason,
    /// What policies in shadow mode would have refused.
    pub(super) shadow_refusals: ByReason,
    history: History,
    answers: AtomicU64,
    failures: AtomicU64,
    answering_us: AtomicU64,
    last_failure: Mutex<Option<(StoreErrorKind, Instant)>>,
    last_config_read: Mutex<Option<ConfigRead>>,
}

/// When the configuration file was last read, and why it was refused if it was.
#[derive(Clone)]
pub(super) struct ConfigRead {
    pub(super) at: Instant,
    pub(super) error: Option<String>,
}

/// The decisions of one policy, and how many of them were taken from a batch of permits.
#[derive(Default)]
struct OfPolicy {
    results: ByResult,
    prefetched: AtomicU64,
}

/// Decisions by their result, in the order of [`DecisionResult::EACH`].
#[derive(Default)]
pub(super) struct ByResult([AtomicU64; DecisionResult::EACH.len()]);

impl ByResult {
    fn count(&self, result: DecisionResult) {
        self.0[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn each(&self) -> Vec<(&'static str, u64)> {
        let names = DecisionResult::EACH.map(DecisionResult::as_str);
        names.into_iter().zip(self.0.iter().map(read)).collect()
    }

    fn sum(&self, results: &[DecisionResult]) -> u64 {
        let each = results.iter();
        each.map(|result| read(&self.0[*result as usize])).sum()
    }
}

/// Refusals by their reason, in the order of [`RefusalReason::EACH`].
#[derive(Default)]
pub(super) struct ByReason([AtomicU64; RefusalReason::EACH.len()]);

impl ByReason {
    fn count(&self, reason: RefusalReason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn each(&self) -> Vec<(&'static str, u64)> {
        let names = RefusalReason::EACH.map(RefusalReason::as_str);
        names.into_iter().zip(self.0.iter().map(read)).collect()
    }

    fn sum(&self) -> u64 {
        self.0.iter().map(read).sum()
    }
}

impl Counters {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            since: clock.now(),
            total: ByResult::default(),
            policies: PerPolicy::new(),
            refusals: ByReason::default(),
            shadow_refusals: ByReason::default(),
            history: History::new(Arc::clone(&clock)),
            clock,
            answers: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            answering_us: AtomicU64::new(0),
            last_failure: Mutex::default(),
            last_config_read: Mutex::default(),
        }
    }

    pub(super) fn count(&self, policy: &str, result: DecisionResult, is_prefetched: bool) {
        self.history.advance(|| self.outcomes());
        self.total.count(result);
        self.policies.with(policy, OfPolicy::default, |policy| {
            policy.results.count(result);
            if is_prefetched {
                policy.prefetched.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    pub(super) fn count_refusal(&self, mode: Mode, reason: RefusalReason) {
        self.history.advance(|| self.outcomes());
        match mode {
            Mode::Shadow => self.shadow_refusals.count(reason),
            Mode::Enforce | Mode::Off => self.refusals.count(reason),
        }
    }

    /// What was decided in each minute of the last hour, in the order of [`outcomes`](Self::outcomes).
    pub(super) fn minutes(&self) -> Minutes {
        self.history.minutes(self.outcomes())
    }

    /// All decisions and refusals: allowed, denied, what a policy in shadow mode would have denied or
    /// refused, decided without an answer from the store, refused.
    fn outcomes(&self) -> Totals {
        use DecisionResult as R;
        [
            self.total.sum(&[R::Allowed, R::NearLimit, R::Waited]),
            self.total.sum(&[R::Denied, R::DeniedFromMemory]),
            self.total.sum(&[R::ShadowDenied]) + self.shadow_refusals.sum(),
            self.total.sum(&[R::FailedOpen, R::FailedClosed]),
            self.refusals.sum(),
        ]
    }

    pub(super) fn count_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        let elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.answering_us.fetch_add(elapsed_us, Ordering::Relaxed);
        if let Some(kind) = failure {
            self.failures.fetch_add(1, Ordering::Relaxed);
            // Held for a few instructions, and only while something is wrong.
            *lock(&self.last_failure) = Some((kind, Instant::now()));
        }
    }

    pub(super) fn uptime(&self) -> Duration {
        self.clock.now().saturating_sub(self.since).to_duration()
    }

    /// For one policy: all decisions, and how many of them were taken from a batch of permits.
    pub(super) fn of(&self, policy: &str) -> (Vec<(&'static str, u64)>, u64) {
        self.policies.with(policy, OfPolicy::default, |policy| {
            (policy.results.each(), read(&policy.prefetched))
        })
    }

    /// How many questions the store has answered or failed to answer, and how many failed.
    pub(super) fn answers(&self) -> (u64, u64) {
        (read(&self.answers), read(&self.failures))
    }

    /// The time of all of them together.
    pub(super) fn answering_us(&self) -> u64 {
        read(&self.answering_us)
    }

    /// How the store last failed, and how long ago.
    pub(super) fn last_failure(&self) -> Option<(StoreErrorKind, Duration)> {
        let last = *lock(&self.last_failure);
        last.map(|(kind, when)| (kind, when.elapsed()))
    }

    pub(super) fn note_config_read(&self, error: Option<String>) {
        let at = Instant::now();
        *lock(&self.last_config_read) = Some(ConfigRead { at, error });
    }

    /// `None` if the limiter has no file.
    pub(super) fn last_config_read(&self) -> Option<ConfigRead> {
        lock(&self.last_config_read).clone()
    }
}

/// No step under these locks leaves anything half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(number: &AtomicU64) -> u64 {
    number.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SystemClock;

    fn new_counters() -> Counters {
        Counters::new(Arc::new(SystemClock))
    }

    fn counted(mut all: Vec<(&'static str, u64)>) -> Vec<(&'static str, u64)> {
        all.retain(|(_, count)| *count > 0);
        all
    }

    #[test]
    fn every_result_and_every_reason_is_counted_under_its_own_name() {
        for result in DecisionResult::EACH {
            let counters = new_counters();
            counters.count("api", result, false);
            assert_eq!(counted(counters.total.each()), [(result.as_str(), 1)]);
            assert_eq!(counted(counters.of("api").0), [(result.as_str(), 1)]);
            assert_eq!(counted(counters.of("other").0), []);
        }
        for reason in RefusalReason::EACH {
            let counters = new_counters();
            counters.count_refusal(Mode::Enforce, reason);
            assert_eq!(counted(counters.refusals.each()), [(reason.as_str(), 1)]);
            assert_eq!(counted(counters.shadow_refusals.each()), []);
            let counters = new_counters();
            counters.count_refusal(Mode::Shadow, reason);
            assert_eq!(counted(counters.refusals.each()), []);
            assert_eq!(
                counted(counters.shadow_refusals.each()),
                [(reason.as_str(), 1)]
            );
        }
    }

    #[test]
    fn decisions_from_batches_are_counted_besides_for_each_policy() {
        let counters = new_counters();
        for is_prefetched in [true, false, true] {
            counters.count("hot", DecisionResult::Allowed, is_prefetched);
            counters.count("api", DecisionResult::Allowed, false);
        }
        assert_eq!(counted(counters.total.each()), [("allowed", 6)]);
        for (policy, prefetched) in [("hot", 2), ("api", 0), ("other", 0)] {
            assert_eq!(counters.of(policy).1, prefetched, "{policy}");
        }
    }

    #[test]
    fn the_last_failure_stays_when_the_store_is_back() {
        let counters = new_counters();
        assert!(counters.last_failure().is_none());
        let ms = Duration::from_millis(1);
        counters.count_answer(ms, Some(StoreErrorKind::Unreachable));
        counters.count_answer(ms, Some(StoreErrorKind::TimedOut));
        counters.count_answer(ms, None);
        let (kind, _) = counters.last_failure().unwrap();
        assert_eq!(kind, StoreErrorKind::TimedOut);
        assert_eq!(counters.answers(), (3, 2));
        assert_eq!(counters.answering_us(), 3_000);
    }
}
