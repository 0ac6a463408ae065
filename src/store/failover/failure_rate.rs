//! Which answers count as failures, and how many open the circuit.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{StoreError, StoreErrorKind};
use crate::sharded::PerThread;
use crate::time::{Micros, SECOND};

/// This many failures in a row open the circuit.
pub(super) const MOST_IN_A_ROW: u32 = 5;
/// So does a window with at least this many answers of which half are failures.
const FEWEST_ANSWERS: u64 = 20;
/// Windows begin at whole multiples of this length.
const WINDOW: Micros = Micros::new(SECOND.as_micros() as u64);

/// What an answer shows about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Works,
    Fails(StoreErrorKind),
    /// It shows something about this process only.
    Unknown,
}

impl Health {
    pub(super) fn of_failure(failure: &StoreError) -> Self {
        match failure.is_of_this_process() {
            true => Self::Unknown,
            false => Self::of(failure.kind()),
        }
    }

    pub(super) fn of(kind: StoreErrorKind) -> Self {
        match kind {
            // The server works. Only this key holds another type, or there is no memory for a new
            // one.
            StoreErrorKind::CorruptValue | StoreErrorKind::Full => Self::Works,
            // The store was not asked. The questions in flight will show how it is.
            StoreErrorKind::Overloaded | StoreErrorKind::BreakerOpen => Self::Unknown,
            // `BadReply` too: a proxy that has lost its server may reply anything.
            StoreErrorKind::Configuration
            | StoreErrorKind::Unreachable
            | StoreErrorKind::Interrupted
            | StoreErrorKind::TimedOut
            | StoreErrorKind::Busy
            | StoreErrorKind::BadReply => Self::Fails(kind),
        }
    }
}

/// Whether a failure of this kind is an answer, rather than the lack of one.
pub(super) fn is_answered(failure: StoreErrorKind) -> bool {
    !matches!(
        failure,
        StoreErrorKind::Unreachable | StoreErrorKind::Interrupted | StoreErrorKind::TimedOut
    )
}

/// Counts successful answers while the circuit is closed. Each thread counts its own, without a lock,
/// as nearly all answers come through here; they are looked at when one fails.
#[derive(Default)]
pub(super) struct Successes(PerThread<SuccessesHere>);

#[derive(Default)]
struct SuccessesHere {
    /// When the last one came; zero before the first.
    last_us: AtomicU64,
    /// How many came in the window of the last one.
    in_window: AtomicU64,
}

/// The last success, and how many there were in its window. Changes with every success.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LastSuccess {
    pub(super) at: Option<Micros>,
    in_window: u64,
}

impl Successes {
    pub(super) fn add(&self, now: Micros) {
        let here = self.0.here();
        let last = Micros::new(here.last_us.load(Ordering::Relaxed));
        if window_of(last) != window_of(now) {
            here.in_window.store(0, Ordering::Relaxed);
        }
        here.in_window.fetch_add(1, Ordering::Relaxed);
        here.last_us.store(now.get(), Ordering::Relaxed);
    }

    pub(super) fn last(&self) -> LastSuccess {
        let of = |here: &SuccessesHere| Micros::new(here.last_us.load(Ordering::Relaxed));
        let last = self.0.each().map(of).max().unwrap_or_default();
        let in_its_window = self
            .0
            .each()
            .filter(|here| window_of(of(here)) == window_of(last));
        LastSuccess {
            at: (!last.is_zero()).then_some(last),
            in_window: in_its_window
                .map(|here| here.in_window.load(Ordering::Relaxed))
                .sum(),
        }
    }
}

/// The failures since the circuit closed.
#[derive(Default)]
pub(super) struct FailureRate {
    in_a_row: u32,
    /// The last success before the last failure: another one ends the row.
    success: LastSuccess,
    window: u64,
    failures_in_window: u64,
    /// When the first question missed in the latest standstill was noticed.
    standstill: Option<Micros>,
}

impl FailureRate {
    /// Counts a failure. Returns whether there are too many.
    pub(super) fn is_too_high_after(
        &mut self,
        failure: Failure,
        success: LastSuccess,
        now: Micros,
    ) -> bool {
        if self.success != success {
            self.success = success;
            self.in_a_row = 0;
        }
        if failure == Failure::OfStore {
            self.in_a_row += 1;
        }
        let window = window_of(now);
        if self.window != window {
            self.window = window;
            self.failures_in_window = 0;
        }
        self.failures_in_window += 1;
        let is_recent = success.at.is_some_and(|at| window_of(at) == window);
        let successes = if is_recent { success.in_window } else { 0 };
        let is_half = self.failures_in_window >= successes;
        let is_enough = self.failures_in_window + successes >= FEWEST_ANSWERS;
        self.in_a_row >= MOST_IN_A_ROW || (is_enough && is_half)
    }

    /// Whether this is the first question noticed among those whose deadline passed in one
    /// standstill of this process. All of them were asked before the first was noticed.
    pub(super) fn begins_standstill(&mut self, asked: Micros, now: Micros) -> bool {
        let is_first = self.standstill.is_none_or(|first| asked >= first);
        if is_first {
            self.standstill = Some(now);
        }
        is_first
    }
}

/// What has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    OfStore,
    /// One of several servers, while others answer. However many in a row, others may still answer.
    OfPart,
}

fn window_of(at: Micros) -> u64 {
    at.get() / WINDOW.get()
}
