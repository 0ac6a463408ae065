//! Observers get every decision once, and nothing else.
#![cfg(feature = "memory")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use futures_util::poll;
use http::{Request, Response};
use reqwest::{Client, StatusCode};
use support::asked::decision;
use support::bench::Bench;
use support::{on_every_store, web};
use tokio::sync::Semaphore;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    AccessList, BreakerState, DecisionEvent, DecisionResult, Feedback, HOUR, Header, HoldEvent,
    Key, Limit, Limiter, LimiterBuilder, MINUTE, ManualClock, MemoryStore, Mode, Observer,
    OnMissingKey, Outcome, Policy, RateLimitLayer, RefusalEvent, RefusalReason, Rules, SECOND,
    StoreErrorKind, ThrottleLayer, per_minute,
};

/// Their number is part of no type: otherwise one more would break code that names the type.
const _: (&[DecisionResult], &[RefusalReason]) = (DecisionResult::ALL, RefusalReason::ALL);
const _: (&[StoreErrorKind], &[Mode]) = (StoreErrorKind::ALL, Mode::ALL);
const _: &[BreakerState] = BreakerState::ALL;

/// Records all events.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Note>>>);

/// A policy's name, its mode, the subject and the result; a refusal, with its mode and reason;
/// or a hold, with its subject and time.
#[derive(Clone, Debug, PartialEq)]
enum Note {
    Decision(String, Mode, String, DecisionResult),
    EarlyRejection(Option<String>, Mode, RefusalReason),
    Hold(String, String, Duration),
}

impl Observer for Notes {
    fn on_decision(&self, event: &DecisionEvent<'_>) {
        let (policy, subject) = (event.policy.to_owned(), event.subject.to_string());
        self.add(Note::Decision(policy, event.mode, subject, event.result()));
    }

    fn on_refusal(&self, event: &RefusalEvent<'_>) {
        let policy = event.policy.map(str::to_owned);
        self.add(Note::EarlyRejection(policy, event.mode, event.reason));
    }

    fn on_hold(&self, event: &HoldEvent<'_>) {
        let (policy, subject) = (event.policy.to_owned(), event.subject.to_string());
        self.add(Note::Hold(policy, subject, event.time));
    }
}

impl Notes {
    fn add(&self, note: Note) {
        self.0.lock().unwrap().push(note);
    }

    /// What was recorded since the last call.
    fn new_ones(&self) -> Vec<Note> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    /// The same for enforced decisions: only their policies and results.
    fn decisions(&self) -> Vec<(String, DecisionResult)> {
        let short = |note| match note {
            Note::Decision(policy, Mode::Enforce, _, result) => (policy, result),
            other => panic!("not an enforced decision: {other:?}"),
        };
        self.new_ones().into_iter().map(short).collect()
    }

    #[track_caller]
    fn assert_decisions(&self, expected: &[(&str, DecisionResult)]) {
        let expected = expected.iter();
        let expected = expected.map(|(policy, result)| ((*policy).to_owned(), *result));
        assert_eq!(self.decisions(), expected.collect::<Vec<_>>());
    }
}

fn refusal(policy: &str, mode: Mode, reason: RefusalReason) -> Note {
    Note::EarlyRejection(Some(policy.to_owned()), mode, reason)
}

/// Sends a request to an upstream, which asks to wait for so many seconds.
pub(crate) async fn send_to_busy_upstream(limiter: &Limiter, policy: &str, secs: u64) {
    let busy = service_fn(async |_: ()| {
        let response = Response::builder().status(429);
        response.header("retry-after", secs).body(())
    });
    let layer = ThrottleLayer::new(limiter.clone(), policy).unwrap();
    let mut client = layer.feedback(Feedback::http()).layer(busy);
    client.ready().await.unwrap().call(()).await.unwrap();
}

fn observed<S: Store>(builder: LimiterBuilder<S>) -> (Limiter, Notes) {
    let notes = Notes::default();
    (builder.observe(notes.clone()).build().unwrap(), notes)
}

use DecisionResult::{Allowed, Denied, NearLimit, ShadowDenied, Waited};

