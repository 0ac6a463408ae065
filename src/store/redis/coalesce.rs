//! Coalescing: plain takes of one key that wait for the same trip are asked as one, so that a hot key
//! costs the server one script for each trip, whatever its load.
//!
//! A key of which no take is under way is asked about at once. Those that come meanwhile wait until the
//! answer is back, and then go together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::plain::{Plain, PlainQueue};
use super::server::Server;
use crate::algorithm::Algorithm;
use crate::decision::Decisions;
use crate::error::StoreError;
use crate::store::deny_cache::asked::Asked as Noted;

const SHARDS: usize = 32;

/// The keys of which takes are under way.
#[derive(Default)]
pub(super) struct Coalescing {
    shards: [Mutex<HashMap<u128, Busy>>; SHARDS],
}

/// A key of which takes are under way.
struct Busy {
    /// One that is judged otherwise goes by itself.
    algorithm: Algorithm,
    waiting: Vec<Waiting>,
}

/// A take, and who is to be told of its answer for the memory of denials.
pub(super) struct Take {
    pub(super) plain: Plain,
    pub(super) noted: Option<Noted>,
}

/// One that waits for the next trip.
struct Waiting {
    take: Take,
    told: oneshot::Sender<Told>,
}

/// What a trip has brought for one take.
pub(super) enum Told {
    Decided(Decisions),
    /// It has to be asked about by the script for everything.
    OtherForm(Take),
    Failed(StoreError),
}

/// How a take goes on.
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for each question"
)]
pub(super) enum Turn {
    /// By itself, at once.
    Go(Trip, Take),
    /// With others.
    Wait(oneshot::Receiver<Told>),
}

impl Coalescing {
    /// Lets a take go, or wait for the next trip.
    pub(super) fn enter(server: &Server, take: Take) -> Turn {
        let (key, algorithm) = (take.plain.fingerprint(), take.plain.algorithm());
        let go = |key, take| {
            let server = server.clone();
            Turn::Go(Trip { server, key }, take)
        };
        match server.coalescing().lock(key).entry(key) {
            Entry::Vacant(place) => {
                place.insert(Busy {
                    algorithm,
                    waiting: Vec::new(),
                });
                go(Some(key), take)
            }
            Entry::Occupied(busy) if busy.get().algorithm != algorithm => go(None, take),
            Entry::Occupied(mut busy) => {
                let (told, turn) = oneshot::channel();
                busy.get_mut().waiting.push(Waiting { take, told });
                Turn::Wait(turn)
            }
        }
    }

    /// A trip is back: those who go next, together.
    fn next(&self, key: u128) -> Vec<Waiting> {
        let mut keys = self.lock(key);
        let Entry::Occupied(mut busy) = keys.entry(key) else {
            return Vec::new();
        };
        let waiting = std::mem::take(&mut busy.get_mut().waiting);
        if waiting.is_empty() {
            busy.remove();
        }
        waiting
    }

    fn lock(&self, key: u128) -> MutexGuard<'_, HashMap<u128, Busy>> {
        let shard = &self.shards[key as usize % SHARDS];
        // No step under the lock leaves anything half done.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A trip under way. Dropped, whether it is back or was given up, it lets those go who wait.
pub(super) struct Trip {
    server: Server,
    /// `None` of one that nobody waits for.
    key: Option<u128>,
}

impl Trip {
    /// Asks for all of these at once, and tells each.
    async fn ask(self, mut waiting: Vec<Waiting>) {
        // Whoever has given up takes nothing.
        waiting.retain(|waiting| !waiting.told.is_closed());
        let asked = waiting.iter().map(|waiting| &waiting.take.plain.asked);
        let Some(queue) = PlainQueue::of(asked) else {
            return;
        };
        for noted in waiting
            .iter_mut()
            .filter_map(|waiting| waiting.take.noted.as_mut())
        {
            noted.is_sent_now();
        }
        let answer = self.server.ask_plain(&queue, queue.subject()).await;
        let answer = answer.map_err(|error| (error.kind(), Arc::new(error)));
        let mut debts = queue.debts(answer.as_ref().ok().copied().flatten());
        // In their order, so that what is remembered at last is what the last of them has left.
        let told: Vec<_> = waiting
            .into_iter()
            .map(|Waiting { take, told }| {
                let what = match &answer {
                    Ok(_) => match debts.next() {
                        Some(debt) => Told::Decided(take.decided(debt)),
                        None => Told::OtherForm(take),
                    },
                    Err((kind, error)) => {
                        Told::Failed(StoreError::with_source(*kind, Arc::clone(error)))
                    }
                };
                (told, what)
            })
            .collect();
        // Before anybody is told, so that the next ones are on their way while these go on.
        drop(self);
        for (told, what) in told {
            // Who has given up meanwhile is not told.
            let _ = told.send(what);
        }
    }
}

impl Take {
    /// The decision, when the key owed so much.
    pub(super) fn decided(self, debt: u64) -> Decisions {
        let decisions = self.plain.decide(debt);
        if let Some(noted) = self.noted {
            noted.decided(&decisions);
        }
        decisions
    }
}

impl Drop for Trip {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        let waiting = self.server.coalescing().next(key);
        if waiting.is_empty() {
            return;
        }
        let trip = Self {
            server: self.server.clone(),
            key: Some(key),
        };
        // Without a runtime, or on one that is being shut down, they are told by their senders' end.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(trip.ask(waiting));
        }
    }
}
