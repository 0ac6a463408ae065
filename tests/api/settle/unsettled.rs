//! Requests without a response, and stores without an answer.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::Action;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    Limit, Limiter, MINUTE, MemoryStore, Mode, Policy, RateLimitLayer, StoreError, StoreErrorKind,
    per_minute,
};

use super::{alice, is_unauthorized, rows, rows_named, status};
use support::bench::Bench;
use support::on_every_store;
use support::redis::Server;
use support::web::{Service, eventually};

on_every_store! {
    an_estimate_stays_when_the_client_goes_away
    an_estimate_stays_when_the_service_fails
}

async fn an_estimate_stays_when_the_client_goes_away(bench: &Bench) {
    for policy in [
        rows(Limit::gcra(10, MINUTE)),
        Policy::new("rows", Limit::fixed_window(10, MINUTE))
            .by(alice)
            .cost(5)
            .count_if(is_unauthorized),
    ] {
        let limiter = bench.limiter([policy]);
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        let client = tokio::spawn(reqwest::get(format!("{url}/200/0")));
        service.inside(1).await;
        client.abort();
        // Before any response.
        service.inside(0).await;
        let looked = limiter.peek("rows", "alice").await.unwrap();
        assert_eq!(looked.remaining(), 5);
        assert_eq!(service.calls(), 1);
    }
}

async fn an_estimate_stays_when_the_service_fails(bench: &Bench) {
    let limiter = bench.limiter([rows(Limit::gcra(10, MINUTE))]);
    let broken = service_fn(|_: Request<()>| ready(Err::<Response<String>, _>("broken")));
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(broken);
    assert_eq!(
        service.oneshot(Request::new(())).await.unwrap_err(),
        "broken"
    );
    let looked = limiter.peek("rows", "alice").await.unwrap();
    assert_eq!(looked.remaining(), 5);
}

/// What happens to a question that settles costs.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    Fails,
    FailsLate,
    Lost,
}

/// A store that works while requests are decided.
#[derive(Clone)]
struct Moody {
    inner: MemoryStore,
    fate: Fate,
    /// The questions that settle costs.
    settling: Arc<AtomicUsize>,
}

impl Moody {
    fn new(fate: Fate) -> Self {
        Self {
            inner: MemoryStore::new(),
            fate,
            settling: Arc::default(),
        }
    }
}

impl Store for Moody {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let decides = |check: &Check<'_>| matches!(check.action, Action::Acquire(_));
        if checks.iter().all(decides) {
            return self.inner.ask(checks);
        }
        self.settling.fetch_add(1, Ordering::SeqCst);
        let failure = || StoreError::new(StoreErrorKind::Unreachable);
        match self.fate {
            Fate::Answered => self.inner.ask(checks),
            Fate::Fails => Answer::Ready(Err(failure())),
            Fate::FailsLate => Answer::Pending(Box::pin(async move {
                tokio::task::yield_now().await;
                Err(failure())
            })),
            Fate::Lost => Answer::Pending(Box::pin(pending())),
        }
    }
}

#[tokio::test]
async fn all_costs_of_a_request_are_settled_in_one_question() {
    let store = Moody::new(Fate::Answered);
    let policies = [
        rows(Limit::gcra(10, MINUTE)),
        Policy::new("failures", Limit::sliding_log(10, MINUTE)).count_if(is_unauthorized),
        rows_named("bytes", Limit::token_bucket(10, per_minute(10))),
    ];
    let limiter = Limiter::new(store.clone(), policies).unwrap();
    let url = Service::open().behind(limiter).await;
    assert_eq!(status(format!("{url}/200/7")).await, 200);
    assert_eq!(store.settling.load(Ordering::SeqCst), 1);
    assert_eq!(store.inner.len(), 3);
}

#[tokio::test]
async fn a_store_that_fails_to_settle_changes_nothing_else() {
    for fate in [Fate::Fails, Fate::FailsLate, Fate::Lost] {
        for cost in [2, 9] {
            let store = Moody::new(fate);
            let limiter = Limiter::builder(store.clone(), [rows(Limit::gcra(10, MINUTE))])
                // So that a lost answer stays lost.
                .timeout(MINUTE);
            let limiter = limiter.build().unwrap();
            let url = Service::open().behind(limiter.clone()).await;
            let response = reqwest::get(format!("{url}/201/{cost}")).await.unwrap();
            assert_eq!(response.status(), 201, "{fate:?}");
            assert_eq!(response.headers()["x-cost"], cost.to_string());
            assert_eq!(store.settling.load(Ordering::SeqCst), 1);
            let looked = limiter.peek("rows", "alice").await.unwrap();
            assert_eq!(looked.remaining(), 5, "{fate:?}: the estimate stays");
            assert_eq!(status(format!("{url}/200/5")).await, 200);
            assert_eq!(status(format!("{url}/200/5")).await, 429);
        }
    }
}

/// It has got there while the request was served.
#[tokio::test]
async fn a_corrupt_value_in_shadow_keeps_no_other_cost_unsettled() {
    let server = Server::start();
    let limit = Limit::fixed_window(10, MINUTE);
    let policies = [
        rows_named("trial", limit).mode(Mode::Shadow),
        rows_named("rows", limit),
    ];
    for (cost, left) in [(2, 8), (7, 3)] {
        let builder = Limiter::builder(server.store().await, policies.clone());
        let limiter = builder.timeout(MINUTE).build().unwrap();
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        let asked = tokio::spawn(status(format!("{url}/200/{cost}")));
        service.inside(1).await;
        let mut keys = server.keys().into_iter();
        let in_shadow = keys.find(|key| key.ends_with(":trial")).unwrap();
        server.query::<()>(("SET", in_shadow, "not ours", "EX", 600));
        service.let_out(1);
        assert_eq!(asked.await.unwrap(), 200);
        let _ = eventually(&limiter, "rows", "alice", |looked| {
            looked.remaining() == left
        })
        .await;
        for policy in ["trial", "rows"] {
            let _ = limiter.reset(policy, "alice").await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_server_killed_before_settling_spoils_no_response() {
    let mut server = Server::start();
    let limiter =
        Limiter::builder(server.store().await, [rows(Limit::gcra(10, MINUTE))]).timeout(MINUTE);
    let service = Service::closed();
    let url = service.behind(limiter.build().unwrap()).await;
    let response = tokio::spawn(status(format!("{url}/200/2")));
    service.inside(1).await;
    server.kill();
    service.let_out(1);
    assert_eq!(response.await.unwrap(), 200);
}

/// A store in memory needs no runtime, nor does settling with it.
#[test]
fn costs_are_settled_in_memory_without_a_runtime() {
    let store = MemoryStore::new();
    let limiter = Limiter::new(store, [rows(Limit::gcra(10, MINUTE))]).unwrap();
    let inner = service_fn(|_: Request<()>| {
        let response = Response::builder()
            .header("x-cost", "2")
            .body(String::new());
        ready(Ok::<_, Infallible>(response.expect("a response")))
    });
    let layer = RateLimitLayer::new(limiter.clone()).wrap_body();
    let response = at_once(layer.layer(inner).oneshot(Request::new(()))).unwrap();
    assert_eq!(response.status(), 200);
    let looked = at_once(limiter.peek("rows", "alice")).unwrap();
    assert_eq!(looked.remaining(), 8);
}

/// The output of a future that waits for nothing.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}
