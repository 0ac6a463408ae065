//! An observer that records its events.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tower_throttle::{BreakerState, Observer, StoreErrorKind};

#[derive(Clone, Default)]
pub(crate) struct Notes(Arc<Mutex<Observed>>);

#[derive(Default)]
struct Observed {
    states: Vec<BreakerState>,
    answers: Vec<(Duration, Option<StoreErrorKind>)>,
}

impl Notes {
    pub(crate) fn states(&self) -> Vec<BreakerState> {
        self.0.lock().unwrap().states.clone()
    }

    pub(crate) fn answers(&self) -> Vec<(Duration, Option<StoreErrorKind>)> {
        self.0.lock().unwrap().answers.clone()
    }
}

impl Observer for Notes {
    fn on_store_answer(&self, elapsed: Duration, failure: Option<StoreErrorKind>) {
        self.0.lock().unwrap().answers.push((elapsed, failure));
    }

    fn on_breaker(&self, state: BreakerState) {
        self.0.lock().unwrap().states.push(state);
    }
}
