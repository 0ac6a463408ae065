//! `Held`: permits that are given back when it is dropped.

use std::fmt;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::time::sleep;

use super::delay::Delay;
use super::reserving::Reserving;
use super::taken::Taken;
use crate::decision::Decision;
use crate::time::SECOND;

/// The answer to [`Limiter::hold`](crate::Limiter::hold), with the permits that it has taken, if
/// any.
///
/// Dropping it gives back permits that are held while something runs, so keep it in a variable for
/// as long; see [`Limiter::flush`](crate::Limiter::flush) for what to do before a process ends.
/// Permits that come back with time stay taken.
#[must_use = "dropping it gives the permits back"]
pub struct Held {
    decision: Decision,
    taken: Taken,
}

impl Held {
    pub(super) fn new(decision: Decision, taken: Taken) -> Self {
        Self { decision, taken }
    }

    /// Whether the permits were granted.
    pub fn is_allowed(&self) -> bool {
        self.decision.is_allowed()
    }

    /// The decision.
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// Whether others may have the permits by now, because the [lease](crate::Limit::lease) was not
    /// renewed in time: this process stood still, or could not reach the store, for longer than it
    /// lives. Once so, it stays so. A long job that must not run twice looks before each step, and
    /// ends.
    ///
    /// ```
    /// use tower_throttle::{CheckError, Limiter};
    ///
    /// async fn export(limiter: &Limiter, pages: &[&str]) -> Result<(), CheckError> {
    ///     let held = limiter.hold("exports", "everybody").await?;
    ///     for page in pages {
    ///         if !held.is_allowed() || held.has_lapsed() {
    ///             break;
    ///         }
    ///         println!("exporting {page}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// Only an answer of the store tells that a lease lives: one that this process granted by itself
    /// ([`FailureMode::Local`](crate::FailureMode::Local)) has lapsed after its first life. It is not
    /// known whether the store has lost its data, was told to forget the key, or had its clock set
    /// ahead. Without a lease there is nothing that could lapse, as under another limit or for a
    /// request that passed for lack of an answer: `false`.
    pub fn has_lapsed(&self) -> bool {
        self.taken.has_lapsed()
    }

    /// Waits until the permits are available, and then holds them; if dropped before, gives them
    /// back. Permits that this process granted for lack of an answer are asked for again once the
    /// store answers.
    pub(super) async fn once_there(mut self, ask_anew: impl Fn() -> Reserving + Sync) -> Self {
        while let Some(anew) = self.until_there(&ask_anew).await {
            self = anew;
        }
        self
    }

    /// Waits until the permits are available, or until the store has decided again. A small share
    /// may take so long that callers who come after the store's return would overtake this one.
    async fn until_there(&self, ask_anew: &(impl Fn() -> Reserving + Sync)) -> Option<Self> {
        if !self.decision.is_allowed() || self.decision.delay.is_zero() {
            return None;
        }
        let mut there = self.taken.limiter().delay(self.decision.delay());
        if !self.decision.is_local() {
            there.await;
            return None;
        }
        while self.does_store_answer_before(&mut there).await {
            let anew = ask_anew().await;
            // A full store answers looks but fails takes. The place in the share's queue is kept
            // until the store has decided.
            if anew.decision.store_failure().is_none() {
                return Some(anew);
            }
        }
        None
    }

    async fn does_store_answer_before(&self, there: &mut Delay) -> bool {
        let mut answered = pin!(self.until_store_answers());
        poll_fn(|cx| match there.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(false),
            Poll::Pending => answered.as_mut().poll(cx).map(|()| true),
        })
        .await
    }

    /// Checks every second whether the store is back. Perhaps all callers wait here, so that nobody
    /// else would find out; and part of a store can come back without a change of the circuit
    /// breaker.
    async fn until_store_answers(&self) {
        loop {
            sleep(SECOND).await;
            if self.taken.does_store_answer().await {
                return;
            }
        }
    }

    /// Nobody waited for the answer.
    pub(super) fn leave(self) {
        self.taken.leave();
    }

    /// Called when the permits are available and about to be used.
    pub(crate) fn go_on(&mut self) {
        self.taken.go_on();
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}
