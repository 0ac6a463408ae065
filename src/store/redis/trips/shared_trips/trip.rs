//! A trip in flight: its questions, what they are told, and who goes next.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep};

use super::{Departing, SharedTrips, Told, Waiting};
use crate::error::StoreError;
use crate::store::redis::server::Server;
use crate::store::redis::trips::sharing::{Readings, Sharing};
use crate::store::redis::trips::stop::{Others, StopId, TripNumber};

/// A trip in flight. When dropped, whether it is back or was given up, it sends those that wait.
pub(in crate::store::redis) struct Trip<Q: Sharing> {
    server: Server,
    stop_id: StopId,
    /// `None` once it has ended.
    number: Option<TripNumber>,
    questions: PhantomData<fn(Q)>,
}

impl<Q: Sharing> Trip<Q> {
    pub(super) fn new(server: Server, stop_id: StopId, number: TripNumber) -> Self {
        Self {
            server,
            stop_id,
            number: Some(number),
            questions: PhantomData,
        }
    }

    /// Runs with these questions, and then with those that wait for the next trip.
    async fn run(mut self, going: Going<Q>) {
        let mut next = Some(going);
        let mut untold = Vec::new();
        let here = Handle::current();
        // One timer for all trips: resetting it costs nothing, while a new one wakes an idle
        // thread.
        let mut late = pin!(sleep(self.server.waits().for_trips));
        while let Some(going) = next {
            let told = self
                .ask(going, std::mem::take(&mut untold), late.as_mut())
                .await;
            let mut others = self.arrive();
            if others == Others::Back {
                // The server is idle until the questions of the other trip have been asked again.
                let_others_run().await;
                others = self.arrive();
            }
            if others == Others::None {
                // The next questions should be in flight while these continue.
                untold = told;
            } else {
                tell(told);
                // The server is busy, so callers who were told, and ask again, can join the next
                // trip.
                let_others_run().await;
            }
            let mut departing = self.end();
            next = match departing.next() {
                Some((trip, going)) if going.goes_on(&here) => {
                    self = trip;
                    Some(going)
                }
                elsewhere => {
                    spawn_each(elsewhere.into_iter());
                    None
                }
            };
            spawn_each(departing);
        }
        tell(untold);
    }

    /// Asks all of these questions at once. Returns what each is to be told. Once they are in
    /// flight, those of the trip before are told.
    async fn ask(
        &self,
        going: Going<Q>,
        untold: Vec<Untold<Q>>,
        mut late: Pin<&mut Sleep>,
    ) -> Vec<Untold<Q>> {
        let mut waiting = going.begin();
        // Callers who have given up take nothing.
        waiting.retain(|waiting| !waiting.told.is_closed());
        let questions: Vec<_> = waiting.iter().map(|waiting| &*waiting.question).collect();
        let Some(batch) = Q::batch(&questions, self.server.prefix()) else {
            tell(untold);
            return Vec::new();
        };
        for waiting in &mut waiting {
            if let Some(noted) = waiting.question.noted() {
                noted.is_sent_now();
            }
        }
        let answer = self.server.ask_batch(&batch);
        let leave_behind = || SharedTrips::<Q>::leave_behind(&self.server, self.stop_id);
        let late_at = Instant::now() + self.server.waits().for_trips;
        late.as_mut().reset(late_at);
        let answer = {
            let answer = pin!(unless_all_leave(answer, &mut waiting, || tell(untold)));
            once_late(answer, late, leave_behind).await
        };
        // In order, so that what is remembered in the end is the state after the last of them.
        answer.map_or_else(Vec::new, |answer| to_be_told(waiting, answer))
    }

    /// Records that it is back. Returns the state of the other trips from its stop.
    fn arrive(&self) -> Others {
        let mut shard = Q::trips(&self.server).lock(self.stop_id);
        let stop = shard.stops.get_mut(&self.stop_id).zip(self.number);
        stop.map_or(Others::None, |(stop, number)| {
            stop.arrive(number, Instant::now())
        })
    }

    /// Ends. Returns the trips of those that wait.
    fn end(&mut self) -> impl Iterator<Item = (Self, Going<Q>)> + use<Q> {
        let ended = self.number.take();
        let trips = Q::trips(&self.server);
        let next = ended.map(|number| trips.next(self.stop_id, |stop| stop.end(number)));
        departing(&self.server, self.stop_id, next.unwrap_or_default())
    }
}

/// Starts all of these trips.
pub(super) fn spawn_all<Q: Sharing>(server: &Server, stop_id: StopId, next: Departing<Q>) {
    // Mostly there is none, and then nothing should be cloned.
    if !next.is_empty() {
        spawn_each(departing(server, stop_id, next));
    }
}

/// The same. A trip that never begins ends here, and those behind it go: one after the other, as
/// there may be more such trips than the stack has room for.
fn spawn_each<Q: Sharing>(departing: impl Iterator<Item = (Trip<Q>, Going<Q>)>) {
    let mut unbegun: Vec<_> = departing.filter_map(spawn).collect();
    while let Some(mut trip) = unbegun.pop() {
        unbegun.extend(trip.end().filter_map(spawn));
    }
}

