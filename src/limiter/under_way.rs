//! What is on its way to the store and nobody waits for.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::unconstrained;
use tokio::time::timeout;

use super::Limiter;
use crate::store::{Answer, OnItsWay};

impl Limiter {
    /// Waits until nothing that was given back is on its way to the store any more: places of a
    /// [concurrency](crate::Limit::concurrency) limit, what a response
    /// [settled](crate::Policy::settle), and the permits of those who no longer wait. Before, it gives back
    /// what is held [in advance](crate::QuotaLease); who asks later may have more taken.
    ///
    /// Over a store that takes a trip, nobody waits for that: a task sees to it, on the runtime on
    /// which the guard or the response was dropped. A runtime that ends drops the task: then a place
    /// is given back on the runtime on which it was taken, or, where that is the same one, stays taken
    /// until its lease lapses. So this is for the end of `main`, when the server has stopped and the
    /// last guard is dropped:
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MemoryStore, Policy};
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let limiter = Limiter::new(MemoryStore::new(), [Policy::new("jobs", Limit::concurrency(1))])?;
    ///     let job = limiter.hold("jobs", "nightly").await?;
    ///     if job.is_allowed() {
    ///         println!("at work");
    ///     }
    ///     drop(job);
    ///     limiter.given_back().await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// It takes at most twice as long as a decision [may](crate::LimiterBuilder::timeout), also when
    /// the store does not answer, when somebody goes on giving back, or when nobody drives the runtime
    /// on which it was begun. A store that failed is asked again about places, for as long as their
    /// lease lives and the runtime runs, but not waited for.
    pub async fn given_back(&self) {
        self.0.in_advance.let_go();
        let under_way = &self.0.under_way;
        // Where no question takes a trip, there may be no clock.
        if under_way.is_anything() {
            // Of those who are gone, and of what is taken in advance, the answer comes first, and then what
            // is given back.
            let longest = 2 * self.0.store.deadline();
            let _ = timeout(longest, under_way.is_over()).await;
        }
    }

    /// Something begins its way.
    pub(super) fn on_its_way(&self) -> OnItsWay {
        self.0.under_way.begin()
    }

    /// Has a runtime see to something that nobody waits for.
    pub(super) fn see_through<F>(&self, runtime: &Handle, work: F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let on_its_way = self.on_its_way();
        runtime.spawn(async move {
            // What comes of it may begin a way of its own.
            drop(work.await);
            drop(on_its_way);
        });
    }
}

/// Has a runtime go on with an answer that nobody waits for, and the answer begin its way before: what this caller
/// asks next would else come to the store first, and find taken what is being given back.
pub(super) fn go_on_with<F>(
    runtime: &Handle,
    answer: Answer,
    go_on: impl FnOnce(Answer) -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let (hand_on, handed_on) = oneshot::channel();
    let task = runtime.spawn(async move {
        if let Ok(answer) = handed_on.await {
            go_on(answer).await;
        }
    });
    // A runtime that has ended, as one whose task is over at once, has no timers any more.
    let is_to_begin = is_here(runtime) && !task.is_finished();
    let _ = hand_on.send(if is_to_begin { begun(answer) } else { answer });
}

/// Whether this thread is at work on it, and nothing has gone wrong: a store that panics ends the process where
/// somebody else does already.
fn is_here(runtime: &Handle) -> bool {
    let is_it = |here: Handle| here.id() == runtime.id();
    Handle::try_current().is_ok_and(is_it) && !std::thread::panicking()
}

/// The same answer, which has begun its way unless it was there.
fn begun(answer: Answer) -> Answer {
    let Answer::Pending(mut answer) = answer else {
        return answer;
    };
    // Whatever is left of the caller's budget: who has none would be put off.
    let polled = pin!(unconstrained(answer.as_mut())).poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(answer) => Answer::Ready(answer),
        // Its task polls it once more, and is woken.
        Poll::Pending => Answer::Pending(answer),
    }
}