#[tokio::test]
async fn near_the_limit_is_the_last_tenth_of_what_there_is_at_once() {
    let limit = Limit::gcra(600, MINUTE).burst(30);
    let builder = Limiter::builder(MemoryStore::new(), [Policy::new("api", limit)]);
    let (limiter, notes) = observed(builder);
    for cost in [20, 6, 1] {
        let decision = limiter.check_cost("api", "alice", cost).await.unwrap();
        assert!(decision.is_allowed());
    }
    notes.assert_decisions(&[("api", Allowed), ("api", Allowed), ("api", NearLimit)]);
}

#[tokio::test]
async fn near_the_limit_is_whoever_is_near_that_of_any_rate() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let limit = Limit::fixed_window(10, SECOND).and(1_000, HOUR);
    let builder = Limiter::builder(store, [Policy::new("api", limit)]);
    let (limiter, notes) = observed(builder);
    let _ = limiter.check("api", "alice").await.unwrap();
    let _ = limiter.charge("api", "alice", 899).await.unwrap();
    clock.advance(SECOND);
    // Nine of ten are left in this second, which are fewer than the 99 in this hour.
    assert_eq!(limiter.check("api", "alice").await.unwrap().remaining(), 9);
    notes.assert_decisions(&[("api", Allowed), ("api", NearLimit)]);
}

async fn each_question_outside_of_http_is_observed_once(bench: &Bench) {
    let limit = Limit::gcra(2, MINUTE);
    let builder = bench.builder([
        Policy::new("api", limit),
        Policy::new("slots", Limit::concurrency(1)),
        Policy::new("queue", Limit::gcra(60_000, MINUTE).burst(1)),
    ]);
    let (limiter, notes) = observed(builder);

    let _ = limiter.check("api", "alice").await.unwrap();
    let _ = limiter.check_cost("api", "alice", 1).await.unwrap();
    let _ = limiter.check("api", "alice").await.unwrap();
    notes.assert_decisions(&[("api", Allowed), ("api", NearLimit), ("api", Denied)]);

    let held = limiter.admit("slots", "alice").await;
    drop(limiter.admit("slots", "alice").await);
    drop(held);
    notes.assert_decisions(&[("slots", NearLimit), ("slots", Denied)]);

    // The clock stands still: the second takes its permit ahead of time, the third waits for it,
    // and the fourth will not wait.
    for _ in 0..3 {
        let _ = limiter.acquire("queue", "alice", 1).await.unwrap();
    }
    let timeout = Duration::from_micros(1);
    let _ = limiter.try_acquire("queue", "alice", 1, timeout).await;
    notes.assert_decisions(&[
        ("queue", NearLimit),
        ("queue", NearLimit),
        ("queue", Waited),
        ("queue", Denied),
    ]);
}

async fn a_hold_is_observed_once_where_the_response_came(bench: &Bench) {
    let policy = || [Policy::new("partner", Limit::gcra(10, MINUTE))];
    let (limiter, notes) = observed(bench.builder(policy()));
    let (_other, of_other) = observed(bench.builder(policy()));
    send_to_busy_upstream(&limiter, "partner", 3).await;
    let subject = limiter.subject_of(Key::everybody()).to_string();
    let hold = Note::Hold("partner".to_owned(), subject, 3 * SECOND);
    assert_eq!(notes.new_ones()[1..], [hold]);
    assert_eq!(of_other.new_ones(), []);

    limiter.set_mode("partner", Mode::Shadow).unwrap();
    send_to_busy_upstream(&limiter, "partner", 3).await;
    assert_eq!(notes.new_ones().len(), 1);
}

async fn questions_for_nothing_are_not_observed(bench: &Bench) {
    let (limiter, notes) = observed(bench.builder([Policy::new("api", Limit::gcra(2, MINUTE))]));
    let _ = limiter.peek("api", "alice").await.unwrap();
    let _ = limiter.check_cost("api", "alice", 0).await.unwrap();
    let _ = limiter.charge("api", "alice", 5).await.unwrap();
    let _ = limiter.credit("api", "alice", 1).await.unwrap();
    let _ = limiter.reset("api", "alice").await.unwrap();
    assert_eq!(notes.new_ones(), []);
    let _ = limiter.check("api", "alice").await.unwrap();
    assert_eq!(notes.new_ones().len(), 1);
}

