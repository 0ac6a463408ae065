//! Trips that takes share: a hot key costs the server one script for each trip, whatever its load,
//! and many keys share the fixed cost of a script.
//!
//! If few are in flight, a take is asked about at once. Takes that come meanwhile wait until a trip
//! is back, and then go together: on a single server, those of all keys that one script judges; in
//! a cluster, those of one key or subject.

use std::collections::hash_map::{Entry, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::time::{Instant, timeout_at};

use super::fingerprints::ByFingerprint;
use super::sharing::Sharing;
use super::stop::{Passenger, Stop, StopId, TripNumber};
use crate::error::StoreError;
use crate::store::redis::server::{Server, Servers};

#[cfg(test)]
mod tests;
mod trip;

use trip::{Trip, spawn_all};

const SHARDS: usize = 32;

/// The stops with trips of one kind of question in flight.
pub(in crate::store::redis) struct SharedTrips<Q: Sharing> {
    shards: [Mutex<Shard<Q>>; SHARDS],
}

/// A part of the stops.
struct Shard<Q: Sharing> {
    stops: HashMap<StopId, Stop<Waiting<Q>>, ByFingerprint>,
    /// No trip from a stop that is gone had a higher number, so a trip that comes back late ends no
    /// other.
    last_number: TripNumber,
}

/// A question that waits for the next trip.
struct Waiting<Q: Sharing> {
    question: Box<Q>,
    told: oneshot::Sender<Told<Q>>,
    /// The runtime where it waits, which makes progress as long as it does.
    runtime: Option<Handle>,
}

impl<Q: Sharing> Passenger for Waiting<Q> {
    fn key(&self) -> Option<u128> {
        self.question.key()
    }

    fn weight(&self) -> usize {
        self.question.weight()
    }
}

/// What a trip tells a question.
pub(in crate::store::redis) enum Told<Q: Sharing> {
    /// With the question, which its caller drops where it was made: if a trip dropped those of all
    /// its passengers, it would hold up the allocators of other threads.
    Decided(Q::Decided, Box<Q>),
    /// It has to be asked by the composed script.
    OtherForm(Box<Q>),
    Failed(StoreError),
    /// The trip never began.
    NotAsked(Box<Q>),
}

impl<Q: Sharing> Told<Q> {
    /// By its reading; `None` if its key has another form.
    pub(in crate::store::redis) fn by(mut question: Box<Q>, read: Option<Q::Read>) -> Self {
        match read {
            Some(read) => Self::Decided(question.decided(read), question),
            None => Self::OtherForm(question),
        }
    }
}

/// How a question continues.
pub(in crate::store::redis) enum Turn<Q: Sharing> {
    /// By itself, at once.
    Go(Trip<Q>, Box<Q>),
    /// With others.
    Wait(Turned<Q>),
}

/// A question that waits for its turn.
pub(in crate::store::redis) struct Turned<Q: Sharing> {
    told: oneshot::Receiver<Told<Q>>,
    stop_id: StopId,
    /// When it has to check whether the trips before it are late.
    sees_at: Option<Instant>,
}

impl<Q: Sharing> Default for SharedTrips<Q> {
    fn default() -> Self {
        Self {
            shards: std::array::from_fn(|_| {
                Mutex::new(Shard {
                    stops: HashMap::default(),
                    last_number: TripNumber::default(),
                })
            }),
        }
    }
}

impl<Q: Sharing> SharedTrips<Q> {
    /// Sends a question alone, or makes it wait for the next trip.
    pub(in crate::store::redis) fn enter(server: &Server, question: Box<Q>) -> Turn<Q> {
        let (stop_id, most_trips) = stop_of(server, &*question);
        let now = Instant::now();
        let mut shard = Q::trips(server).lock(stop_id);
        let Shard { stops, last_number } = &mut *shard;
        let new = || Stop::new(most_trips, server.waits().for_trips, *last_number);
        let stop = stops.entry(stop_id).or_insert_with(new);
        let (next, left) = if stop.leave_behind(now) {
            all_departing(stop, now)
        } else {
            Default::default()
        };
        let turn = match stop.go_alone(question.key(), now) {
            Some(number) => Turn::Go(Trip::new(server.clone(), stop_id, number), question),
            None => {
                let (tell, told) = oneshot::channel();
                let runtime = Handle::try_current().ok();
                let sees_at = stop.wait(Waiting {
                    question,
                    told: tell,
                    runtime,
                });
                Turn::Wait(Turned {
                    told,
                    stop_id,
                    sees_at,
                })
            }
        };
        drop(shard);
        drop(left);
        spawn_all(server, stop_id, next);
        turn
    }

    /// Applies `done`, and returns the questions that go next, with the numbers of their trips.
    /// Late trips are not waited for.
    fn next(&self, stop_id: StopId, done: impl FnOnce(&mut Stop<Waiting<Q>>)) -> Departing<Q> {
        let now = Instant::now();
        let mut shard = self.lock(stop_id);
        let Shard { stops, last_number } = &mut *shard;
        let Entry::Occupied(mut entry) = stops.entry(stop_id) else {
            return SmallVec::new();
        };
        done(entry.get_mut());
        entry.get_mut().leave_behind(now);
        let (next, left) = all_departing(entry.get_mut(), now);
        if entry.get().is_deserted() {
            *last_number = entry.remove().last_number().max(*last_number);
        }
        drop(shard);
        drop(left);
        next
    }

    /// Sends the questions that wait for late trips.
    fn leave_behind(server: &Server, stop_id: StopId) {
        let next = Q::trips(server).next(stop_id, |_| {});
        spawn_all(server, stop_id, next);
    }

    /// When the first of the trips in flight is late.
    fn late_at(&self, stop_id: StopId) -> Option<Instant> {
        self.lock(stop_id).stops.get(&stop_id)?.late_at()
    }

    fn lock(&self, StopId(id): StopId) -> MutexGuard<'_, Shard<Q>> {
        let shard = &self.shards[id as usize % SHARDS];
        // No step under the lock leaves anything half done.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Q: Sharing> Turned<Q> {
    /// Waits until the trip is back, and returns what it tells.
    pub(in crate::store::redis) async fn told(self, server: &Server) -> Result<Told<Q>, RecvError> {
        let Self {
            mut told,
            stop_id,
            mut sees_at,
        } = self;
        while let Some(late_at) = sees_at {
            if let Ok(told) = timeout_at(late_at, &mut told).await {
                return told;
            }
            SharedTrips::<Q>::leave_behind(server, stop_id);
            sees_at = Q::trips(server).late_at(stop_id);
        }
        told.await
    }
}

/// The stop of this question, and the number of trips that may be in flight from there.
fn stop_of<Q: Sharing>(server: &Server, question: &Q) -> (StopId, usize) {
    match server.servers() {
        Servers::One(_) => (
            question.stop_of_all_keys(),
            question.most_trips_of_all_keys(),
        ),
        // Only questions of the same key.
        Servers::Cluster(_) => (question.stop(), 1),
    }
}

/// The questions of each trip, with its number.
type Departing<Q> = SmallVec<[(TripNumber, Vec<Waiting<Q>>); 1]>;

/// The questions that go next, and those whose callers have left, to be dropped without the lock,
/// as they may be many.
fn all_departing<Q: Sharing>(
    stop: &mut Stop<Waiting<Q>>,
    now: Instant,
) -> (Departing<Q>, Vec<Waiting<Q>>) {
    let left = stop.without(|waiting| waiting.told.is_closed());
    (std::iter::from_fn(|| stop.depart(now)).collect(), left)
}
