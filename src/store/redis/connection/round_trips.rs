//! `RoundTrips`: how far away a server is, and whether it is busy, by the answers to calls over one
//! connection.
//!
//! Questions wait for a batch only where that is cheaper than sending them alone: if the server is near,
//! so that its processor time is scarce, or busy. If the server is *far*, latency dominates, so as much
//! work as fits is sent at once.
//!
//! The *distance* is the shortest round trip of the last 30 to 60 seconds. A server is busy when even
//! the *shortest* of the latest round trips is longer than that: then a queue stands all the time. Means
//! and single round trips do not show that, because of timers and jitter. (CoDel, RFC 8289, recognises a
//! standing queue in the same way.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The work of a call, as processor time on both sides: for itself, and for each lone acquire.
const WORK_OF_CALL: Duration = Duration::from_micros(8);
const WORK_OF_ACQUIRE: Duration = Duration::from_micros(2);
/// The work in flight is at most this fraction of the distance. That also bounds the rate to some
/// 25 000 calls a second, so that a wrong distance does no harm.
const PART_OF_DISTANCE: u32 = 4;
/// A server is near if no more than this many lone calls are allowed in flight.
const NEAR: u32 = 8;
/// However far a server is, no more work is in flight than this distance allows.
const MOST_DISTANCE: Duration = Duration::from_millis(10);
/// A shortest round trip counts for one to two times this. If it counted for ever, a route that became
/// slower would look like a busy server.
const DISTANCE_LASTS: Duration = Duration::from_secs(30);
/// The latest round trips are those of one to two times so many distances.
const LATEST: u32 = 4;

/// How a question is best sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum Reach {
    /// The server is near, or busy, or nothing is known of it: a few calls are in flight, and
    /// others wait for them.
    Near,
    /// It is far.
    Far {
        /// The work that may be in flight.
        budget: Duration,
        /// What is left of that.
        room: Duration,
    },
}

/// The work of a call of this weight, in lone acquires.
pub(in crate::store::redis) fn work_of(weight: usize) -> Duration {
    WORK_OF_CALL + WORK_OF_ACQUIRE * u32::try_from(weight).unwrap_or(u32::MAX)
}

/// Every question reads it, without a lock.
#[derive(Default)]
pub(in crate::store::redis) struct RoundTrips {
    seen: Mutex<Seen>,
    /// How much work may be in flight, in nanoseconds; zero while the server is near or busy.
    budget_ns: AtomicU64,
    in_flight_ns: AtomicU64,
}

#[derive(Default)]
struct Seen {
    distance: Shortest,
    latest: Shortest,
}

/// The shortest round trip of a window that moves: of the current half and the one before.
#[derive(Default)]
struct Shortest {
    current: Option<Half>,
    before: Option<Duration>,
}

struct Half {
    since: Instant,
    shortest: Duration,
}

impl Shortest {
    fn add(&mut self, round_trip: Duration, now: Instant, lasts: Duration) {
        if let Some(over) = self.current.take_if(|half| now - half.since >= lasts) {
            let is_past = now - over.since >= 2 * lasts;
            self.before = (!is_past).then_some(over.shortest);
        }
        let half = self.current.get_or_insert(Half {
            since: now,
            shortest: round_trip,
        });
        half.shortest = half.shortest.min(round_trip);
    }

    fn get(&self) -> Option<Duration> {
        let current = self.current.as_ref().map(|half| half.shortest);
        current.into_iter().chain(self.before).min()
    }
}

impl RoundTrips {
    /// Starts anew for a new connection, whose first answer took this time. Otherwise a busy client
    /// would mistake a near server for a far one.
    pub(in crate::store::redis) fn reset(&self, round_trip: Duration) {
        *self.lock() = Seen::default();
        self.answered(round_trip, Instant::now());
    }

    pub(in crate::store::redis) fn begin(&self, work: Duration) {
        self.in_flight_ns.fetch_add(in_ns(work), Ordering::Relaxed);
    }

    /// Records that the work is done, or no longer waited for.
    pub(in crate::store::redis) fn end(&self, work: Duration) {
        if !work.is_zero() {
            self.in_flight_ns.fetch_sub(in_ns(work), Ordering::Relaxed);
        }
    }

    /// Records an answer.
    pub(in crate::store::redis) fn answered(&self, round_trip: Duration, now: Instant) {
        let mut seen = self.lock();
        let Seen { distance, latest } = &mut *seen;
        distance.add(round_trip, now, DISTANCE_LASTS);
        latest.add(round_trip, now, LATEST * distance.get().unwrap_or_default());
        let budget = seen.budget().unwrap_or_default();
        self.budget_ns.store(in_ns(budget), Ordering::Relaxed);
    }

    pub(in crate::store::redis) fn reach(&self) -> Reach {
        match self.budget_ns.load(Ordering::Relaxed) {
            0 => Reach::Near,
            budget => Reach::Far {
                budget: Duration::from_nanos(budget),
                room: Duration::from_nanos(
                    budget.saturating_sub(self.in_flight_ns.load(Ordering::Relaxed)),
                ),
            },
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // No step leaves anything half done.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    /// How much work may be in flight, if the server is far and not busy.
    fn budget(&self) -> Option<Duration> {
        let (distance, latest) = (self.distance.get()?, self.latest.get()?);
        let budget = distance.min(MOST_DISTANCE) / PART_OF_DISTANCE;
        let is_busy = latest > distance + distance / 2;
        (!is_busy && budget > work_of(1) * NEAR).then_some(budget)
    }
}

fn in_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn a_distant_server_is_far_while_it_answers_as_soon_as_ever() {
        let trips = RoundTrips::default();
        assert_eq!(trips.reach(), Reach::Near, "nothing is known");
        trips.answered(2 * MS, Instant::now());
        let budget = MS / 2;
        assert_eq!(
            trips.reach(),
            Reach::Far {
                budget,
                room: budget
            }
        );
        trips.begin(MS / 4);
        let room = MS / 4;
        assert_eq!(trips.reach(), Reach::Far { budget, room });
        trips.end(MS / 4);
        trips.reset(MS / 10);
        assert_eq!(trips.reach(), Reach::Near);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_whose_shortest_answers_take_longer_is_busy() {
        let trips = RoundTrips::default();
        trips.answered(2 * MS, Instant::now());
        for _ in 0..2 * LATEST {
            tokio::time::advance(2 * MS).await;
            trips.answered(4 * MS, Instant::now());
        }
        assert_eq!(trips.reach(), Reach::Near);
        trips.answered(2 * MS, Instant::now());
        assert_ne!(
            trips.reach(),
            Reach::Near,
            "although one was as soon as ever"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_long_ago_says_nothing_about_now() {
        let trips = RoundTrips::default();
        trips.answered(2 * MS, Instant::now());
        tokio::time::advance(100 * MS).await;
        trips.answered(100 * MS, Instant::now());
        assert_eq!(trips.reach(), Reach::Near);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slower_route_is_a_busy_server_for_a_minute_only() {
        let trips = RoundTrips::default();
        trips.answered(2 * MS, Instant::now());
        for _ in 0..61 {
            tokio::time::advance(Duration::from_secs(1)).await;
            trips.answered(6 * MS, Instant::now());
        }
        assert_eq!(
            trips.reach(),
            Reach::Far {
                budget: 6 * MS / 4,
                room: 6 * MS / 4
            }
        );
    }

    #[test]
    fn a_server_on_the_same_host_is_near() {
        let trips = RoundTrips::default();
        trips.answered(MS / 10, Instant::now());
        assert_eq!(trips.reach(), Reach::Near);
    }
}
