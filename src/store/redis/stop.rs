//! `Stop`: where takes wait for a trip, and which of them go on the next one.

use smallvec::SmallVec;

use super::fingerprints::{ByFingerprint, FingerprintSet};

/// So many takes share a trip, at most: a script holds up everybody else.
const MOST_TOGETHER: usize = 256;
/// So many keys are on a trip, at most, where takes have several, for the same reason.
const MOST_KEYS: usize = 256;

/// What waits at a stop.
pub(super) trait Passenger {
    /// What its keys are known by, one at least.
    fn keys(&self) -> &[u128];
}

/// A stop: the trips under way from it, and who waits for the next. No key is ever on two of them, so
/// that the takes of a key are judged in the order in which they came, those of several in that of each.
pub(super) struct Stop<P> {
    most_trips: usize,
    trips: SmallVec<[Trip; 2]>,
    last_number: u64,
    waiting: Vec<P>,
}

/// A trip under way.
struct Trip {
    number: u64,
    is_back: bool,
    takes: usize,
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

enum Keys {
    /// Of one take.
    Few(SmallVec<[u128; 1]>),
    Many(FingerprintSet),
}

impl Keys {
    fn has(&self, key: u128) -> bool {
        match self {
            Self::Few(keys) => keys.contains(&key),
            Self::Many(keys) => keys.contains(&key),
        }
    }
}

impl<P: Passenger> Stop<P> {
    /// A stop that so many trips may be under way from.
    pub(super) fn new(most_trips: usize) -> Self {
        Self {
            most_trips,
            trips: SmallVec::new(),
            last_number: 0,
            waiting: Vec::new(),
        }
    }

    /// Whether nothing is under way, and nobody waits.
    pub(super) fn is_deserted(&self) -> bool {
        self.trips.is_empty() && self.waiting.is_empty()
    }

    /// Lets a take of these keys go by itself, at once: the number of its trip. `None` when it has to wait.
    pub(super) fn go_alone(&mut self, keys: &[u128]) -> Option<u64> {
        let may_go = self.trips.len() < self.most_trips
            && !self.are_under_way(keys)
            // Those who wait for one of several keys have come first for the others, too.
            && (keys.len() == 1 || !self.are_waited_for(keys));
        may_go.then(|| self.begin(1, Keys::Few(keys.into())))
    }

    pub(super) fn wait(&mut self, passenger: P) {
        self.waiting.push(passenger);
    }

    /// A trip is back.
    pub(super) fn arrive(&mut self, number: u64) -> Others {
        let mut others = Others::None;
        for trip in &mut self.trips {
            if trip.number == number {
                trip.is_back = true;
            } else if trip.is_back {
                others = Others::Back;
            } else if others == Others::None {
                others = Others::UnderWay;
            }
        }
        others
    }

    /// A trip is over.
    pub(super) fn end(&mut self, number: u64) {
        self.trips.retain(|trip| trip.number != number);
    }

    /// Those who go together next, and the number of their trip. Half of those there are, where there may
    /// be two trips: so that one is got ready while the other one is being carried out.
    pub(super) fn depart(&mut self) -> Option<(u64, Vec<P>)> {
        if self.waiting.is_empty() || self.trips.len() >= self.most_trips {
            return None;
        }
        let under_way: usize = self.trips.iter().map(|trip| trip.takes).sum();
        let share = (under_way + self.waiting.len()).div_ceil(self.most_trips);
        let room = share.min(MOST_TOGETHER);
        let mut keys = FingerprintSet::with_capacity_and_hasher(room, ByFingerprint);
        // Of those who stay and have several: nobody who comes later goes before them.
        let mut kept = FingerprintSet::default();
        let (mut going, mut staying) = (Vec::with_capacity(room), Vec::new());
        for passenger in std::mem::take(&mut self.waiting) {
            let own = passenger.keys();
            let goes = going.len() < MOST_TOGETHER
                && (going.is_empty() || keys.len() + own.len() <= MOST_KEYS)
                && !self.are_under_way(own)
                && !own.iter().any(|key| kept.contains(key))
                // All of a key who can, go together.
                && (going.len() < share || own.iter().any(|key| keys.contains(key)));
            if goes {
                keys.extend(own);
                going.push(passenger);
            } else {
                if own.len() > 1 {
                    kept.extend(own);
                }
                staying.push(passenger);
            }
        }
        self.waiting = staying;
        if going.is_empty() {
            return None;
        }
        Some((self.begin(going.len(), Keys::Many(keys)), going))
    }

    fn begin(&mut self, takes: usize, keys: Keys) -> u64 {
        self.last_number += 1;
        self.trips.push(Trip {
            number: self.last_number,
            is_back: false,
            takes,
            keys,
        });
        self.last_number
    }

    fn are_under_way(&self, keys: &[u128]) -> bool {
        let mut trips = self.trips.iter();
        trips.any(|trip| keys.iter().any(|key| trip.keys.has(*key)))
    }

    fn are_waited_for(&self, keys: &[u128]) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|passenger| passenger.keys().iter().any(|key| keys.contains(key)))
    }
}

#[cfg(test)]
mod tests;
