//! `Queue`: which requests are sent at once, which wait for others, and which are sent together. It
//! knows no clock and no lock.

use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::store::check::{ByFingerprint, FingerprintSet};
use crate::store::redis::connection::{Reach, work_of};

/// At most this many requests share a batch, since a script blocks the server.
const MOST_TOGETHER: usize = 256;
/// At most as many as take the server as long as this many lone acquires, for the same reason.
const MOST_WEIGHT: usize = 512;
/// This many batches are in flight for any number of requests: one is prepared while the server
/// carries out the other.
pub(super) const FEW_BATCHES: usize = 2;
/// Further batches need at least this many requests each. A batch costs both sides as much as some
/// requests, and behind HTTP a few large batches serve more requests than many small ones.
const ENOUGH_FOR_FURTHER: usize = 24;
/// How many requests are sent unbatched to a near server while further batches are allowed: while no
/// request waits, so few are answered sooner alone.
const MOST_UNBATCHED: usize = 8;
/// To a server that is far, a batch is sent once there is room for this part of the work that may
/// be in flight.
const LEAST_PART_OF_BUDGET: u32 = 4;

/// Identifies a call of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CallId(u64);

/// The requests that wait for a script, and the calls in flight.
///
/// To a near server, a request waits while its key is in flight, and then is sent together with all
/// others about that key: a hot key costs one step of each batch. A request about several keys does not
/// wait for its keys, one of which is mostly shared by all requests. No decision depends on this, since
/// the server evaluates calls in the order in which they are sent. To a far server, waiting would cost
/// more than it saves.
pub(super) struct Queue<R> {
    /// How many batches may be in flight while the server is near or busy.
    most_batches: usize,
    /// How long a call is waited for; after that others are sent as if it had ended.
    patience: Duration,
    waiting: Vec<Waiting<R>>,
    calls: SmallVec<[Call; 4]>,
    last_call: CallId,
    /// Whether a task looks for calls that take longer than is waited for.
    pub(super) is_watched: bool,
}

/// A request that waits.
pub(super) struct Waiting<R> {
    /// Identifies its key; `None` for a request about several keys.
    pub(super) key: Option<u128>,
    /// Its cost for the server, in lone acquires; at least one.
    pub(super) weight: usize,
    pub(super) request: R,
}

/// A call in flight.
struct Call {
    id: CallId,
    is_unbatched: bool,
    /// From then on it is no longer waited for.
    late_at: Instant,
    is_back: bool,
    requests: usize,
    work: Duration,
    keys: Keys,
}

/// The state of the other calls of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Others {
    None,
    InFlight,
    /// The reply to one of them is there, but not all of its requests have it.
    Back,
}

/// The keys of a call.
enum Keys {
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

/// Requests that are sent together.
pub(super) struct Leaving<R> {
    pub(super) call: CallId,
    pub(super) requests: Vec<R>,
}

impl<R> Queue<R> {
    /// A queue whose calls are numbered from here on.
    pub(super) fn new(most_batches: usize, patience: Duration, last_call: CallId) -> Self {
        Self {
            most_batches,
            patience,
            waiting: Vec::new(),
            calls: SmallVec::new(),
            last_call,
            is_watched: false,
        }
    }

    pub(super) fn last_call(&self) -> CallId {
        self.last_call
    }

    /// Whether nothing is in flight, and no request waits.
    pub(super) fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.waiting.is_empty()
    }

    /// Sends a request of this key unbatched, if it may be; otherwise it has to wait.
    pub(super) fn send_unbatched(
        &mut self,
        key: Option<u128>,
        weight: usize,
        now: Instant,
        reach: Reach,
    ) -> Option<CallId> {
        let may_go = match reach {
            // A request that is heavier than the whole budget would otherwise never be sent.
            Reach::Far { room, .. } => {
                self.waiting.is_empty() && (self.calls.is_empty() || work_of(weight) <= room)
            }
            Reach::Near => {
                self.has_room_for_one()
                    && match key {
                        Some(key) => !is_in_flight(&self.calls, key),
                        None => self.waiting.is_empty(),
                    }
            }
        };
        may_go.then(|| self.begin(1, weight, Keys::One(key), now))
    }

    fn has_room_for_one(&self) -> bool {
        let in_flight = self.calls.len();
        in_flight < self.most_batches.min(FEW_BATCHES)
            || (self.most_batches > FEW_BATCHES
                && in_flight < MOST_UNBATCHED
                && self.waiting.is_empty()
                && self.calls.iter().all(|call| call.is_unbatched))
    }

    pub(super) fn wait(&mut self, waiting: Waiting<R>) {
        self.waiting.push(waiting);
    }

    /// Removes the requests whose callers have left, if there are too many for one batch.
    pub(super) fn remove_if(&mut self, has_left: impl Fn(&R) -> bool) -> Vec<Waiting<R>> {
        // If all fit into one batch, checking each costs more than it saves.
        if self.waiting.len() <= MOST_TOGETHER {
            return Vec::new();
        }
        self.waiting
            .extract_if(.., |waiting| has_left(&waiting.request))
            .collect()
    }

