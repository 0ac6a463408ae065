//! Trips that takes share, so that a hot key costs the server one script for each trip, whatever its load,
//! and many keys share what a script costs whatever it does.
//!
//! Where nothing is under way, a take is asked about at once. Those that come meanwhile wait until a trip is
//! back, and then go together: on one server plain takes of whatever keys, else those of one key.

use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::fingerprints::FingerprintMap;
use super::server::{Server, Servers};
use super::stop::{Passenger, Stop};
use super::take::{Readings, Take, Together};
use crate::decision::Decision;
use crate::error::StoreError;

const SHARDS: usize = 32;

/// The stop that plain takes of one server share. No other one has its number, as good as certainly.
const OF_ALL_PLAIN: u128 = 0;
/// Of many keys so many trips may be under way at once; of one key there is one.
const MOST_TRIPS_OF_PLAIN: usize = 2;

/// The stops from which trips are under way.
#[derive(Default)]
pub(super) struct SharedTrips {
    shards: [Mutex<FingerprintMap<Stop<Waiting>>>; SHARDS],
}

/// One that waits for the next trip.
struct Waiting {
    take: Box<Take>,
    told: oneshot::Sender<Told>,
}

impl Passenger for Waiting {
    fn fingerprint(&self) -> u128 {
        self.take.fingerprint
    }
}

/// What a trip has brought for one take.
pub(super) enum Told {
    Decided(Decision),
    /// It has to be asked about by the script for everything.
    OtherForm(Box<Take>),
    Failed(StoreError),
    /// The trip never began.
    NotAsked(Box<Take>),
}

/// How a take goes on.
pub(super) enum Turn {
    /// By itself, at once.
    Go(Trip, Box<Take>),
    /// With others.
    Wait(oneshot::Receiver<Told>),
}

impl SharedTrips {
    /// Lets a take go, or wait for the next trip.
    pub(super) fn enter(server: &Server, take: Box<Take>) -> Turn {
        let key = take.fingerprint;
        let (number, most_trips) = match (take.plain, server.servers()) {
            (Some(_), Servers::One(_)) => (OF_ALL_PLAIN, MOST_TRIPS_OF_PLAIN),
            _ => (key, 1),
        };
        let mut stops = server.shared_trips().lock(number);
        let stop = stops.entry(number).or_insert_with(|| Stop::new(most_trips));
        match stop.go_alone(key) {
            Some(trip) => {
                let trip = Trip {
                    server: server.clone(),
                    stop: number,
                    number: trip,
                };
                Turn::Go(trip, take)
            }
            None => {
                let (told, turn) = oneshot::channel();
                stop.wait(Waiting { take, told });
                Turn::Wait(turn)
            }
        }
    }

    /// A trip is back: those who go next, with the numbers of their trips.
    fn next(&self, stop: u128, trip: u64) -> SmallVec<[(u64, Vec<Waiting>); 1]> {
        let mut stops = self.lock(stop);
        let Entry::Occupied(mut entry) = stops.entry(stop) else {
            return SmallVec::new();
        };
        entry.get_mut().end(trip);
        let next = std::iter::from_fn(|| entry.get_mut().depart()).collect();
        if entry.get().is_deserted() {
            entry.remove();
        }
        next
    }

    fn lock(&self, stop: u128) -> MutexGuard<'_, FingerprintMap<Stop<Waiting>>> {
        let shard = &self.shards[stop as usize % SHARDS];
        // No step under the lock leaves anything half done.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A trip under way. Dropped, whether it is back or was given up, it lets those go who wait.
pub(super) struct Trip {
    server: Server,
    stop: u128,
    number: u64,
}

impl Trip {
    /// Asks for all of these at once, and tells each.
    async fn ask(self, going: Going) {
        let mut waiting = going.begin();
        // Whoever has given up takes nothing.
        waiting.retain(|waiting| !waiting.told.is_closed());
        let takes: Vec<_> = waiting.iter().map(|waiting| &*waiting.take).collect();
        let Some(together) = Together::of(&takes, self.server.prefix()) else {
            return;
        };
        for waiting in &mut waiting {
            if let Some(noted) = &mut waiting.take.noted {
                noted.is_sent_now();
            }
        }
        let answer = self.server.ask_together(&together);
        let Some(answer) = unless_all_leave(answer, &mut waiting).await else {
            return;
        };
        // In their order, so that what is remembered at last is what the last of them has left.
        let told = tell(waiting, answer);
        // Before anybody is told, so that the next ones are on their way while these go on.
        drop(self);
        for (told, what) in told {
            // Who has given up meanwhile is not told.
            let _ = told.send(what);
        }
    }
}

/// What each is to be told.
fn tell(
    waiting: Vec<Waiting>,
    answer: Result<Readings, StoreError>,
) -> Vec<(oneshot::Sender<Told>, Told)> {
    let (readings, failed) = match answer {
        Ok(readings) => (readings, None),
        Err(error) => (Vec::new(), Some((error.kind(), Arc::new(error)))),
    };
    let mut readings = readings.into_iter();
    let each = waiting.into_iter().map(|Waiting { take, told }| {
        let what = match (readings.next(), &failed) {
            (Some(Ok(Some(reading))), _) => Told::Decided(take.decided(reading)),
            (Some(Err(error)), _) => Told::Failed(error),
            (None, Some((kind, error))) => {
                Told::Failed(StoreError::with_source(*kind, Arc::clone(error)))
            }
            (Some(Ok(None)) | None, _) => Told::OtherForm(take),
        };
        (told, what)
    });
    each.collect()
}

impl Drop for Trip {
    fn drop(&mut self) {
        for (number, waiting) in self.server.shared_trips().next(self.stop, self.number) {
            let trip = Self {
                server: self.server.clone(),
                stop: self.stop,
                number,
            };
            let going = Going(waiting);
            if let Ok(runtime) = Handle::try_current() {
                runtime.spawn(trip.ask(going));
            }
        }
    }
}

/// Those who are to go on a trip. Where it never begins, without a runtime or on one that is being shut
/// down, they are told so: they may be on another one.
struct Going(Vec<Waiting>);

impl Going {
    fn begin(mut self) -> Vec<Waiting> {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        for Waiting { take, told } in self.0.drain(..) {
            let _ = told.send(Told::NotAsked(take));
        }
    }
}

/// The answer; `None` when nobody waits for it any more. A trip has no deadline but theirs: on a
/// connection that swallows everything it would never be back, and nobody else could go.
async fn unless_all_leave<T>(
    answer: impl Future<Output = T>,
    waiting: &mut [Waiting],
) -> Option<T> {
    let mut answer = pin!(answer);
    let mut all_left = pin!(async {
        for waiting in waiting {
            waiting.told.closed().await;
        }
    });
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => all_left.as_mut().poll(cx).map(|()| None),
    })
    .await
}
