//! `Stop`: where takes wait for a trip, and which of them go on the next one.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::fingerprints::{ByFingerprint, FingerprintSet};
use crate::store::redis::runtimes::Driver;

/// So many passengers share a trip, at most: a script holds up everybody else.
const MOST_TOGETHER: usize = 256;
/// And no more than what takes the server as long as so many plain takes of different keys, for the same reason.
const MOST_WEIGHT: usize = 512;
/// So many trips there may be for however few: one is got ready while the server carries out the other.
pub(in crate::store::redis) const FEW_TRIPS: usize = 2;
/// Further ones there are only if as many as this go on each: a trip costs both sides as much as some questions do, and
/// behind HTTP a few large ones serve more requests than many small ones.
const ENOUGH_FOR_FURTHER: usize = 24;
/// So many may be under way that go alone, where there may be further trips: as long as nobody waits, each of so few is
/// answered sooner by itself.
const MOST_ALONE: usize = 8;

/// Which stop of those for one kind of question; uniformly distributed where it is one of a key or a subject.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::store::redis) struct StopId(pub(in crate::store::redis) u128);

impl StopId {
    /// One that questions share whatever their keys; those of each script have another one. No stop of a key has
    /// this id, as good as certainly.
    pub(in crate::store::redis) fn of_all_keys(script: u16) -> Self {
        Self(script.into())
    }
}

/// Which trip from a stop: no two have the same number, also where the stop was deserted between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TripNumber(u64);

impl TripNumber {
    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// What waits at a stop.
pub(in crate::store::redis) trait Passenger {
    /// What its key is known by, where those of that key are to go together; `None` of one of several keys.
    fn key(&self) -> Option<u128>;

    /// As long as so many plain takes it takes the server, one at least.
    fn weight(&self) -> usize;
}

/// A stop: the trips under way from it, and who waits for the next.
///
/// The more trips there are, the less often client and server wait for each other, as long as enough go on each.
///
/// A passenger that has a key waits while that key is on a trip, and then goes together with all others that have
/// it: whatever is asked of a hot key is one step for each trip. One of several keys has none of its own: mostly one
/// of them is everybody's, and if it waited for that there would never be two trips at once. No verdict depends on
/// it, as the server judges trips one after the other, in the order in which they are sent. So nothing is wrong
/// either where a trip was left behind, and those of its keys go on another one beside it.
pub(super) struct Stop<P> {
    most_trips: usize,
    /// So long a trip is waited for, until it is back and then until it has ended.
    patience: Duration,
    trips: SmallVec<[Trip; 2]>,
    last_number: TripNumber,
    waiting: Vec<P>,
    seers: Seers,
}

/// Who sees that a trip is late which several share. Whoever does needs a timer: of the trip there is one.
enum Seers {
    /// The trip itself, which goes on when those who wait do: all who have waited have this driver.
    Trips(Option<Driver>),
    /// All who wait: the trip may stand still while they go on.
    Passengers,
}

/// A trip under way.
struct Trip {
    number: TripNumber,
    /// Whether its caller is the only one to see that it is back.
    is_alone: bool,
    /// From then on it is not waited for.
    late_at: Instant,
    is_back: bool,
    passengers: usize,
    keys: Keys,
}

/// Where the other trips from a stop are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    None,
    UnderWay,
    /// One of them is back, but has not ended.
    Back,
}

/// Those whose takes are to go together.
enum Keys {
    /// Of one take.
    One(Option<u128>),
    Many(FingerprintSet),
}

impl Keys {
    fn has(&self, key: u128) -> bool {
        match self {
            Self::One(own) => *own == Some(key),
            Self::Many(keys) => keys.contains(&key),
        }
    }
}

impl<P: Passenger> Stop<P> {
    /// A stop that so many trips may be under way from, each waited for so long, with higher numbers than this.
    pub(super) fn new(most_trips: usize, patience: Duration, last_number: TripNumber) -> Self {
        Self {
            most_trips,
            patience,
            trips: SmallVec::new(),
            last_number,
            waiting: Vec::new(),
            seers: Seers::Trips(None),
        }
    }

    /// The highest number of a trip so far.
    pub(super) fn last_number(&self) -> TripNumber {
        self.last_number
    }

    /// Whether nothing is under way, and nobody waits.
    pub(super) fn is_deserted(&self) -> bool {
        self.trips.is_empty() && self.waiting.is_empty()
    }

    /// Lets a take of this key go by itself, at once: the number of its trip. `None` when it has to wait.
    pub(super) fn go_alone(&mut self, key: Option<u128>, now: Instant) -> Option<TripNumber> {
        let may_go = self.has_room_for_one()
            && match key {
                Some(key) => !self.is_under_way(key),
                None => self.waiting.is_empty(),
            };
        may_go.then(|| self.begin(1, Keys::One(key), now))
    }

    fn has_room_for_one(&self) -> bool {
        let under_way = self.trips.len();
        let all_go_alone =
            || self.waiting.is_empty() && self.trips.iter().all(|trip| trip.is_alone);
        under_way < self.most_trips.min(FEW_TRIPS)
            || (self.most_trips > FEW_TRIPS && under_way < MOST_ALONE && all_go_alone())
    }

