//! `Batcher`: sends questions to the servers, unbatched or together.

use std::collections::hash_map::{Entry, HashMap};
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use redis::Value;
use smallvec::SmallVec;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::queue::{CallId, FEW_BATCHES, Leaving, Others, Queue, Waiting};
use crate::decision::Decisions;
use crate::error::{StoreError, StoreErrorKind};
use crate::sharded::{ShardedArc, ShardedRef};
use crate::store::check::ByFingerprint;
use crate::store::redis::backend::Backend;
use crate::store::redis::connection::Failed;
use crate::store::redis::in_flight::InFlight;
use crate::store::redis::question::{Batch, Path, Question};
use crate::store::redis::reply::Decided;
use crate::store::redis::settings::{Settings, Waits};
use crate::task::InFlightWork;

const SHARDS: usize = 32;
/// With more batches in flight, client and server wait for each other less. But they are smaller, which
/// costs more than it saves for questions that keep the server busier.
const MOST_BATCHES_OF_DEBTS: usize = 4;

/// Clones share everything.
#[derive(Clone)]
pub(in crate::store::redis) struct Batcher(ShardedRef<Shared>);

pub(in crate::store::redis) struct Shared {
    pub(in crate::store::redis) backend: Backend,
    pub(in crate::store::redis) in_flight: InFlight,
    pub(in crate::store::redis) waits: Waits,
    /// What is being given back in the background.
    pub(in crate::store::redis) in_flight_work: InFlightWork,
    queues: [Mutex<Shard>; SHARDS],
    /// Where all of this runs.
    runtime: Handle,
    /// Keeps a thread of the store's own.
    _is_used: Option<oneshot::Sender<Infallible>>,
}

/// A part of the queues: those with calls in flight.
#[derive(Default)]
struct Shard {
    queues: HashMap<QueueId, Queue<Request>, ByFingerprint>,
    /// The highest number of any call, also of queues that are gone, so that a late call never ends
    /// another one.
    last_call: CallId,
}

/// Questions of one script, and in a cluster of one subject. Uniformly distributed there, as the
/// subject is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct QueueId(u128);

/// A question that waits for its reply.
struct Request {
    question: Box<Question>,
    reply: oneshot::Sender<Reply>,
}

/// The question returns with its answer, so that its caller drops it on the thread that made it. A batch
/// that dropped all its questions would contend for the allocators of other threads.
struct Reply {
    answer: Answer,
    question: Box<Question>,
}

/// The answer to a question. Those of its batch are shared, as they are large and moving them costs
/// more.
pub(in crate::store::redis) struct Answer {
    answers: Arc<Vec<Result<Decided, StoreError>>>,
    number: usize,
}

impl Answer {
    fn alone(answer: Result<Decided, StoreError>) -> Self {
        Self {
            answers: Arc::new(vec![answer]),
            number: 0,
        }
    }

    pub(in crate::store::redis) fn decisions(&self) -> Result<Decisions, StoreError> {
        match self.answers.get(self.number) {
            Some(Ok(decided)) => Ok(Decisions::of(decided)),
            Some(Err(error)) => Err(error.clone()),
            // Each question has an answer.
            None => Err(StoreError::new(StoreErrorKind::BadReply)),
        }
    }
}

/// How a question continues.
enum Admission {
    Unbatched(InFlightCall, Box<Question>),
    Queued(oneshot::Receiver<Reply>),
}

/// A call in flight. Dropping it flushes the queue.
struct InFlightCall {
    batcher: Batcher,
    queue: QueueId,
    /// `None` once it has ended.
    call: Option<CallId>,
}

impl std::ops::Deref for Batcher {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl Batcher {
    /// New connections and empty queues on this runtime.
    pub(in crate::store::redis) fn spread(
        settings: &Settings,
        runtime: &Handle,
        is_used: Option<oneshot::Sender<Infallible>>,
    ) -> ShardedArc<Shared> {
        let servers = settings.servers_on(runtime);
        let (prefix, clock) = (settings.prefix.clone(), settings.clock.clone());
        ShardedArc::new(Shared {
            backend: Backend::new(servers, prefix, clock),
            in_flight: InFlight::new(settings.max_in_flight),
            waits: settings.waits,
            in_flight_work: settings.in_flight_work.clone(),
            queues: Default::default(),
            runtime: runtime.clone(),
            _is_used: is_used,
        })
    }

    /// A handle whose references are counted in this thread's place.
    pub(in crate::store::redis) fn of(shared: &ShardedArc<Shared>) -> Self {
        Self(shared.hold())
    }

    /// A handle whose references are counted in the place with this number.
    pub(in crate::store::redis) fn at(shared: &ShardedArc<Shared>, place: usize) -> Self {
        Self(shared.hold_at(place))
    }

