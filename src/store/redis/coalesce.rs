//! Coalescing: takes of one key that wait for the same trip are asked as one, so that a hot key
//! costs the server one script for each trip, whatever its load.
//!
//! A key of which no take is under way is asked about at once. Those that come meanwhile wait until the
//! answer is back, and then go together.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::server::Server;
use super::take::{Take, Together};
use crate::algorithm::{Algorithm, Reading};
use crate::decision::Decisions;
use crate::error::StoreError;

const SHARDS: usize = 32;
/// So many takes share a trip, at most: a script holds up everybody else.
const MOST_TOGETHER: usize = 256;

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
    /// The trip never began.
    NotAsked(Take),
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
        let (key, algorithm) = (take.asking.fingerprint(), take.asking.algorithm());
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
        let waiting = &mut busy.get_mut().waiting;
        let together = waiting.len().min(MOST_TOGETHER);
        let next: Vec<_> = waiting.drain(..together).collect();
        if next.is_empty() {
            busy.remove();
        }
        next
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
        let asking = waiting.iter().map(|waiting| &waiting.take.asking);
        let Some(together) = Together::of(asking, self.server.prefix()) else {
            return;
        };
        for noted in waiting
            .iter_mut()
            .filter_map(|waiting| waiting.take.noted.as_mut())
        {
            noted.is_sent_now();
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

/// What each is to be told; `None` of a state of another form.
fn tell(
    waiting: Vec<Waiting>,
    answer: Result<Option<Vec<Reading>>, StoreError>,
) -> Vec<(oneshot::Sender<Told>, Told)> {
    let answer = answer.map_err(|error| (error.kind(), Arc::new(error)));
    let each = waiting.into_iter().enumerate();
    each.map(|(position, Waiting { take, told })| {
        let what = match &answer {
            Ok(readings) => match readings.as_ref().and_then(|all| all.get(position)) {
                Some(reading) => Told::Decided(take.decided(*reading)),
                None => Told::OtherForm(take),
            },
            Err((kind, error)) => Told::Failed(StoreError::with_source(*kind, Arc::clone(error))),
        };
        (told, what)
    })
    .collect()
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
