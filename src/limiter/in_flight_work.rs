//! What is in flight to the store and nobody waits for.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::time::{Instant, timeout_at};

use super::Limiter;
use crate::task::InFlightGuard;

impl Limiter {
    /// Waits until everything that was given back has reached the store: places of a
    /// [concurrency](crate::Limit::concurrency) limit, what a response
    /// [settled](crate::Policy::settle), and the permits of callers who no longer wait. First it gives
    /// back the permits that this process holds [in advance](crate::Prefetch); a later question may
    /// take more of them.
    ///
    /// Over a store that takes a round trip, the caller who gives back does not wait for it: a task does,
    /// on the runtime on which the permit or the response was dropped. A runtime that ends drops the task.
    /// The place is then given back on the runtime on which it was taken or, if that is the same one,
    /// stays taken until its lease lapses. So call this at the end of `main`, when the server has stopped
    /// and the last permit is dropped:
    ///
    /// ```
    /// use tower_throttle::{Limit, Limiter, MemoryStore, Policy};
    ///
    /// #[tokio::main(flavor = "current_thread")]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let limiter = Limiter::new(MemoryStore::new(), [Policy::new("jobs", Limit::concurrency(1))])?;
    ///     let job = limiter.admit("jobs", "nightly").await?;
    ///     println!("at work");
    ///     drop(job);
    ///     if !limiter.flush().await {
    ///         eprintln!("some places stay taken until their leases lapse");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    ///
    /// While it waits, whatever the store surely did not do is tried again at once and then every few
    /// milliseconds, even while the circuit breaker is open; so is freeing a place, whatever became of
    /// the last try, as that does no harm twice.
    ///
    /// It ends as soon as nothing is left to wait for, and takes at most twice as long as a decision
    /// [may](crate::LimiterBuilder::timeout): also if the store does not answer, if callers go on giving
    /// back, or if nobody drives the runtime on which the task runs. Returns whether all that was in
    /// flight has reached the store; leases that have lapsed meanwhile need not. If not, places are still
    /// given back as long as the runtime runs, and another call waits for that again: a store that has
    /// just come back needs up to 0.6 s for a new connection. Permits that come back with time stay used
    /// if they may have been given back, as doing so twice could create some.
    pub async fn flush(&self) -> bool {
        let flush = self.0.in_flight_work.flush();
        (self.0.give_back_batches)();
        let own = flush.done();
        let stores = self.0.store.given_back();
        // Twice the deadline: after the answer to an abandoned question or batch, what it took
        // is still given back.
        let end = Instant::now() + 2 * self.0.store.deadline();
        let mut is_done = pin!(async {
            // Both go on meanwhile.
            let is_done = own.await;
            match stores {
                Some(stores) => stores.await && is_done,
                None => is_done,
            }
        });
        // If no question takes a round trip, there may be no timers.
        match poll_fn(|cx| Poll::Ready(is_done.as_mut().poll(cx))).await {
            Poll::Ready(is_done) => is_done,
            Poll::Pending => timeout_at(end, is_done).await.unwrap_or(false),
        }
    }

    /// Counts something in flight, until the result is dropped.
    pub(super) fn in_flight_guard(&self) -> InFlightGuard {
        self.0.in_flight_work.begin()
    }

    /// Spawns work that nobody waits for.
    pub(super) fn spawn_in_flight<F>(&self, runtime: &Handle, work: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut in_flight_guard = self.in_flight_guard();
        runtime.spawn(async move {
            work.await;
            in_flight_guard.arrived();
        });
    }
}