async fn shadow_events_have_the_mode_and_the_subject(bench: &Bench) {
    let policy = Policy::new("trial", Limit::gcra(1, MINUTE)).mode(Mode::Shadow);
    let (limiter, notes) = observed(bench.builder([policy]));
    for result in [NearLimit, ShadowDenied] {
        let _ = limiter.check("trial", "alice").await.unwrap();
        let subject = limiter.subject_of("alice").to_string();
        let expected = Note::Decision("trial".to_owned(), Mode::Shadow, subject, result);
        assert_eq!(notes.new_ones(), [expected]);
    }
}

async fn policies_that_were_not_asked_are_not_observed(bench: &Bench) {
    let policies = [
        Policy::new("off", Limit::gcra(1, MINUTE)).mode(Mode::Off),
        Policy::new("on", Limit::gcra(1, MINUTE)),
    ];
    let friends = AccessList::new().keys([Key::from("friend")]);
    let (limiter, notes) = observed(bench.builder(Rules::new(policies).allow(friends)));
    let _ = limiter.check("off", "alice").await.unwrap();
    let _ = limiter.check("on", "friend").await.unwrap();
    limiter.turn_off();
    let _ = limiter.check("on", "alice").await.unwrap();
    assert_eq!(notes.new_ones(), []);
}

async fn refusals_outside_of_http_are_observed_as_over_it(bench: &Bench) {
    let policy = Policy::new("queue", Limit::gcra(100, MINUTE));
    let denied = AccessList::new().keys([Key::from("mallory")]);
    let (limiter, notes) = observed(bench.builder(Rules::new([policy]).deny(denied)));
    // The list is not the policy's, so it also refuses in shadow mode.
    for mode in [Mode::Enforce, Mode::Shadow] {
        limiter.set_mode("queue", mode).unwrap();
        let refused = || refusal("queue", Mode::Enforce, RefusalReason::Listed);
        let decisions = [
            limiter.check("queue", "mallory").await.unwrap(),
            decision(&limiter.acquire("queue", "mallory", 1).await),
            decision(&limiter.admit("queue", "mallory").await),
        ];
        for decision in decisions {
            assert_eq!(decision.outcome(), Outcome::Refused);
        }
        assert_eq!(notes.new_ones(), [refused(), refused(), refused()]);
    }
    let _ = limiter.peek("queue", "mallory").await.unwrap();
    let _ = limiter.charge("queue", "mallory", 1).await.unwrap();
    assert_eq!(notes.new_ones(), []);
}

on_every_store! {
    refusals_outside_of_http_are_observed_as_over_it
    each_question_outside_of_http_is_observed_once
    a_hold_is_observed_once_where_the_response_came
    questions_for_nothing_are_not_observed
    shadow_events_have_the_mode_and_the_subject
    policies_that_were_not_asked_are_not_observed
}

/// A server behind a limiter, and a client of this test.
struct App {
    url: String,
    client: Client,
}

impl App {
    async fn behind(limiter: Limiter) -> Self {
        let app = Router::new().fallback(any(async || "hello"));
        let url = web::serve(app.layer(RateLimitLayer::new(limiter))).await;
        let client = Client::new();
        Self { url, client }
    }