    /// One with this driver is going to wait. Those who have waited without seeing to it that nobody is late, and
    /// are to from now on: they have to enter anew.
    pub(super) fn prepare_for(&mut self, driver: Driver) -> Vec<P> {
        match self.seers {
            Seers::Trips(Some(known)) if known != driver => {
                self.seers = Seers::Passengers;
                return std::mem::take(&mut self.waiting);
            }
            Seers::Trips(_) => self.seers = Seers::Trips(Some(driver)),
            Seers::Passengers => {}
        }
        Vec::new()
    }

    /// Lets one wait that was prepared for: when it is to see whether those under way are late, if that is up to it,
    /// as it is behind one who went alone.
    pub(super) fn wait(&mut self, passenger: P) -> Option<Instant> {
        self.waiting.push(passenger);
        let sees =
            matches!(self.seers, Seers::Passengers) || self.trips.iter().any(|trip| trip.is_alone);
        sees.then(|| self.late_at()).flatten()
    }

    /// Lets nobody wait any longer who has left: they would take places of those who have not.
    pub(super) fn without(&mut self, has_left: impl FnMut(&mut P) -> bool) -> Vec<P> {
        // Where all find a place on one trip, to look at each of them costs more than it brings.
        if self.waiting.len() <= MOST_TOGETHER {
            return Vec::new();
        }
        self.waiting.extract_if(.., has_left).collect()
    }

    /// When the first of those under way is late.
    pub(super) fn late_at(&self) -> Option<Instant> {
        self.trips.iter().map(|trip| trip.late_at).min()
    }

    /// Waits no longer for trips that are late: whether there are any.
    pub(super) fn leave_behind(&mut self, now: Instant) -> bool {
        let before = self.trips.len();
        self.trips.retain(|trip| now < trip.late_at);
        self.trips.len() < before
    }

    /// A trip is back.
    pub(super) fn arrive(&mut self, number: TripNumber, now: Instant) -> Others {
        let mut others = Others::None;
        for trip in &mut self.trips {
            if trip.number == number {
                trip.is_back = true;
                trip.late_at = now + self.patience;
            } else if trip.is_back {
                others = Others::Back;
            } else if others == Others::None {
                others = Others::UnderWay;
            }
        }
        others
    }

    /// A trip is over.
    pub(super) fn end(&mut self, number: TripNumber) {
        self.trips.retain(|trip| trip.number != number);
    }

    /// Those who go together next, and the number of their trip. Where there may be several trips, an equal share of
    /// all there are.
    pub(super) fn depart(&mut self, now: Instant) -> Option<(TripNumber, Vec<P>)> {
        let under_way: usize = self.trips.iter().map(|trip| trip.passengers).sum();
        let all = under_way + self.waiting.len();
        let most_trips = (all / ENOUGH_FOR_FURTHER).max(FEW_TRIPS);
        let most_trips = most_trips.min(self.most_trips);
        let shared = self.trips.iter().filter(|trip| !trip.is_alone).count();
        // Those who went alone are as one: nobody waits for all of them.
        let trips = shared + usize::from(shared < self.trips.len());
        if self.waiting.is_empty() || trips >= most_trips {
            return None;
        }
        let room = all.div_ceil(most_trips).min(MOST_TOGETHER);
        let mut together = FingerprintSet::with_capacity_and_hasher(room, ByFingerprint);
        let (mut going, mut staying, mut weight) = (Vec::with_capacity(room), Vec::new(), 0);
        for passenger in std::mem::take(&mut self.waiting) {
            let heavier = weight + passenger.weight();
            let has_room = going.len() < room && (going.is_empty() || heavier <= MOST_WEIGHT);
            let key = passenger.key();
            let goes = match key {
                Some(key) if self.is_under_way(key) => false,
                // All of a key who can, go together: mostly they are one step with the first.
                Some(key) if together.contains(&key) => going.len() < MOST_TOGETHER,
                Some(_) => has_room,
                // Nobody goes before another who waits.
                None => has_room && staying.is_empty(),
            };
            if goes {
                if key.is_none_or(|key| together.insert(key)) {
                    weight = heavier;
                }
                going.push(passenger);
            } else {
                staying.push(passenger);
            }
        }
        self.waiting = staying;
        if going.is_empty() {
            return None;
        }
        let number = self.begin(going.len(), Keys::Many(together), now);
        Some((number, going))
    }

    fn begin(&mut self, passengers: usize, keys: Keys, now: Instant) -> TripNumber {
        self.last_number = self.last_number.next();
        self.trips.push(Trip {
            number: self.last_number,
            is_alone: matches!(keys, Keys::One(_)),
            late_at: now + self.patience,
            is_back: false,
            passengers,
            keys,
        });
        self.last_number
    }

    fn is_under_way(&self, key: u128) -> bool {
        self.trips.iter().any(|trip| trip.keys.has(key))
    }
}

#[cfg(test)]
mod tests;
