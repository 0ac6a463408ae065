//! `Counts`: how many failures are too many.

use std::time::Duration;

use tokio::time::Instant;

/// This many failures in a row open the circuit.
pub(super) const MOST_IN_A_ROW: u32 = 5;
/// So does a [`WINDOW`] with at least this many answers of which half are failures.
const FEWEST_ANSWERS: u32 = 20;
pub(super) const WINDOW: Duration = Duration::from_secs(1);

/// The outcomes of questions since the circuit closed.
#[derive(Default)]
pub(super) struct Counts {
    failures_in_a_row: u32,
    /// The start of the current window: the first answer after the previous window.
    window: Option<Instant>,
    answers: u32,
    failures: u32,
    /// When the first question missed in the latest standstill was noticed.
    standstill: Option<Instant>,
}

impl Counts {
    pub(super) fn count(&mut self, is_failure: bool, now: Instant) {
        self.count_in_window(is_failure, now);
        if is_failure {
            self.failures_in_a_row += 1;
        } else {
            self.failures_in_a_row = 0;
        }
    }

    /// Counts in the window only, without regard to failures in a row.
    pub(super) fn count_in_window(&mut self, is_failure: bool, now: Instant) {
        if self.window.is_none_or(|start| now >= start + WINDOW) {
            self.window = Some(now);
            (self.answers, self.failures) = (0, 0);
        }
        self.answers = self.answers.saturating_add(1);
        if is_failure {
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// Until when a success only adds to the current window and ends no failures in a row.
    pub(super) fn quiet_until(&self) -> Option<Instant> {
        let start = self.window.filter(|_| self.failures_in_a_row == 0)?;
        Some(start + WINDOW)
    }

    /// Adds successes in the current window that ended no failures in a row.
    pub(super) fn count_quiet(&mut self, answers: u64) {
        let answers = u32::try_from(answers).unwrap_or(u32::MAX);
        self.answers = self.answers.saturating_add(answers);
    }

    /// Whether this is the first question noticed among those whose deadline passed in one
    /// standstill of this process. All of them were asked before the first was noticed.
    pub(super) fn begins_standstill(&mut self, asked: Instant, now: Instant) -> bool {
        let is_first = self.standstill.is_none_or(|first| asked >= first);
        if is_first {
            self.standstill = Some(now);
        }
        is_first
    }

    pub(super) fn show_an_outage(&self) -> bool {
        let half = self.failures >= self.answers.div_ceil(2);
        self.failures_in_a_row >= MOST_IN_A_ROW || (self.answers >= FEWEST_ANSWERS && half)
    }
}