    async fn get(&self, headers: &[(&'static str, &str)]) -> StatusCode {
        let mut request = self.client.get(&self.url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status()
    }
}

async fn over_http_each_policy_is_observed_once_a_request(bench: &Bench) {
    let policies = [
        Policy::new("user", Limit::sliding_log(2, MINUTE)).by(Header::new("x-user")),
        Policy::new("trial", Limit::sliding_log(1, MINUTE)).mode(Mode::Shadow),
        Policy::new("all", Limit::sliding_log(100, MINUTE)),
    ];
    let (limiter, notes) = observed(bench.builder(policies));
    let app = App::behind(limiter.clone()).await;
    let user = limiter
        .subject_of(Key::header("x-user", b"alice"))
        .to_string();
    let all = limiter.subject_of(Key::everybody()).to_string();
    for (status, of_user, of_trial) in [
        (200, Allowed, NearLimit),
        (200, NearLimit, ShadowDenied),
        (429, Denied, ShadowDenied),
    ] {
        assert_eq!(app.get(&[("x-user", "alice")]).await, status);
        let note = |policy: &str, mode, subject: &String, result| {
            Note::Decision(policy.to_owned(), mode, subject.clone(), result)
        };
        assert_eq!(
            notes.new_ones(),
            [
                note("user", Mode::Enforce, &user, of_user),
                note("trial", Mode::Shadow, &all, of_trial),
                note("all", Mode::Enforce, &all, Allowed),
            ]
        );
    }
}

async fn a_delayed_request_is_observed_once_when_decided(bench: &Bench) {
    let policy = Policy::new("queue", Limit::leaky_bucket(5, per_minute(60_000)));
    let (limiter, notes) = observed(bench.builder([policy]));
    let app = App::behind(limiter).await;
    // The clock stands still, so the second has to wait for its millisecond.
    assert_eq!(app.get(&[]).await, 200);
    assert_eq!(app.get(&[]).await, 200);
    notes.assert_decisions(&[("queue", Allowed), ("queue", Waited)]);
}

/// A denied request never goes on, so there is nothing to wait for. A policy in shadow denies
/// nobody.
async fn who_is_denied_by_another_policy_is_held_up_by_none(bench: &Bench) {
    let queue = Limit::gcra(60_000, MINUTE).burst(1);
    let queues = [
        Policy::new("leaky bucket", Limit::leaky_bucket(5, per_minute(60_000))),
        Policy::new("one rate", queue).max_wait(MINUTE),
        Policy::new("two rates", queue.and(3_000_000, HOUR)).max_wait(MINUTE),
    ];
    for queue in queues {
        let name = format!("{queue:?}");
        let few = Policy::new("few", Limit::sliding_log(1, MINUTE));
        let notes = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&notes);
        let limiter = bench
            .builder([queue, few])
            .on_decision(move |event: &DecisionEvent<'_>| {
                let is_held_up = !event.decision.delay().is_zero();
                noted.lock().unwrap().push((event.result(), is_held_up));
            })
            .build()
            .unwrap();
        let _ = limiter.reset("few", Key::everybody()).await.unwrap();
        let app = App::behind(limiter.clone()).await;
        let notes_of_next = async |status: u16| {
            assert_eq!(app.get(&[]).await, status, "{name}");
            std::mem::take(&mut *notes.lock().unwrap())
        };
        notes_of_next(200).await;
        let [of_queue, of_few] = notes_of_next(429).await[..] else {
            panic!("{name}: not two decisions");
        };
        assert_ne!(of_queue.0, Waited, "{name}");
        assert!(!of_queue.1, "{name}");
        assert_eq!(of_few, (Denied, false), "{name}");
        limiter.set_mode("few", Mode::Shadow).unwrap();
        let expected = [(Waited, true), (ShadowDenied, false)];
        assert_eq!(notes_of_next(200).await, expected, "{name}");
    }
}

async fn a_refusal_is_observed_with_its_policy(bench: &Bench) {
    let limit = Limit::gcra(100, MINUTE);
    let policies = [
        Policy::new("all", limit),
        Policy::new("user", limit)
            .by(Header::new("x-user"))
            .on_missing_key(OnMissingKey::Reject),
    ];
    let denied = AccessList::new().keys([Key::header("x-user", b"mallory")]);
    let (limiter, notes) = observed(bench.builder(Rules::new(policies).deny(denied)));
    let app = App::behind(limiter).await;
    for (headers, status, reason) in [
        (&[][..], 400, RefusalReason::MissingKey),
        (&[("x-user", "mallory")], 403, RefusalReason::Listed),
        (
            &[("x-user", "alice"), ("x-user", "mallory")],
            400,
            RefusalReason::MissingKey,
        ),
    ] {
        assert_eq!(app.get(headers).await, status);
        assert_eq!(notes.new_ones(), [refusal("user", Mode::Enforce, reason)]);
    }
}

async fn shadow_refusals_are_observed_as_such(bench: &Bench) {
    let by = |name, header| {
        let policy = Policy::new(name, Limit::gcra(100, MINUTE)).by(Header::new(header));
        policy.on_missing_key(OnMissingKey::Reject)
    };
    let policies = [
        by("trial", "x-trial").mode(Mode::Shadow),
        by("user", "x-user"),
    ];
    let denied = AccessList::new().keys([Key::header("x-trial", b"mallory")]);
    let (limiter, notes) = observed(bench.builder(Rules::new(policies).deny(denied)));
    let app = App::behind(limiter).await;
    let would_be = || refusal("trial", Mode::Shadow, RefusalReason::MissingKey);

    assert_eq!(app.get(&[("x-user", "alice")]).await, StatusCode::OK);
    let notes_of_one = notes.new_ones();
    assert_eq!(notes_of_one[0], would_be());
    assert!(
        matches!(&notes_of_one[1..], [Note::Decision(policy, ..)] if policy == "user"),
        "{notes_of_one:?}"
    );

    assert_eq!(app.get(&[]).await, StatusCode::BAD_REQUEST);
    let refused = refusal("user", Mode::Enforce, RefusalReason::MissingKey);
    assert_eq!(notes.new_ones(), [would_be(), refused]);

    // The list is not the policy's.
    assert_eq!(
        app.get(&[("x-trial", "mallory")]).await,
        StatusCode::FORBIDDEN
    );
    let listed = refusal("trial", Mode::Enforce, RefusalReason::Listed);
    assert_eq!(notes.new_ones(), [listed]);
}

mod over_http {
    use super::*;