    /// Asks a question; in a cluster, its checks are about one subject. The future may be dropped
    /// at any time.
    pub(in crate::store::redis) async fn ask(&self, question: Box<Question>) -> Answer {
        match self.admit(question) {
            Admission::Unbatched(call, mut question) => {
                // Boxed, as the future of waiting questions would otherwise need room for it, too.
                let answers = Box::pin(self.send(&mut [&mut question])).await;
                drop(call);
                let (answers, number) = (Arc::new(answers), 0);
                Answer { answers, number }
            }
            Admission::Queued(reply) => match reply.await {
                Ok(Reply { answer, question }) => {
                    drop(question);
                    answer
                }
                Err(gone) => {
                    let error = StoreError::with_source(StoreErrorKind::Interrupted, gone);
                    // The runtime of the batch is gone.
                    Answer::alone(Err(error.of_this_process()))
                }
            },
        }
    }

    fn admit(&self, question: Box<Question>) -> Admission {
        let (id, most_batches) = self.queue_of(&question);
        let (key, weight) = (question.coalescing_key(), question.weight());
        let (now, reach) = (Instant::now(), self.backend.reach());
        let mut shard = self.lock(id);
        let Shard { queues, last_call } = &mut *shard;
        let new = || Queue::new(most_batches, self.waits.for_batches, *last_call);
        let queue = queues.entry(id).or_insert_with(new);
        if let Some(call) = queue.send_unbatched(key, weight, now, reach) {
            self.backend.begin(queue.work(call));
            drop(shard);
            return Admission::Unbatched(self.in_flight_call(id, call), question);
        }
        let (sender, reply) = oneshot::channel();
        queue.wait(Waiting {
            key,
            weight,
            request: Request {
                question,
                reply: sender,
            },
        });
        let is_to_watch = !std::mem::replace(&mut queue.is_watched, true);
        drop(shard);
        if is_to_watch {
            self.runtime.spawn(self.clone().watch(id));
        }
        Admission::Queued(reply)
    }

    /// The queue of a question, and how many batches of it may be in flight.
    fn queue_of(&self, question: &Question) -> (QueueId, usize) {
        let (script, most_batches) = match question.path() {
            Path::Debts(_) => (0, MOST_BATCHES_OF_DEBTS),
            Path::Composed { parts, .. } => (1 + u128::from(*parts), FEW_BATCHES),
        };
        if self.backend.is_cluster() {
            let subject = question.subject().to_u128();
            return (QueueId(subject ^ script), 1);
        }
        (QueueId(script), most_batches)
    }

    /// Stops waiting for calls that take too long, while requests wait.
    async fn watch(self, id: QueueId) {
        loop {
            let late_at = {
                let mut shard = self.lock(id);
                let Some(queue) = shard.queues.get_mut(&id) else {
                    return;
                };
                let late_at = queue.late_at();
                queue.is_watched = late_at.is_some();
                late_at
            };
            let Some(late_at) = late_at else { return };
            sleep_until(late_at).await;
            self.spawn_all(id, self.flush(id, |_| Duration::ZERO));
        }
    }

    /// Applies `done`, which tells how much work has ended, and returns the batches that leave.
    fn flush(
        &self,
        id: QueueId,
        done: impl FnOnce(&mut Queue<Request>) -> Duration,
    ) -> SmallVec<[Leaving<Request>; 1]> {
        let now = Instant::now();
        let mut leaving = SmallVec::new();
        let mut shard = self.lock(id);
        let Shard { queues, last_call } = &mut *shard;
        let Entry::Occupied(mut entry) = queues.entry(id) else {
            return leaving;
        };
        let queue = entry.get_mut();
        self.backend
            .end(done(queue) + queue.stop_waiting_for_late(now));
        let left = queue.remove_if(|request| request.reply.is_closed());
        while let Some(next) = queue.flush(now, self.backend.reach()) {
            self.backend.begin(queue.work(next.call));
            leaving.push(next);
        }
        if queue.is_idle() {
            *last_call = entry.remove().last_call().max(*last_call);
        }
        drop(shard);
        // They may be many, and need no lock.
        drop(left);
        leaving
    }

    /// Sends these questions as one call, and returns the answer to each.
    async fn send(&self, questions: &mut [&mut Box<Question>]) -> Vec<Result<Decided, StoreError>> {
        let batch = Batch::of(questions, self.backend.prefix());
        Question::leave_now(questions);
        let reply = self.send_batch(&batch).await;
        batch.conclude(questions, reply)
    }

