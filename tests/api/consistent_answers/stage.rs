//! A limiter behind a layer, and clients that all do the same, so that each of them can go on
//! differently.

use std::convert::Infallible;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::{
    Decision, DecisionEvent, DecisionResult, Key, Limiter, Policy, QuotaHeaders, RateLimitLayer,
    Rejection, Rules, TopDenied, Wrapped,
};

use super::history::{Operation, Step};
use super::policies::{Drawn, NAMES};
use support::asked::decision;
use support::bench::Bench;

pub(crate) struct Stage<'a> {
    pub(crate) bench: &'a Bench,
    /// What the policies in force are, in the order of [`NAMES`].
    pub(crate) policies: Vec<Drawn>,
    limiter: Limiter,
    layer: RateLimitLayer<Wrapped>,
    events: Arc<Mutex<Vec<Event>>>,
    /// Keeps apart the clients of several stages over one store.
    number: usize,
    top: TopDenied,
    denials: usize,
}

/// A decision that an observer got.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) policy: String,
    pub(crate) decision: Decision,
    result: DecisionResult,
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) rejection: Option<Rejection>,
}

/// How a request is sent.
#[derive(Clone, Copy)]
pub(crate) enum How {
    Http,
    Grpc,
    /// With a deadline.
    GrpcWithin(u32),
}

impl Response {
    /// Whether a call over gRPC was let through.
    pub(crate) fn is_denied_over_grpc(&self) -> bool {
        self.headers.contains_key("grpc-status")
    }

    pub(crate) fn text(&self, header: &str) -> Option<&str> {
        let value = self.headers.get(header)?;
        Some(value.to_str().unwrap())
    }

    pub(crate) fn number(&self, header: &str) -> Option<u64> {
        self.text(header).map(|text| text.parse().unwrap())
    }
}

fn policies(drawn: &[Drawn]) -> impl Iterator<Item = Policy> {
    let named = NAMES.into_iter().zip(drawn);
    named.map(|(name, drawn)| drawn.policy(name))
}

impl<'a> Stage<'a> {
    /// `None` if the limits make no sense.
    pub(crate) fn open(bench: &'a Bench, drawn: &[Drawn]) -> Option<Self> {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let noted = Arc::clone(&events);
        let note = move |event: &DecisionEvent<'_>| {
            noted.lock().unwrap().push(Event {
                policy: event.policy.to_owned(),
                decision: *event.decision,
                result: event.result(),
            });
        };
        let never = Duration::from_secs(1 << 40);
        let top = TopDenied::builder(1_000).half_life(never).build();
        let builder = bench.builder(policies(drawn)).on_decision(note);
        let limiter = builder.observe(top.clone()).build().ok()?;
        let headers = QuotaHeaders::DRAFT_11
            .and(QuotaHeaders::DRAFT_6)
            .and(QuotaHeaders::X_RATELIMIT_DELTA);
        Some(Self {
            bench,
            policies: drawn.to_vec(),
            layer: RateLimitLayer::new(limiter.clone())
                .headers(headers)
                .wrap_body(),
            limiter,
            events,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            top,
            denials: 0,
        })
    }

    /// Changes the numbers of all limits, if they still make sense then.
    pub(crate) fn change(&mut self) {
        let changed: Vec<_> = self.policies.iter().map(Drawn::changed).collect();
        let rules = Rules::new(policies(&changed));
        if self.limiter.replace(rules).is_ok() {
            self.policies = changed;
        }
    }

    /// The events since the last call.
    pub(crate) fn take_events(&mut self) -> Vec<Event> {
        let events = std::mem::take(&mut *self.events.lock().unwrap());
        let is_denial = |event: &&Event| {
            matches!(
                event.result,
                DecisionResult::Denied
                    | DecisionResult::DeniedFromMemory
                    | DecisionResult::ShadowDenied
            )
        };
        self.denials += events.iter().filter(is_denial).count();
        events
    }

    /// The list of those denied most counts each denial once.
    pub(crate) fn lists_each_denial(&self) {
        let listed: u64 = self.top.list().iter().map(|entry| entry.denials).sum();
        assert_eq!(listed, self.denials as u64);
    }

    fn user(&self, client: usize) -> String {
        format!("{}-{client}", self.number)
    }

    fn other(&self, client: usize, step: &Step) -> String {
        format!("{}/{}", self.user(client), step.other)
    }

    /// The client's key under this policy.
    fn key(&self, client: usize, policy: usize, step: &Step) -> Key {
        match self.policies[policy].is_by_other {
            true => Key::header("x-other", self.other(client, step).as_bytes()),
            false => Key::header("x-user", self.user(client).as_bytes()),
        }
    }

    pub(crate) async fn send(&self, client: usize, step: &Step, how: How) -> Response {
        let mut request = Request::post("/")
            .header("x-user", self.user(client))
            .header("x-other", self.other(client, step));
        if step.is_premium {
            request = request.header("x-premium", "yes");
        }
        for (name, cost) in NAMES.iter().zip(step.costs) {
            request = request.header(format!("x-cost-{name}"), cost);
        }
        if !matches!(how, How::Http) {
            request = request.header("content-type", "application/grpc");
        }
        if let How::GrpcWithin(ms) = how {
            request = request.header("grpc-timeout", format!("{ms}m"));
        }
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let inner = service_fn(async |_: Request<Full<Bytes>>| {
            Ok::<_, Infallible>(http::Response::new(Full::<Bytes>::default()))
        });
        let response = self.layer.layer(inner).oneshot(request).await.unwrap();
        let (head, body) = response.into_parts();
        Response {
            status: head.status.as_u16(),
            headers: head.headers,
            rejection: head.extensions.get().cloned(),
            body: body.collect().await.unwrap().to_bytes(),
        }
    }

    /// By all of these at once.
    pub(crate) async fn send_by_each(
        &self,
        clients: Range<usize>,
        step: &Step,
        how: How,
    ) -> Vec<Response> {
        join_all(clients.map(|client| self.send(client, step, how))).await
    }

    pub(crate) async fn peek(&self, client: usize, policy: usize, step: &Step) -> Decision {
        let key = self.key(client, policy, step);
        self.limiter.peek(NAMES[policy], key).await.unwrap()
    }

    /// Of somebody who has never asked.
    pub(crate) async fn peek_untouched(&self, policy: usize) -> Decision {
        self.limiter.peek(NAMES[policy], "nobody").await.unwrap()
    }

    pub(crate) async fn check(
        &self,
        client: usize,
        policy: usize,
        step: &Step,
        cost: u64,
    ) -> Decision {
        let key = self.key(client, policy, step);
        let checked = self.limiter.check_cost(NAMES[policy], key, cost);
        checked.await.unwrap()
    }

    /// Of the first policy, what the step says it costs.
    pub(crate) async fn try_acquire(
        &self,
        client: usize,
        step: &Step,
        timeout: Duration,
    ) -> Decision {
        let key = self.key(client, 0, step);
        let cost = step.costs[0];
        let acquired = self.limiter.try_acquire(NAMES[0], key, cost, timeout);
        decision(&acquired.await)
    }

    /// Does what the step says is done before the request.
    pub(crate) async fn operate(&self, client: usize, step: &Step) {
        let policy = step.on % self.policies.len();
        let (name, key) = (NAMES[policy], self.key(client, policy, step));
        let _ = match step.operation {
            Operation::None => return,
            Operation::Charge(permits) => self.limiter.charge(name, key, permits).await,
            Operation::Credit(permits) => self.limiter.credit(name, key, permits).await,
            Operation::Reset => self.limiter.reset(name, key).await,
        };
    }
}
