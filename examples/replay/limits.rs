//! `Limits`: the limits of a file over the times of the log.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::future::{Ready, ready};
use std::path::Path;
use std::pin::Pin;
use std::task::Poll;

use bytes::Bytes;
use futures_util::poll;
use http::{Request, Response};
use http_body_util::Empty;
use toml::{Table, Value};
use tower::util::Oneshot;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::{
    Config, ManualClock, MemoryStore, Micros, Mode, PolicySummary, RateLimit, Wrapped,
};

use crate::line::{Answer, Line};
use crate::origin::Origin;
use crate::tally::Tally;

type Answered = Result<Response<Empty<Bytes>>, Infallible>;
type Logged = tower::util::ServiceFn<fn(Request<()>) -> Ready<Answered>>;
type Limited = RateLimit<Logged, Wrapped>;
type Delayed = Pin<Box<Oneshot<Limited, Request<()>>>>;

/// The layer that serves the limits of a file, around a service that answers as the log says, on a
/// clock that shows the times of the log.
pub(crate) struct Limits {
    pub(crate) file: String,
    pub(crate) policies: Vec<PolicySummary>,
    pub(crate) tally: Tally,
    pub(crate) requests: u64,
    pub(crate) denied: u64,
    clock: ManualClock,
    origin: Origin,
    layered: Limited,
    /// Requests that wait until they fit, by the time at which they do.
    delayed: BTreeMap<(Micros, u64), Delayed>,
}

impl Limits {
    /// Reads a file. Neither its store nor its variables are needed.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is none.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
        let table = text.parse::<Table>();
        let mut table = table.map_err(|error| format!("{file}: {error}"))?;
        table.insert("store".to_owned(), "memory".into());
        for of_store in ["tls", "prefix", "secret"] {
            table.remove(of_store);
        }
        show_subjects(&mut table);
        let config = table.clone().try_into::<Config>();
        let config = config.map_err(|error| format!("{file}: {error}"))?;

        let clock = ManualClock::new();
        let tally = Tally::new(clock.clone());
        // Nothing is forgotten before it is over.
        let store = MemoryStore::builder().capacity(usize::MAX);
        let limiter = config.clone().observe(tally.clone());
        let limiter = limiter.limiter(store.clock(clock.clone()).build());
        let limiter = limiter.map_err(|error| format!("{file}: {error}"))?;
        for policy in limiter.summaries() {
            if left_out(&policy).is_some() {
                let _ = limiter.set_mode(&policy.name, Mode::Off);
            }
        }
        let policies = limiter.summaries();
        let decides = policies.iter().filter(|policy| left_out(policy).is_none());
        tally.expect(decides.map(|policy| policy.name.clone()));
        let layer = config.layer(limiter).wrap_body();
        let logged: fn(Request<()>) -> Ready<Answered> = answer_as_logged;
        Ok(Self {
            file,
            policies,
            tally,
            requests: 0,
            denied: 0,
            clock,
            origin: Origin::of(&table),
            layered: layer.layer(service_fn(logged)),
            delayed: BTreeMap::new(),
        })
    }

    /// Sends a request of the log, and returns whether it is denied.
    pub(crate) async fn send(&mut self, line: &Line) -> bool {
        self.finish_until(line.at).await;
        self.clock.set(line.at);
        self.tally.counts().delay = Default::default();
        self.requests += 1;
        let mut request = line.request.clone();
        self.origin.put(&mut request, line.address);
        let mut response = Box::pin(self.layered.clone().oneshot(request));
        let is_denied = match poll!(&mut response) {
            Poll::Ready(Ok(response)) => response.extensions().get::<IsLogged>().is_none(),
            Poll::Pending => {
                let delay = self.tally.counts().delay;
                let due = line.at.saturating_add(delay.into());
                self.delayed.insert((due, self.requests), response);
                false
            }
        };
        self.denied += u64::from(is_denied);
        is_denied
    }

    /// Lets those requests go on whose wait is over by then. Time is paused, so this waits for no
    /// real time.
    pub(crate) async fn finish_until(&mut self, until: Micros) {
        while let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= until
        {
            let ((due, _), response) = entry.remove_entry();
            self.clock.set(due);
            let Ok(_) = response.await;
        }
    }
}

/// Marks a response that is not the layer's.
#[derive(Clone)]
struct IsLogged;

fn answer_as_logged(mut request: Request<()>) -> Ready<Answered> {
    let mut response = Response::new(Empty::new());
    if let Some(answer) = request.extensions_mut().remove::<Answer>() {
        *response.status_mut() = answer.status;
        if let Some(status) = answer.grpc_status {
            response.headers_mut().insert("grpc-status", status);
        }
    }
    response.extensions_mut().insert(IsLogged);
    ready(Ok(response))
}

/// Why a policy decides nothing here, if it does not.
pub(crate) fn left_out(policy: &PolicySummary) -> Option<&'static str> {
    if policy.algorithm == "concurrency" {
        Some("left out: the log does not say how long requests took")
    } else if policy.routes == ["no request"] {
        Some("left out: handlers ask it, and the log does not say when")
    } else if policy.mode == Mode::Off {
        Some("off")
    } else {
        None
    }
}

/// The log shows whom policies deny anyway. But headers may hold secrets, so there it is up to the
/// file.
fn show_subjects(file: &mut Table) {
    let policies = file.get_mut("policy").and_then(Value::as_array_mut);
    for policy in policies.into_iter().flatten() {
        if let Some(policy) = policy.as_table_mut()
            && !policy.get("key").is_some_and(reads_header)
        {
            policy.insert("show_subject".to_owned(), true.into());
        }
    }
}

fn reads_header(key: &Value) -> bool {
    match key {
        Value::String(key) => key.starts_with("header:"),
        Value::Array(parts) => parts.iter().any(reads_header),
        _ => false,
    }
}