    async fn send_batch(&self, batch: &Batch) -> Result<Value, Failed> {
        let sent = Instant::now();
        let reply = self.backend.send(batch, batch.subject()).await;
        if reply.is_ok() {
            let now = Instant::now();
            self.backend.answered(now - sent, now);
        }
        reply
    }

    fn spawn_all(&self, queue: QueueId, leaving: SmallVec<[Leaving<Request>; 1]>) {
        for Leaving { call, requests } in leaving {
            let call = self.in_flight_call(queue, call);
            // If that runtime has ended, this drops the requests.
            self.runtime.spawn(call.run(requests));
        }
    }

    fn in_flight_call(&self, queue: QueueId, call: CallId) -> InFlightCall {
        InFlightCall {
            batcher: self.clone(),
            queue,
            call: Some(call),
        }
    }

    fn lock(&self, QueueId(id): QueueId) -> MutexGuard<'_, Shard> {
        let shard = &self.queues[id as usize % SHARDS];
        // No step under the lock leaves anything half done.
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightCall {
    /// Sends these requests, and then those that wait for the next batch.
    async fn run(mut self, mut requests: Vec<Request>) {
        let mut pending = Vec::new();
        loop {
            let replies = self.send(requests, std::mem::take(&mut pending)).await;
            let mut others = self.reply();
            if others == Others::Back {
                // The server is idle until the callers of the other batch ask again.
                let_others_run().await;
                others = self.reply();
            }
            if others == Others::None {
                // The next batch should be in flight while these callers continue.
                pending = replies;
            } else {
                notify(replies);
                // The server is busy, so callers who ask again can join the next batch.
                let_others_run().await;
            }
            let mut leaving = self.end();
            if leaving.is_empty() {
                break;
            }
            let next = leaving.remove(0);
            self.call = Some(next.call);
            requests = next.requests;
            self.batcher.spawn_all(self.queue, leaving);
        }
        notify(pending);
    }

    /// Sends these requests as one call, and returns their replies. Once they are in flight, those
    /// of the batch before are notified.
    async fn send(
        &self,
        mut requests: Vec<Request>,
        pending: Vec<(oneshot::Sender<Reply>, Reply)>,
    ) -> Vec<(oneshot::Sender<Reply>, Reply)> {
        // Callers who have given up acquire nothing.
        requests.retain(|request| !request.reply.is_closed());
        if requests.is_empty() {
            notify(pending);
            return Vec::new();
        }
        let mut answers = Vec::new();
        {
            let mut replies: Vec<_> = Vec::with_capacity(requests.len());
            let mut questions: Vec<_> = Vec::with_capacity(requests.len());
            for request in &mut requests {
                questions.push(&mut request.question);
                replies.push(&mut request.reply);
            }
            let mut sent = pin!(self.batcher.send(&mut questions));
            // A batch has only the deadlines of its callers: on a connection that swallows
            // everything, it would never end.
            let mut all_left = pin!(async {
                for reply in replies {
                    reply.closed().await;
                }
            });
            let mut pending = Some(pending);
            poll_fn(|cx| {
                let polled = sent.as_mut().poll(cx);
                if let Some(pending) = pending.take() {
                    notify(pending);
                }
                match polled {
                    Poll::Ready(all) => {
                        answers = all;
                        Poll::Ready(())
                    }
                    Poll::Pending => all_left.as_mut().poll(cx),
                }
            })
            .await;
        }
        let (each, answers) = (requests.into_iter().enumerate(), Arc::new(answers));
        let each = each.map(|(number, Request { question, reply })| {
            let answers = Arc::clone(&answers);
            let answer = Answer { answers, number };
            (reply, Reply { answer, question })
        });
        each.collect()
    }

    /// Records that the reply is there. Returns the state of the other calls of its queue.
    fn reply(&self) -> Others {
        let mut shard = self.batcher.lock(self.queue);
        let queue = shard.queues.get_mut(&self.queue);
        queue.zip(self.call).map_or(Others::None, |(queue, call)| {
            queue.reply(call, Instant::now())
        })
    }

    /// Ends. Returns the batches that leave.
    fn end(&mut self) -> SmallVec<[Leaving<Request>; 1]> {
        let ended = self.call.take();
        let flushed = ended.map(|call| self.batcher.flush(self.queue, |queue| queue.end(call)));
        flushed.unwrap_or_default()
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

/// Sending fails for callers that have left meanwhile.
fn notify(replies: Vec<(oneshot::Sender<Reply>, Reply)>) {
    for (waits, reply) in replies {
        let _ = waits.send(reply);
    }
}

impl Drop for InFlightCall {
    fn drop(&mut self) {
        let leaving = self.end();
        self.batcher.spawn_all(self.queue, leaving);
    }
}
