//! `Stop`: where takes wait for a trip, and which of them go next.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::fingerprints::{ByFingerprint, FingerprintSet};

/// At most this many passengers share a trip, since a script holds up everybody else.
const MOST_TOGETHER: usize = 256;
/// At most as many as take the server as long as this many plain takes of different keys, for the
/// same reason.
const MOST_WEIGHT: usize = 512;
/// This many trips are allowed for any number of questions: one is prepared while the server
/// carries out the other.
pub(in crate::store::redis) const FEW_TRIPS: usize = 2;
/// Further trips need at least this many questions each. A trip costs both sides as much as some
/// questions do, and behind HTTP a few large ones serve more requests than many small ones.
const ENOUGH_FOR_FURTHER: usize = 24;
/// How many questions may go alone, where further trips are allowed: as long as nobody waits, each
/// of so few is answered sooner by itself.
const MOST_ALONE: usize = 8;

/// Identifies a stop among those for one kind of question. Uniformly distributed if it is that of a
/// key or a subject.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::store::redis) struct StopId(pub(in crate::store::redis) u128);

impl StopId {
    /// A stop that questions of all keys share; each script has its own. It is practically
    /// impossible that the stop of a key has this id.
    pub(in crate::store::redis) fn of_all_keys(script: u16) -> Self {
        Self(script.into())
    }
}

/// Identifies a trip from a stop. No two have the same number, even if the stop was deserted in
/// between.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TripNumber(u64);

impl TripNumber {
    fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A question that waits at a stop.
pub(in crate::store::redis) trait Passenger {
    /// Identifies its key, if questions of that key should go together; `None` for a question with
    /// several keys.
    fn key(&self) -> Option<u128>;

    /// Its cost for the server, in plain takes; at least one.
    fn weight(&self) -> usize;
}

/// A stop: its trips in flight, and the passengers that wait for the next.
///
/// The more trips there are, the less often client and server wait for each other, as long as each
/// has enough passengers.
///
/// A passenger with a key waits while that key is on a trip, and then goes together with all others
/// of the key: whatever is asked of a hot key is one step for each trip. A passenger with several
/// keys has no key of its own: mostly one of them is everybody's, and if it waited for that there
/// would never be two trips at once. No verdict depends on this, as the server judges trips one
/// after the other, in the order in which they are sent. So it does no harm, either, if a trip was
/// left behind and others of its keys go beside it.
pub(super) struct Stop<P> {
    most_trips: usize,
    /// How long a trip is waited for, until it is back and then until it has ended.
    patience: Duration,
    trips: SmallVec<[Trip; 2]>,
    last_number: TripNumber,
    waiting: Vec<P>,
}

/// What a stop knows of a trip in flight.
struct Trip {
    number: TripNumber,
    /// Whether only its caller notices that it is back.
    is_alone: bool,
    /// From then on it is no longer waited for.
    late_at: Instant,
    is_back: bool,
    passengers: usize,
    keys: Keys,
}

/// The state of the other trips from a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    None,
    UnderWay,
    /// One of them is back, but has not ended.
    Back,
}

/// The keys of the takes of a trip.
enum Keys {
    /// The key of a single take.
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
    /// A stop that allows this many trips in flight, waits this long for each, and numbers them
    /// from here on.
    pub(super) fn new(most_trips: usize, patience: Duration, last_number: TripNumber) -> Self {
        Self {
            most_trips,
            patience,
            trips: SmallVec::new(),
            last_number,
            waiting: Vec::new(),
        }
    }

    /// The highest number of a trip so far.
    pub(super) fn last_number(&self) -> TripNumber {
        self.last_number
    }

    /// Whether nothing is in flight, and nobody waits.
    pub(super) fn is_deserted(&self) -> bool {
        self.trips.is_empty() && self.waiting.is_empty()
    }

    /// Lets a take of this key go alone, at once, and returns the number of its trip; `None` if it
    /// has to wait.
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

    /// Makes a passenger wait. Returns when it has to check for late trips, if it has to, as it does
    /// after a trip that went alone.
    pub(super) fn wait(&mut self, passenger: P) -> Option<Instant> {
        self.waiting.push(passenger);
        let sees = self.trips.iter().any(|trip| trip.is_alone);
        sees.then(|| self.late_at()).flatten()
    }

    /// Removes the passengers whose callers have left, as they would take the places of others.
    pub(super) fn without(&mut self, has_left: impl FnMut(&mut P) -> bool) -> Vec<P> {
        // If all fit on one trip, checking each costs more than it saves.
        if self.waiting.len() <= MOST_TOGETHER {
            return Vec::new();
        }
        self.waiting.extract_if(.., has_left).collect()
    }

    /// When the first of the trips in flight is late.
    pub(super) fn late_at(&self) -> Option<Instant> {
        self.trips.iter().map(|trip| trip.late_at).min()
    }

    /// Leaves late trips behind. Returns whether there were any.
    pub(super) fn leave_behind(&mut self, now: Instant) -> bool {
        let before = self.trips.len();
        self.trips.retain(|trip| now < trip.late_at);
        self.trips.len() < before
    }

    /// Records that a trip is back.
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

    /// Records that a trip has ended.
    pub(super) fn end(&mut self, number: TripNumber) {
        self.trips.retain(|trip| trip.number != number);
    }

    /// The passengers of the next trip, and its number. If several trips are allowed, an equal
    /// share of all passengers.
    pub(super) fn depart(&mut self, now: Instant) -> Option<(TripNumber, Vec<P>)> {
        let under_way: usize = self.trips.iter().map(|trip| trip.passengers).sum();
        let all = under_way + self.waiting.len();
        let most_trips = (all / ENOUGH_FOR_FURTHER).max(FEW_TRIPS);
        let most_trips = most_trips.min(self.most_trips);
        let shared = self.trips.iter().filter(|trip| !trip.is_alone).count();
        // The trips that went alone count as one: nobody waits for all of them.
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
                // All passengers of a key go together as far as possible: mostly they are one step
                // with the first.
                Some(key) if together.contains(&key) => going.len() < MOST_TOGETHER,
                Some(_) => has_room,
                // A passenger does not overtake others that wait.
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
