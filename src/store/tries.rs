//! `Tries`: when a store is asked again to end leases that it did not end.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::time::SECOND;

/// What a store failed to do about a lease is tried again after a twelfth of its life. So a renewal
/// that fails has seven more tries in time.
pub(crate) const TRIES_IN_A_LIFE: u32 = 12;

/// Soon at first, then less often, for as long as there is something to end.
pub(crate) struct Tries {
    pause: Duration,
    longest_pause: Duration,
    lapsed: Instant,
}

impl Tries {
    /// For leases of this life that nobody renews any more, until they have lapsed.
    pub(crate) fn to_end_leases(life: Duration) -> Self {
        let longest_pause = life / TRIES_IN_A_LIFE;
        Self {
            pause: longest_pause.min(SECOND),
            longest_pause,
            lapsed: Instant::now() + life,
        }
    }

    /// Waits for the next try. Returns `false` if there is none.
    pub(crate) async fn next(&mut self) -> bool {
        if Instant::now() + self.pause >= self.lapsed {
            return false;
        }
        sleep(self.pause).await;
        self.pause = self.longest_pause.min(self.pause * 2);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_pauses_grow_to_a_twelfth_of_the_life_and_end_with_it() {
        let begun = Instant::now();
        let mut tries = Tries::to_end_leases(60 * SECOND);
        let mut tried = Vec::new();
        while tries.next().await {
            tried.push(begun.elapsed().as_secs());
        }
        assert_eq!(tried, [1, 3, 7, 12, 17, 22, 27, 32, 37, 42, 47, 52, 57]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_lease_gets_as_many_tries() {
        let mut tries = Tries::to_end_leases(SECOND / 10);
        let mut count = 0;
        while tries.next().await {
            count += 1;
        }
        assert!((5..TRIES_IN_A_LIFE).contains(&count), "{count}");
        assert!(!Tries::to_end_leases(Duration::ZERO).next().await);
    }
}