    on_every_store! {
        over_http_each_policy_is_observed_once_a_request
        a_delayed_request_is_observed_once_when_decided
        who_is_denied_by_another_policy_is_held_up_by_none
        a_refusal_is_observed_with_its_policy
        shadow_refusals_are_observed_as_such
    }
}

/// A memory store whose answers stay in flight until the gate lets them through.
struct Slow {
    store: MemoryStore,
    gate: Arc<Semaphore>,
}

impl Store for Slow {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let (answer, gate) = (self.store.ask(checks), Arc::clone(&self.gate));
        Answer::Pending(Box::pin(async move {
            gate.acquire().await.expect("it stays open").forget();
            match answer {
                Answer::Ready(answer) => answer,
                Answer::Pending(answer) => answer.await,
            }
        }))
    }
}

/// Others wait behind a place in a queue, so its answer is awaited though the client has gone. The
/// answer of a window is not, and there is nothing to report of a request that nobody has decided.
#[tokio::test]
async fn a_decision_made_after_the_client_left_is_reported_once() {
    let queue = Limit::leaky_bucket(5, per_minute(60));
    for (limit, told) in [
        (queue, &[("api", Allowed)][..]),
        (Limit::gcra(5, MINUTE), &[]),
    ] {
        let gate = Arc::new(Semaphore::new(0));
        let store = Slow {
            store: MemoryStore::new(),
            gate: Arc::clone(&gate),
        };
        let builder = Limiter::builder(store, [Policy::new("api", limit)]).timeout(MINUTE);
        let (limiter, notes) = observed(builder);
        let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new("")));
        let mut service = RateLimitLayer::new(limiter).wrap_body().layer(inner);
        let mut response = Box::pin(service.call(Request::new(())));
        assert!(poll!(response.as_mut()).is_pending());
        drop(response);
        notes.assert_decisions(&[]);
        gate.add_permits(100);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        notes.assert_decisions(told);
    }
}

#[tokio::test]
async fn observers_are_called_in_the_order_of_addition() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let note = |name: &'static str| {
        let order = Arc::clone(&order);
        move |_: &DecisionEvent<'_>| order.lock().unwrap().push(name)
    };
    let limiter = Limiter::builder(
        MemoryStore::new(),
        [Policy::new("api", Limit::gcra(1, MINUTE))],
    )
    .on_decision(note("first"))
    .on_decision(note("second"))
    .build()
    .unwrap();
    let _ = limiter.check("api", "alice").await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["first", "second"]);
}

#[tokio::test]
async fn an_observer_in_an_arc_gets_everything() {
    let notes = Arc::new(Notes::default());
    let denied = AccessList::new().keys([Key::header("x-user", b"mallory")]);
    let limiter = Limiter::builder(
        MemoryStore::new(),
        Rules::new([Policy::new("user", Limit::gcra(10, MINUTE)).by(Header::new("x-user"))])
            .deny(denied),
    )
    .observe(Arc::clone(&notes))
    .build()
    .unwrap();
    let app = App::behind(limiter).await;
    app.get(&[("x-user", "alice")]).await;
    app.get(&[("x-user", "mallory")]).await;
    let told = notes.new_ones();
    assert!(
        matches!(&told[..], [Note::Decision(..), Note::EarlyRejection(..)]),
        "{told:?}"
    );
}