    /// When the first of the calls in flight has taken too long, if a request waits.
    pub(super) fn late_at(&self) -> Option<Instant> {
        let late_at = || self.calls.iter().map(|call| call.late_at).min();
        (!self.waiting.is_empty()).then(late_at).flatten()
    }

    /// Stops waiting for calls that take too long. Returns their work, which no longer counts as
    /// in flight.
    pub(super) fn stop_waiting_for_late(&mut self, now: Instant) -> Duration {
        let mut work = Duration::ZERO;
        self.calls.retain(|call| {
            let is_late = call.late_at <= now;
            work += if is_late { call.work } else { Duration::ZERO };
            !is_late
        });
        work
    }

    /// Records that the reply to a call is there.
    pub(super) fn reply(&mut self, id: CallId, now: Instant) -> Others {
        let mut others = Others::None;
        for call in &mut self.calls {
            if call.id == id {
                call.is_back = true;
                call.late_at = now + self.patience;
            } else if call.is_back {
                others = Others::Back;
            } else if others == Others::None {
                others = Others::InFlight;
            }
        }
        others
    }

    /// Records that a call has ended. Returns its work, unless it is no longer waited for.
    pub(super) fn end(&mut self, id: CallId) -> Duration {
        let ended = self.calls.iter().position(|call| call.id == id);
        ended.map_or(Duration::ZERO, |at| self.calls.remove(at).work)
    }

    /// The requests that are sent now, if any. Their work counts as in flight from now on.
    pub(super) fn flush(&mut self, now: Instant, reach: Reach) -> Option<Leaving<R>> {
        if self.waiting.is_empty() {
            return None;
        }
        let (room, weight) = match reach {
            Reach::Near => (self.share_of_all()?, MOST_WEIGHT),
            Reach::Far { room, budget } => (MOST_TOGETHER, self.weight_for(room, budget)?),
        };
        let mut together = FingerprintSet::with_capacity_and_hasher(room, ByFingerprint);
        let (mut going, mut heavy, mut do_all_go) = (0, 0, true);
        let goes = |waiting: &mut Waiting<R>| {
            let heavier = heavy + waiting.weight;
            let has_room = going < room && (going == 0 || heavier <= weight);
            let goes = match waiting.key {
                Some(key) if reach == Reach::Near && is_in_flight(&self.calls, key) => false,
                // All requests about a key are sent together if possible: mostly they are one step
                // with the first.
                Some(key) if together.contains(&key) => going < MOST_TOGETHER,
                Some(_) => has_room,
                // It does not overtake others that wait.
                None => has_room && do_all_go,
            };
            if goes {
                going += 1;
                if waiting.key.is_none_or(|key| together.insert(key)) {
                    heavy = heavier;
                }
            }
            do_all_go &= goes;
            goes
        };
        let leaving = self.waiting.extract_if(.., goes);
        let leaving: Vec<_> = leaving.map(|waiting| waiting.request).collect();
        if leaving.is_empty() {
            return None;
        }
        let call = self.begin(leaving.len(), heavy, Keys::Many(together), now);
        Some(Leaving {
            call,
            requests: leaving,
        })
    }

    /// How many requests the next batch to a near server may have: an equal share of all, including
    /// those in flight. `None` if no batch may be sent.
    fn share_of_all(&self) -> Option<usize> {
        let in_flight: usize = self.calls.iter().map(|call| call.requests).sum();
        let all = in_flight + self.waiting.len();
        let most_batches = (all / ENOUGH_FOR_FURTHER).max(FEW_BATCHES);
        let most_batches = most_batches.min(self.most_batches);
        let batches = self.calls.iter().filter(|call| !call.is_unbatched).count();
        // Unbatched calls count as one: no request waits for all of them.
        let calls = batches + usize::from(batches < self.calls.len());
        (calls < most_batches).then(|| all.div_ceil(most_batches).min(MOST_TOGETHER))
    }

    /// How heavy the next batch to a far server may be. `None` if no batch may be sent.
    fn weight_for(&self, room: Duration, budget: Duration) -> Option<usize> {
        let all: usize = self.waiting.iter().map(|waiting| waiting.weight).sum();
        if self.calls.is_empty() || work_of(all) <= room {
            return Some(MOST_WEIGHT);
        }
        let is_worthwhile = room >= budget / LEAST_PART_OF_BUDGET;
        is_worthwhile.then(|| {
            let mut weight = MOST_WEIGHT;
            while weight > 1 && work_of(weight) > room {
                weight /= 2;
            }
            weight
        })
    }

    fn begin(&mut self, requests: usize, weight: usize, keys: Keys, now: Instant) -> CallId {
        self.last_call = CallId(self.last_call.0 + 1);
        self.calls.push(Call {
            id: self.last_call,
            is_unbatched: matches!(keys, Keys::One(_)),
            late_at: now + self.patience,
            is_back: false,
            requests,
            work: work_of(weight),
            keys,
        });
        self.last_call
    }

    /// The work of a call that has just begun.
    pub(super) fn work(&self, id: CallId) -> Duration {
        let call = self.calls.iter().rfind(|call| call.id == id);
        call.map_or(Duration::ZERO, |call| call.work)
    }
}

fn is_in_flight(calls: &[Call], key: u128) -> bool {
    calls.iter().any(|call| call.keys.has(key))
}

#[cfg(test)]
mod tests;
