//! `State`: what is remembered of one key.

use super::arithmetic::Arithmetic;
use super::{
    concurrency, debt, fixed_window, penalty, sliding_counter, sliding_log, sliding_window,
};
use crate::time::Micros;

/// What is remembered of one key. [`Algorithm::untouched`](super::Algorithm::untouched) makes the
/// first.
#[derive(Clone, Debug)]
pub struct State(pub(super) Remembered);

#[derive(Clone, Debug)]
pub(super) enum Remembered {
    Debt(debt::State),
    FixedWindow(fixed_window::State),
    SlidingLog(Box<sliding_log::State>),
    SlidingWindow(Box<sliding_window::State>),
    SlidingCounter(sliding_counter::State),
    Concurrency(Box<concurrency::State>),
    Penalty(Box<penalty::State>),
}

impl State {
    /// From this instant on the state is equal to the untouched one and may be forgotten.
    pub fn expires_at(&self) -> Micros {
        match &self.0 {
            Remembered::Debt(state) => debt::Debt::expires_at(state),
            Remembered::FixedWindow(state) => fixed_window::FixedWindow::expires_at(state),
            Remembered::SlidingLog(state) => sliding_log::SlidingLog::expires_at(state),
            Remembered::SlidingWindow(state) => sliding_window::SlidingWindow::expires_at(state),
            Remembered::SlidingCounter(state) => sliding_counter::SlidingCounter::expires_at(state),
            Remembered::Concurrency(state) => concurrency::Concurrency::expires_at(state),
            Remembered::Penalty(state) => penalty::PenaltyBox::expires_at(state),
        }
    }
}
