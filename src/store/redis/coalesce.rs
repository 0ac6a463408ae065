//! Coalescing: plain takes of one key that wait for the same trip are asked as one, so that a hot key
//! costs the server one script for each trip, whatever its load.
//!
//! A key of which no take is under way is asked about at once. Those that come while [`MOST_TRIPS`] are
//! under way wait until one of them is back, and then go together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::plain::{Asked, Plain, PlainQueue};
use super::server::Server;
use crate::algorithm::Algorithm;
use crate::error::StoreError;

/// So many trips about one key are under way at once, at most.
const MOST_TRIPS: usize = 1;
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
    trips: usize,
    waiting: Vec<Waiting>,
}

/// A take that waits for the next trip.
struct Waiting {
    asked: Asked,
    told: oneshot::Sender<Told>,
}

/// What a trip has brought for one take.
pub(super) enum Told {
    /// What the key owed when its turn came.
    Debt(u64),
    /// It has to be asked about by the script for everything.
    OtherForm,
    Failed(StoreError),
    /// The trip never began.
    NotAsked,
}

/// How a take goes on.
pub(super) enum Turn {
    /// By itself, at once.
    Go(Trip),
    /// With others.
    Wait(oneshot::Receiver<Told>),
}

impl Coalescing {
    /// Lets a take go, or wait for the next trip.
    pub(super) fn enter(server: &Server, plain: &Plain) -> Turn {
        let this = server.coalescing();
        let key = plain.fingerprint();
        let go = |key| {
            let server = server.clone();
            Turn::Go(Trip { server, key })
        };
        let mut busy = this.lock(key);
        match busy.entry(key) {
            Entry::Vacant(place) => {
                place.insert(Busy {
                    algorithm: plain.algorithm(),
                    trips: 1,
                    waiting: Vec::new(),
                });
                go(Some(key))
            }
            Entry::Occupied(busy) if busy.get().algorithm != plain.algorithm() => go(None),
            Entry::Occupied(mut busy) if busy.get().trips < MOST_TRIPS => {
                busy.get_mut().trips += 1;
                go(Some(key))
            }
            Entry::Occupied(mut busy) => {
                let (told, turn) = oneshot::channel();
                let asked = plain.asked.clone();
                busy.get_mut().waiting.push(Waiting { asked, told });
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
            busy.get_mut().trips -= 1;
            if busy.get().trips == 0 {
                busy.remove();
            }
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
    async fn ask(self, going: Going) {
        let mut waiting = going.begin();
        // Whoever has given up takes nothing.
        waiting.retain(|waiting| !waiting.told.is_closed());
        let Some(queue) = PlainQueue::of(waiting.iter().map(|waiting| &waiting.asked)) else {
            return;
        };
        let subject = queue.subject();
        let answer = self.server.ask_plain(&queue, subject);
        let Some(answer) = unless_all_leave(answer, &mut waiting).await else {
            return;
        };
        // Before anybody is told, so that the next ones are on their way while these go on.
        drop(self);
        let answer = answer.map_err(|error| (error.kind(), Arc::new(error)));
        let mut debts = queue.debts(answer.as_ref().ok().copied().flatten());
        for waiting in waiting {
            let told = match &answer {
                Ok(_) => debts.next().map_or(Told::OtherForm, Told::Debt),
                Err((kind, error)) => {
                    Told::Failed(StoreError::with_source(*kind, Arc::clone(error)))
                }
            };
            // Who has given up meanwhile is not told.
            let _ = waiting.told.send(told);
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
        let going = Going(waiting);
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(trip.ask(going));
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
        for waiting in self.0.drain(..) {
            let _ = waiting.told.send(Told::NotAsked);
        }
    }
}
