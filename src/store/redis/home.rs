//! `Home`: the runtime on which everything of a store runs.
//!
//! The runtime that made a connection also reads and writes it, and all questions of a batch wait for
//! one task. So a runtime that ends, stands still between two calls of `block_on`, or has its only
//! worker blocked, would delay the questions of other runtimes. A store that one runtime uses lives
//! there. Once a second runtime uses it, it moves to its own thread for good, with new connections; the
//! old ones end with the last question over them.
//!
//! Connections of a user's pool belong to the runtime that made them, which may be another one.

use std::convert::Infallible;
use std::future::ready;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use std::{io, thread};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::batch::{Batcher, Shared};
use super::settings::Settings;
use crate::error::{StoreError, StoreErrorKind};
use crate::sharded::{Locked, ShardedArc};
use crate::task::is_ending;
use crate::trace;

/// The thread of a dropped store ends after this time at the latest. Places that it could not give back
/// by then lapse.
const LAST_RELEASES: Duration = Duration::from_secs(60);

pub(super) struct Home {
    settings: Settings,
    /// Whether the store lives on its own thread; `None` if it may move there.
    own_thread: Option<bool>,
    /// Where it lives until it moves; one copy for each thread.
    first: Locked<Option<First>>,
    own: OnceLock<OwnThread>,
    /// Held while it settles or moves.
    settling: Mutex<()>,
}

/// The first runtime.
#[derive(Clone)]
struct First {
    runtime: Handle,
    batcher: Batcher,
}

struct OwnThread {
    runtime: Handle,
    shared: ShardedArc<Shared>,
    /// Closed when the store is gone.
    _is_there: oneshot::Sender<Infallible>,
}

/// Where a question runs.
struct Place {
    batcher: Batcher,
    /// Another runtime than the current one.
    elsewhere: Option<Handle>,
}

/// Work of the store for a caller.
pub(super) type Work<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

impl Home {
    pub(super) fn new(settings: Settings, own_thread: Option<bool>) -> Self {
        Self {
            settings,
            own_thread,
            first: Locked::new(|| None),
            own: OnceLock::new(),
            settling: Mutex::default(),
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The runtime of the store's own thread, if it has one.
    pub(super) fn own_runtime(&self) -> Option<&Handle> {
        Some(&self.own.get()?.runtime)
    }

    /// Runs this work at home, for a caller on this runtime. If the runtimes are the same, as is
    /// usual, returns the work itself.
    pub(super) fn run<T: Send + 'static>(
        &self,
        here: Option<Handle>,
        work: impl FnOnce(Batcher) -> Work<T>,
    ) -> Work<T> {
        match self.place(here) {
            Ok(Place {
                batcher,
                elsewhere: None,
            }) => work(batcher),
            Ok(Place {
                batcher,
                elsewhere: Some(runtime),
            }) => Box::pin(done_on(runtime, work(batcher))),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }

    fn place(&self, here: Option<Handle>) -> Result<Place, StoreError> {
        if let Some(own) = self.own.get() {
            return Ok(own.place());
        }
        let known = self.first.here();
        match known
            .as_ref()
            .and_then(|first| first.place_at(here.as_ref()))
        {
            Some(place) => Ok(place),
            None => {
                drop(known);
                self.settle(here)
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn settle(&self, here: Option<Handle>) -> Result<Place, StoreError> {
        let settling = self.settling.lock();
        let _settling = settling.unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = self.own.get() {
            return Ok(own.place());
        }
        let first = self.first.here().clone();
        let known = first.as_ref().and_then(|it| it.place_at(here.as_ref()));
        if let Some(place) = known {
            return Ok(place);
        }
        match (first, here, self.own_thread) {
            (None, Some(here), None | Some(false)) => Ok(self.live_on(&here)),
            (Some(first), Some(here), Some(false)) if is_ending(&first.runtime) => {
                Ok(self.live_on(&here))
            }
            (Some(first), _, Some(false)) => Ok(Place {
                batcher: first.batcher,
                elsewhere: Some(first.runtime),
            }),
            (None, None, Some(false)) => Err(of_runtimes("there is no tokio runtime")),
            (_, _, Some(true)) => self.move_out("own_thread is set"),
            (Some(first), _, None) if is_ending(&first.runtime) => {
                self.move_out("its runtime has ended, and another one uses it")
            }
            (_, Some(_), None) => self.move_out("a second runtime uses it"),
            (_, None, None) => self.move_out("it is used outside of any runtime"),
        }
    }

    fn live_on(&self, runtime: &Handle) -> Place {
        let shared = Batcher::spread(&self.settings, runtime, None);
        self.first.set_all(|place| {
            let (runtime, batcher) = (runtime.clone(), Batcher::at(&shared, place));
            Some(First { runtime, batcher })
        });
        Place {
            batcher: Batcher::of(&shared),
            elsewhere: None,
        }
    }

    fn move_out(&self, reason: &'static str) -> Result<Place, StoreError> {
        let own = OwnThread::start(&self.settings).map_err(of_runtimes)?;
        trace::info!(
            store = &*self.settings.name,
            reason = reason,
            "rate limiting: the store moves to its own thread"
        );
        let place = self.own.get_or_init(|| own).place();
        self.first.set_all(|_| None);
        Ok(place)
    }
}

impl First {
    /// If that is the current runtime.
    fn place_at(&self, here: Option<&Handle>) -> Option<Place> {
        let is_here = here.is_some_and(|here| here.id() == self.runtime.id());
        is_here.then(|| Place {
            batcher: self.batcher.clone(),
            elsewhere: None,
        })
    }
}

impl OwnThread {
    /// Starts the thread. It ends after the store is dropped and its background work is done. The
    /// drop does not wait for that, since it may happen on this same thread.
    fn start(settings: &Settings) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let runtime = Ending(Some(runtime));
        let (is_there, is_gone) = oneshot::channel();
        let (is_used, is_unused) = oneshot::channel();
        let ends = async {
            let _ = is_gone.await;
            let _ = tokio::time::timeout(LAST_RELEASES, is_unused).await;
        };
        let name = "tower-throttle".to_owned();
        thread::Builder::new().name(name).spawn(move || {
            if let Some(runtime) = &runtime.0 {
                runtime.block_on(ends);
            }
        })?;
        Ok(Self {
            shared: Batcher::spread(settings, &handle, Some(is_used)),
            runtime: handle,
            _is_there: is_there,
        })
    }

    fn place(&self) -> Place {
        Place {
            batcher: Batcher::of(&self.shared),
            elsewhere: Some(self.runtime.clone()),
        }
    }
}

/// A runtime that may be dropped anywhere, even on another runtime.
struct Ending(Option<Runtime>);

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Spawns the work on that runtime when first polled. Dropping the future aborts it.
async fn done_on<T: Send + 'static>(runtime: Handle, work: Work<T>) -> Result<T, StoreError> {
    if Handle::try_current().is_ok_and(|here| here.id() == runtime.id()) {
        // Polled at once, so that permits are given back before the next question.
        return work.await;
    }
    let mut task = Aborting(runtime.spawn(work));
    match (&mut task.0).await {
        Ok(done) => done,
        Err(ended) if ended.is_panic() => resume_unwind(ended.into_panic()),
        Err(ended) => {
            let error = StoreError::with_source(StoreErrorKind::Interrupted, ended);
            Err(error.of_this_process())
        }
    }
}

struct Aborting<T>(JoinHandle<T>);

impl<T> Drop for Aborting<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn of_runtimes(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::with_source(StoreErrorKind::Unreachable, why).of_this_process()
}
