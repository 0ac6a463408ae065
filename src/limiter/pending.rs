//! `PendingEvaluation`: an evaluation that waits for the store.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use super::conclude::Conclusion;
use super::evaluate::Evaluation;
use super::{Limiter, answered};
use crate::decision::Decision;
use crate::trace::Span;

/// An evaluation that takes a round trip to the store. Boxed, so that decisions from memory need no
/// room for it.
pub(crate) struct PendingEvaluation(Option<Box<Pending>>);

struct Pending {
    limiter: Limiter,
    evaluation: Evaluation,
    span: Span,
    /// Whether the store may have been called.
    is_sent: bool,
}

impl Limiter {
    // Out of line: a store that answers from memory never needs it.
    #[inline(never)]
    pub(crate) fn pending(&self, evaluation: Evaluation) -> PendingEvaluation {
        PendingEvaluation(Some(Box::new(Pending {
            limiter: self.clone(),
            span: Span::asking(evaluation.applied.each.len()),
            evaluation: evaluation.kept(),
            is_sent: false,
        })))
    }
}

impl PendingEvaluation {
    /// Ready once the store has answered.
    pub(crate) fn poll_answered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.get().poll_answered(cx)
    }

    /// The decision about one key.
    pub(super) async fn decision(mut self) -> Decision {
        self.answered().await;
        self.conclude().decision()
    }

    /// Waits until the store has answered.
    pub(super) async fn answered(&mut self) {
        poll_fn(|cx| self.poll_answered(cx)).await;
    }

    /// The decisions. Call it once, after the answer.
    pub(crate) fn conclude(&mut self) -> Conclusion<'_> {
        self.get().conclude()
    }

    fn get(&mut self) -> &mut Pending {
        self.0.as_mut().expect("it is there until it is dropped")
    }
}

impl Pending {
    fn poll_answered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(in_flight) = &mut self.evaluation.in_flight {
            self.is_sent = true;
            let answer = ready!(self.span.in_scope(|| in_flight.as_mut().poll(cx)));
            self.evaluation.decisions = answered(answer);
            self.evaluation.in_flight = None;
        }
        Poll::Ready(())
    }

    fn conclude(&mut self) -> Conclusion<'_> {
        let (limiter, evaluation) = (&self.limiter, &mut self.evaluation);
        let conclusion = self.span.in_scope(|| evaluation.conclude(limiter));
        self.span.answered(conclusion.is_admitted());
        conclusion
    }
}

impl Drop for PendingEvaluation {
    /// The answer is needed to know what to refund, so a task waits for it.
    fn drop(&mut self) {
        let Some(mut pending) = self.0.take() else {
            return;
        };
        let Some(in_flight) = &pending.evaluation.in_flight else {
            return;
        };
        if !pending.is_sent {
            if let Some(charges) = pending.evaluation.charges.take() {
                charges.was_not_asked();
            }
            return;
        }
        let charges = pending.evaluation.charges.as_ref();
        let runtime = charges.and_then(|charges| charges.runtime_to_go_on());
        if let Some(runtime) = runtime.filter(|_| !in_flight.is_over()) {
            let limiter = pending.limiter.clone();
            limiter.spawn_in_flight(&runtime, async move {
                poll_fn(|cx| pending.poll_answered(cx)).await;
                if let Some(charges) = pending.conclude().take_charges() {
                    charges.abandon();
                }
            });
        }
    }
}
