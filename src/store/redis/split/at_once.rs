//! `AtOnce`: parts that are asked concurrently.

use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::part::{Answer, SlotPart};
use crate::error::{StoreError, StoreErrorKind};
use crate::store::redis::batch::Batcher;
use crate::task::poll_once;

/// Parts that are asked concurrently, each by a task of its own. When dropped, it gives up those
/// that have not answered: the question is over, and nodes are found to be silent by what is given
/// up.
pub(super) struct AtOnce {
    batcher: Batcher,
    /// The parts without an answer so far.
    parts: Vec<Option<SlotPart>>,
    in_flight_work: JoinSet<(usize, Answer)>,
}

impl AtOnce {
    pub(super) fn new(batcher: &Batcher) -> Self {
        Self {
            batcher: batcher.clone(),
            parts: Vec::new(),
            in_flight_work: JoinSet::new(),
        }
    }

    /// Asks a part, immediately.
    pub(super) fn ask<F>(&mut self, part: SlotPart, ask: impl FnOnce(SlotPart, Batcher) -> F)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let position = self.parts.len();
        let answer = poll_once(ask(part.clone(), self.batcher.clone()));
        self.parts.push(Some(part));
        self.in_flight_work
            .spawn(async move { (position, answer.await) });
    }

    /// Reports each answer as it comes, and finally the parts without an answer by then.
    pub(super) async fn heard_until(
        mut self,
        end: Instant,
        mut tell: impl FnMut(SlotPart, Answer),
    ) {
        let all = async {
            while let Some(one) = self.in_flight_work.join_next().await {
                let Ok((position, answer)) = one else {
                    continue;
                };
                if let Some(part) = self.parts[position].take() {
                    tell(part, answer);
                }
            }
        };
        let why = match timeout_at(end, all).await {
            // Its task is gone, as its runtime is shutting down.
            Ok(()) => StoreErrorKind::Interrupted,
            Err(_elapsed) => StoreErrorKind::TimedOut,
        };
        for part in self.parts.into_iter().flatten() {
            tell(part, Err(StoreError::new(why)));
        }
    }
}
