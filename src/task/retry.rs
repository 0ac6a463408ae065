//! `Tries`: when failed background work is retried.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::in_flight::InFlightWork;
use crate::time::SECOND;

/// A lease is renewed when a third of its life is over.
pub(crate) const RENEWALS_IN_A_LIFE: u32 = 3;

/// Failed work on a lease is retried after a twelfth of its life. So a failed renewal has seven
/// more tries in time.
pub(crate) const TRIES_IN_A_LIFE: u32 = 12;

/// The first pause during a flush; each further pause is twice as long.
const FIRST_HURRIED_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause during a flush. A limiter may have to release thousands of leases within a
/// minute.
const LONGEST_HURRIED_PAUSE: Duration = Duration::from_millis(100);

/// Retries soon at first, then less often, as long as there is something to do. During a
/// [flush](super::in_flight::Flush), retries immediately and often.
pub(crate) struct Tries {
    pause: Duration,
    longest_pause: Duration,
    /// When there is nothing left to do. `None` to retry only during a flush.
    lapsed: Option<Instant>,
    hurried_pause: Duration,
}

impl Tries {
    /// Retries the release of leases until they expire.
    pub(crate) fn to_end_leases(life: Duration) -> Self {
        let longest_pause = life / TRIES_IN_A_LIFE;
        Self {
            pause: longest_pause.min(SECOND),
            longest_pause,
            lapsed: Some(Instant::now() + life),
            hurried_pause: FIRST_HURRIED_PAUSE,
        }
    }

    /// Retries only during a flush: for permits that come back over time anyway.
    pub(crate) fn while_flushed() -> Self {
        Self {
            lapsed: None,
            ..Self::to_end_leases(Duration::ZERO)
        }
    }

    /// The pause before the next try, outside of a flush.
    pub(crate) fn pause(&self) -> Duration {
        self.pause
    }

    /// Waits for the next try. Returns `false` if there is no further try.
    pub(crate) async fn next(&mut self, in_flight_work: &InFlightWork) -> bool {
        if in_flight_work.is_flushed() {
            sleep(self.hurried_pause).await;
            self.hurried_pause = LONGEST_HURRIED_PAUSE.min(self.hurried_pause * 2);
            return match self.lapsed {
                Some(lapsed) => Instant::now() < lapsed,
                None => in_flight_work.is_flushed(),
            };
        }
        self.hurried_pause = FIRST_HURRIED_PAUSE;
        let is_left = |lapsed| Instant::now() + self.pause < lapsed;
        if !self.lapsed.is_some_and(is_left) {
            return false;
        }
        if timeout(self.pause, in_flight_work.flush_begins())
            .await
            .is_err()
        {
            self.pause = self.longest_pause.min(self.pause * 2);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pauses_grow_to_a_twelfth_of_the_life_and_end_with_it() {
        let start = Instant::now();
        let mut tries = Tries::to_end_leases(60 * SECOND);
        let mut tried = Vec::new();
        while tries.next(&InFlightWork::default()).await {
            tried.push(start.elapsed().as_secs());
        }
        assert_eq!(tried, [1, 3, 7, 12, 17, 22, 27, 32, 37, 42, 47, 52, 57]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_lease_gets_as_many_tries() {
        let mut tries = Tries::to_end_leases(SECOND / 10);
        let mut count = 0;
        while tries.next(&InFlightWork::default()).await {
            count += 1;
        }
        assert!((5..TRIES_IN_A_LIFE).contains(&count), "{count}");
        assert!(
            !Tries::to_end_leases(Duration::ZERO)
                .next(&InFlightWork::default())
                .await
        );
    }
}
