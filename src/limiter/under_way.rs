//! `UnderWay`: what is on its way to the store and nobody waits for.

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Limiter;

/// Knows whether anything is on its way to the store that nobody waits for: what was given back or
/// settled, and questions whose callers are gone.
pub(super) struct UnderWay(watch::Sender<()>);

/// Kept for as long as one such thing is on its way.
pub(super) struct OnItsWay(#[expect(dead_code, reason = "counted")] watch::Receiver<()>);

impl Default for UnderWay {
    fn default() -> Self {
        Self(watch::Sender::new(()))
    }
}

impl Limiter {
    /// Waits until nothing that was given back is on its way to the store any more: places of a
    /// [concurrency](crate::Limit::concurrency) limit, what a response
    /// [settled](crate::Policy::settle), and the permits of those who no longer wait.
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
        let under_way = &self.0.under_way.0;
        // Where no question takes a trip, there may be no clock.
        if under_way.receiver_count() > 0 {
            // Of those who are gone the answer comes first, and then what they give back.
            let longest = 2 * self.0.store.deadline();
            let _ = timeout(longest, under_way.closed()).await;
        }
    }

    /// Something begins its way.
    pub(super) fn on_its_way(&self) -> OnItsWay {
        OnItsWay(self.0.under_way.0.subscribe())
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
