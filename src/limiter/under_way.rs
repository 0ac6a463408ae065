//! What is in flight to the store and nobody waits for.

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Limiter;
use crate::store::OnItsWay;

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
    ///     limiter.flush().await;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// It takes at most twice as long as a decision [may](crate::LimiterBuilder::timeout), also when
    /// the store does not answer, when somebody goes on giving back, or when nobody drives the runtime
    /// on which it was begun. A store that failed is asked again about places, for as long as their
    /// lease lives and the runtime runs, but not waited for.
    pub async fn flush(&self) {
        (self.0.give_back_batches)();
        let under_way = &self.0.under_way;
        // If no question takes a round trip, there may be no timers.
        if under_way.is_anything() {
            // Twice the deadline: after the answer to an abandoned question or batch, what it took
            // is still given back.
            let longest = 2 * self.0.store.deadline();
            let _ = timeout(longest, under_way.is_over()).await;
        }
    }

    /// Counts something in flight, until the result is dropped.
    pub(super) fn on_its_way(&self) -> OnItsWay {
        self.0.under_way.begin()
    }

    /// Spawns work that nobody waits for.
    pub(super) fn see_through<F>(&self, runtime: &Handle, work: F)
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let on_its_way = self.on_its_way();
        runtime.spawn(async move {
            // First: dropping the result may give permits back, which also counts as in flight.
            drop(work.await);
            drop(on_its_way);
        });
    }
}
