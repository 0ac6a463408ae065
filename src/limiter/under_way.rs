//! What is in flight to the store and nobody waits for.

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::Limiter;
use crate::store::OnItsWay;

impl Limiter {
    /// Waits until everything that was given back has reached the store: places of a
    /// [concurrency](crate::Limit::concurrency) limit, what a response
    /// [settled](crate::Policy::settle), and the permits of callers who no longer wait. First it gives
    /// back the permits that this process holds [in advance](crate::QuotaLease); a later question may
    /// take more of them.
    ///
    /// Over a store that takes a round trip, the caller who gives back does not wait for it: a task does,
    /// on the runtime on which the guard or the response was dropped. A runtime that ends drops the task.
    /// The place is then given back on the runtime on which it was taken or, if that is the same one,
    /// stays taken until its lease lapses. So call this at the end of `main`, when the server has stopped
    /// and the last guard is dropped:
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
    /// It takes at most twice as long as a decision [may](crate::LimiterBuilder::timeout), also if the
    /// store does not answer, if callers go on giving back, or if nobody drives the runtime on which the
    /// task runs. After a failure the store is asked again to free a place, until it does or the lease
    /// lapses, as long as the runtime runs. This call does not wait for that.
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
        F: Future<Output = ()> + Send + 'static,
    {
        let on_its_way = self.on_its_way();
        runtime.spawn(async move {
            work.await;
            drop(on_its_way);
        });
    }
}
