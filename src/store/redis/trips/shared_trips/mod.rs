//! Trips that takes share, so that a hot key costs the server one script for each trip, whatever its load,
//! and many keys share what a script costs whatever it does.
//!
//! Where few are under way, a take is asked about at once. Those that come meanwhile wait until a trip is back, and
//! then go together: on one server those of whatever keys that one script judges, in a cluster those of one key or
//! subject.

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
use crate::store::redis::runtimes::Driver;
use crate::store::redis::server::{Server, Servers};

#[cfg(test)]
mod tests;
mod trip;

use trip::{Trip, spawn_all, tell_not_asked};

const SHARDS: usize = 32;

/// The stops from which trips with such questions are under way.
pub(in crate::store::redis) struct SharedTrips<Q: Sharing> {
    shards: [Mutex<Shard<Q>>; SHARDS],
}

/// A part of the stops.
struct Shard<Q: Sharing> {
    stops: HashMap<StopId, Stop<Waiting<Q>>, ByFingerprint>,
    /// No trip from a stop that is no more had a higher one: who comes back late ends no other's trip.
    last_number: TripNumber,
}

/// One that waits for the next trip.
struct Waiting<Q: Sharing> {
    question: Box<Q>,
    told: oneshot::Sender<Told<Q>>,
    /// Where it waits: as long as it does, that is a runtime that goes on.
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

/// What a trip has brought for one question.
pub(in crate::store::redis) enum Told<Q: Sharing> {
    /// With the question, which who waits for it drops where it was made: a trip that dropped those of all its
    /// passengers would hold up the allocators of other threads.
    Decided(Q::Decided, Box<Q>),
    /// It has to be asked by the composed script.
    OtherForm(Box<Q>),
    Failed(StoreError),
    /// The trip never began.
    NotAsked(Box<Q>),
}

impl<Q: Sharing> Told<Q> {
    /// What was read of it; `None` when its key has another form.
    pub(in crate::store::redis) fn by(mut question: Box<Q>, read: Option<Q::Read>) -> Self {
        match read {
            Some(read) => Self::Decided(question.decided(read), question),
            None => Self::OtherForm(question),
        }
    }
}

/// How a question goes on.
pub(in crate::store::redis) enum Turn<Q: Sharing> {
    /// By itself, at once.
    Go(Trip<Q>, Box<Q>),
    /// With others.
    Wait(Turned<Q>),
}

/// One that waits for its turn.
pub(in crate::store::redis) struct Turned<Q: Sharing> {
    told: oneshot::Receiver<Told<Q>>,
    stop_id: StopId,
    /// When it is to see whether those before it are late.
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
    /// Lets a question go, or wait for the next trip.
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
        let mut anew = Vec::new();
        let turn = match stop.go_alone(question.key(), now) {
            Some(number) => Turn::Go(Trip::new(server.clone(), stop_id, number), question),
            None => {
                let (tell, told) = oneshot::channel();
                let runtime = Handle::try_current().ok();
                anew = stop.prepare_for(Driver::of(runtime.as_ref()));
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
        tell_not_asked(anew);
        spawn_all(server, stop_id, next);
        turn
    }

    /// Those who go once this is done, with the numbers of their trips. Those that are late are not waited for.
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

    /// Lets those go who wait for trips that are late.
    fn leave_behind(server: &Server, stop_id: StopId) {
        let next = Q::trips(server).next(stop_id, |_| {});
        spawn_all(server, stop_id, next);
    }

    /// When the first of those under way is late.
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
    /// What it is told once it is back.
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

/// Where this question waits, and how many trips may be under way from there.
fn stop_of<Q: Sharing>(server: &Server, question: &Q) -> (StopId, usize) {
    match server.servers() {
        Servers::One(_) => (
            question.stop_of_all_keys(),
            question.most_trips_of_all_keys(),
        ),
        // Those of one key.
        Servers::Cluster(_) => (question.stop(), 1),
    }
}

/// Those who go together, with the number of their trip.
type Departing<Q> = SmallVec<[(TripNumber, Vec<Waiting<Q>>); 1]>;

/// Those who go next, and those who have left: to be dropped once nothing is locked, as they may be many.
fn all_departing<Q: Sharing>(
    stop: &mut Stop<Waiting<Q>>,
    now: Instant,
) -> (Departing<Q>, Vec<Waiting<Q>>) {
    let left = stop.without(|waiting| waiting.told.is_closed());
    (std::iter::from_fn(|| stop.depart(now)).collect(), left)
}