/// Starts a trip where its questions wait, as the caller's runtime may not make progress. Returns
/// the trip if it never begins: because nobody waits, or on a runtime that is shutting down.
fn spawn<Q: Sharing>((trip, going): (Trip<Q>, Going<Q>)) -> Option<Trip<Q>> {
    let Some(runtime) = going.runtime().cloned() else {
        return Some(trip);
    };
    let (begin, begun) = oneshot::channel();
    runtime.spawn(async move {
        if let Ok((trip, going)) = begun.await {
            Trip::run(trip, going).await;
        }
    });
    begin.send((trip, going)).err().map(|(trip, _)| trip)
}

fn departing<Q: Sharing>(
    server: &Server,
    stop_id: StopId,
    next: Departing<Q>,
) -> impl Iterator<Item = (Trip<Q>, Going<Q>)> + use<Q> {
    let server = server.clone();
    next.into_iter().map(move |(number, waiting)| {
        let trip = Trip::new(server.clone(), stop_id, number);
        (trip, Going(waiting))
    })
}

/// What to tell a waiting question.
type Untold<Q> = (oneshot::Sender<Told<Q>>, Told<Q>);

fn tell<Q: Sharing>(untold: Vec<Untold<Q>>) {
    for (waits, told) in untold {
        // Fails if the caller has given up meanwhile.
        let _ = waits.send(told);
    }
}

fn tell_not_asked<Q: Sharing>(waiting: impl IntoIterator<Item = Waiting<Q>>) {
    for Waiting { question, told, .. } in waiting {
        let _ = told.send(Told::NotAsked(question));
    }
}

fn to_be_told<Q: Sharing>(
    waiting: Vec<Waiting<Q>>,
    answer: Result<Readings<Q::Read>, StoreError>,
) -> Vec<Untold<Q>> {
    let readings = answer.unwrap_or_else(|error| {
        let each = waiting.iter().map(|_| Err(error.clone()));
        each.collect()
    });
    let each = waiting.into_iter().zip(readings);
    let (mut key, mut changes) = (None, 0);
    let each = each.map(|(waiting, reading)| {
        let Waiting {
            mut question, told, ..
        } = waiting;
        if question.key() != key {
            (key, changes) = (question.key(), 0);
        }
        if let Some(noted) = question.noted() {
            noted.is_behind(changes);
        }
        let what = match reading {
            Ok(read) => Told::by(question, read),
            Err(error) if question.goes_on_after(error.kind()) => Told::OtherForm(question),
            Err(error) => Told::Failed(error),
        };
        if let Told::Decided(decided, question) = &what {
            changes += u32::from(question.has_changed_its_key(decided));
        }
        (told, what)
    });
    each.collect()
}

impl<Q: Sharing> Drop for Trip<Q> {
    fn drop(&mut self) {
        spawn_each(self.end());
    }
}

/// The questions of a trip. If it never begins, without a runtime or on one that is shutting down,
/// they are told so: they may be on another runtime.
pub(super) struct Going<Q: Sharing>(pub(super) Vec<Waiting<Q>>);

impl<Q: Sharing> Going<Q> {
    /// The runtimes of the callers who have not given up.
    fn runtimes(&self) -> impl Iterator<Item = &Handle> {
        let waiting = self.0.iter().filter(|waiting| !waiting.told.is_closed());
        waiting.filter_map(|waiting| waiting.runtime.as_ref())
    }

    fn runtime(&self) -> Option<&Handle> {
        self.runtimes().next()
    }

    /// Whether they can go on the runtime of the trip before. If none of them waits there any more,
    /// that runtime may be about to shut down.
    pub(super) fn goes_on(&self, here: &Handle) -> bool {
        self.runtimes().any(|runtime| runtime.id() == here.id())
    }

    fn begin(mut self) -> Vec<Waiting<Q>> {
        std::mem::take(&mut self.0)
    }
}

impl<Q: Sharing> Drop for Going<Q> {
    fn drop(&mut self) {
        tell_not_asked(self.0.drain(..));
    }
}

/// Continues after the tasks that are ready now. Not by tokio's `yield_now`, which keeps a task on
/// its worker, however busy that is.
async fn let_others_run() {
    let mut is_behind = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_behind, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for the answer. If it takes so long that others should not wait for it any longer, does
/// something meanwhile.
async fn once_late<F: Future>(
    mut answer: Pin<&mut F>,
    mut late: Pin<&mut Sleep>,
    meanwhile: impl FnOnce(),
) -> F::Output {
    let mut meanwhile = Some(meanwhile);
    poll_fn(|cx| {
        let answer = answer.as_mut().poll(cx);
        if answer.is_pending()
            && meanwhile.is_some()
            && late.as_mut().poll(cx).is_ready()
            && let Some(once) = meanwhile.take()
        {
            once();
        }
        answer
    })
    .await
}

/// Waits for the answer; `None` if nobody waits for it any more. A trip has no deadline but its
/// callers': on a connection that swallows everything it would never be back, and nobody else could
/// go. `meanwhile` is done once the question is in flight.
async fn unless_all_leave<T, Q: Sharing>(
    answer: impl Future<Output = T>,
    waiting: &mut [Waiting<Q>],
    meanwhile: impl FnOnce(),
) -> Option<T> {
    let mut answer = pin!(answer);
    let mut all_left = pin!(async {
        for waiting in waiting {
            waiting.told.closed().await;
        }
    });
    let mut meanwhile = Some(meanwhile);
    poll_fn(|cx| {
        let answer = answer.as_mut().poll(cx);
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
        match answer {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => all_left.as_mut().poll(cx).map(|()| None),
        }
    })
    .await
}
