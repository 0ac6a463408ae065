//! `History`: what was decided in each minute of the last hour.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::time::{Clock, MINUTE, Micros};

/// How many minutes are kept, with the one that is not over yet.
const KEPT: usize = 60;

/// How many outcomes are told apart.
pub(super) const OUTCOMES: usize = 5;

/// All decisions so far, by their outcome.
pub(super) type Totals = [u64; OUTCOMES];

/// What was decided in each minute of the last hour, in 3 KB however much that was: a minute is known
/// by the totals with which it began.
pub(super) struct History {
    clock: Arc<dyn Clock>,
    first: u64,
    /// The minute of the last of the starts, so that a decision takes no lock.
    latest: AtomicU64,
    starts: Mutex<VecDeque<Start>>,
}

/// The totals at the start of a minute. One in which nothing was decided has none.
struct Start {
    minute: u64,
    totals: Totals,
}

/// Decisions by outcome, and for each a number for each minute, the last of which is not over yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Minutes {
    /// When the first of them began, in milliseconds since the Unix epoch.
    pub(super) from_ms: u64,
    pub(super) each: [Vec<u64>; OUTCOMES],
}

impl History {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let first = minute(&*clock);
        let mut starts = VecDeque::with_capacity(KEPT + 1);
        starts.push_back(Start {
            minute: first,
            totals: Totals::default(),
        });
        Self {
            clock,
            first,
            latest: AtomicU64::new(first),
            starts: Mutex::new(starts),
        }
    }

    /// To be called before each count: notes the totals if a minute begins with it.
    pub(super) fn advance(&self, totals: impl FnOnce() -> Totals) {
        let minute = minute(&*self.clock);
        // A clock that steps back makes the minute longer.
        if minute > self.latest.load(Ordering::Relaxed) {
            self.begin(minute, totals());
        }
    }

    #[cold]
    fn begin(&self, minute: u64, totals: Totals) {
        let mut starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have been first.
        if starts.back().is_none_or(|last| last.minute < minute) {
            starts.push_back(Start { minute, totals });
            if starts.len() > KEPT {
                starts.pop_front();
            }
            self.latest.store(minute, Ordering::Relaxed);
        }
    }

    /// The last hour, or what has passed of it since the start, with these totals now.
    pub(super) fn minutes(&self, totals: Totals) -> Minutes {
        let starts = self.starts.lock().unwrap_or_else(PoisonError::into_inner);
        let now = minute(&*self.clock).max(self.latest.load(Ordering::Relaxed));
        let first = self.first.max((now + 1).saturating_sub(KEPT as u64));
        let mut each = [const { Vec::new() }; OUTCOMES];
        for counts in &mut each {
            counts.resize((now - first + 1) as usize, 0);
        }
        // What was decided from one start to the next was decided in the minute of the first.
        let ends = starts.iter().skip(1).map(|start| start.totals);
        for (start, end) in starts.iter().zip(ends.chain([totals])) {
            let Some(place) = start.minute.checked_sub(first) else {
                continue;
            };
            for (counts, (end, start)) in each.iter_mut().zip(end.iter().zip(start.totals)) {
                counts[place as usize] = end.saturating_sub(start);
            }
        }
        let from_ms = Micros::from(MINUTE).get() / 1_000 * first;
        Minutes { from_ms, each }
    }
}

fn minute(clock: &dyn Clock) -> u64 {
    clock.now().get() / Micros::from(MINUTE).get()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{HOUR, ManualClock, SECOND};

    /// A history, and the number of allowed decisions.
    struct Counted {
        clock: ManualClock,
        history: History,
        allowed: u64,
    }

    impl Counted {
        /// From the middle of a minute on.
        fn new() -> Self {
            let clock = ManualClock::new();
            clock.advance(30 * SECOND);
            Self {
                history: History::new(Arc::new(clock.clone())),
                clock,
                allowed: 0,
            }
        }

        fn count(&mut self, times: u64) {
            self.history.advance(|| [self.allowed, 0, 0, 0, 0]);
            self.allowed += times;
        }

        fn allowed(&self) -> Vec<u64> {
            let [allowed, others @ ..] = self.history.minutes([self.allowed, 0, 0, 0, 0]).each;
            assert!(others.iter().flatten().all(|count| *count == 0));
            allowed
        }
    }

    #[test]
    fn each_minute_has_its_own_count_and_empty_ones_have_none() {
        let mut counted = Counted::new();
        assert_eq!(counted.allowed(), [0]);
        counted.count(3);
        counted.clock.advance(29 * SECOND);
        counted.count(1);
        assert_eq!(counted.allowed(), [4]);
        counted.clock.advance(SECOND);
        // Nothing was decided since the minute began.
        assert_eq!(counted.allowed(), [4, 0]);
        counted.count(5);
        counted.clock.advance(3 * MINUTE);
        counted.count(7);
        assert_eq!(counted.allowed(), [4, 5, 0, 0, 7]);
    }

    #[test]
    fn an_hour_is_kept_however_long_the_process_runs() {
        let mut counted = Counted::new();
        let started_ms = counted.history.minutes(Totals::default()).from_ms;
        for minute in 0..200 {
            counted.count(minute);
            counted.clock.advance(MINUTE);
        }
        counted.count(200);
        let last: Vec<_> = (141..=200).collect();
        assert_eq!(counted.allowed(), last);
        let from_ms = counted.history.minutes(Totals::default()).from_ms;
        assert_eq!(from_ms - started_ms, 141 * 60_000);
        assert!(counted.history.starts.lock().unwrap().len() <= KEPT);
        counted.clock.advance(2 * HOUR);
        assert_eq!(counted.allowed(), [0; KEPT]);
    }

    #[test]
    fn a_clock_that_steps_back_loses_no_decision() {
        let mut counted = Counted::new();
        counted.clock.advance(MINUTE);
        counted.count(1);
        counted.clock.step_back(10 * MINUTE);
        counted.count(2);
        assert_eq!(counted.allowed(), [0, 3]);
    }
}
