//! Costs that the response decides: over real sockets, on every store.

mod support;

use std::convert::Infallible;
use std::future::{pending, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use http::{Request, Response};
use support::bench::Bench;
use support::limits::in_time;
use support::on_every_store;
use support::redis::Server;
use support::web::{Service, eventually};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::algorithm::Action;
use tower_throttle::{
    Answer, Check, Key, Limit, Limiter, MINUTE, MemoryStore, Policy, RateLimitLayer, RequestHead,
    ResponseHead, SECOND, Store, StoreError, StoreErrorKind, per_minute,
};

on_every_store! {
    failures_are_counted_and_successes_given_back
    no_more_failures_than_the_limit_reach_the_service_at_once
    what_an_estimate_was_too_high_by_is_given_back
    what_an_estimate_was_too_low_by_is_charged_and_later_requests_wait
    an_estimate_that_was_right_is_settled_without_a_trip
    an_estimate_stays_when_the_client_goes_away
    an_estimate_stays_when_the_service_fails
    a_window_that_has_ended_in_between_is_not_touched
    what_came_back_by_itself_is_not_given_back_once_more
    what_others_have_taken_since_is_not_given_back
    each_policy_settles_its_own_cost
}

fn alice(_: &RequestHead<'_>) -> Option<Key> {
    Some(Key::from("alice"))
}

fn is_unauthorized(response: &ResponseHead<'_>) -> bool {
    response.status == 401
}

/// What the service says that the request has cost.
fn stated(response: &ResponseHead<'_>) -> u32 {
    let cost = response.headers["x-cost"].to_str().expect("a text");
    cost.parse().expect("a number")
}

/// One policy, `rows`, that estimates a cost of five and settles it by what the service says.
fn rows(limit: Limit) -> Policy {
    rows_named("rows", limit)
}

fn rows_named(name: &str, limit: Limit) -> Policy {
    Policy::new(name, limit).by(alice).cost(5).settle(stated)
}

async fn status(url: String) -> u16 {
    let response = reqwest::get(url).await.expect("a response");
    response.status().as_u16()
}

async fn failures_are_counted_and_successes_given_back(bench: &Bench) {
    for (name, limit) in in_time(3, MINUTE) {
        let policy = Policy::new(name, limit).by(alice).count_if(is_unauthorized);
        let limiter = bench.limiter([policy]);
        let url = Service::open().behind(limiter.clone()).await;
        let remains = async |permits: u32| {
            eventually(&limiter, name, "alice", |looked| {
                looked.remaining() == permits
            })
            .await
        };
        for (answered, left) in [(200, 3), (401, 2), (404, 2), (401, 1), (200, 1), (401, 0)] {
            assert_eq!(
                status(format!("{url}/{answered}/0")).await,
                answered,
                "{name}"
            );
            remains(left).await;
        }
        for answered in [200, 401] {
            assert_eq!(status(format!("{url}/{answered}/0")).await, 429, "{name}");
        }
    }
}

async fn no_more_failures_than_the_limit_reach_the_service_at_once(bench: &Bench) {
    const LIMIT: usize = 4;
    const CLIENTS: usize = 20;
    for (name, limit) in in_time(LIMIT as u32, MINUTE) {
        let policy = Policy::new(name, limit).by(alice).count_if(is_unauthorized);
        let limiter = bench.limiter([policy]);
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        // First all of them succeed, and nothing was used after all.
        for answered in [200, 401] {
            let clients = (0..CLIENTS).map(|_| status(format!("{url}/{answered}/0")));
            let mut clients: FuturesUnordered<_> = clients.collect();
            for _ in LIMIT..CLIENTS {
                assert_eq!(clients.next().await, Some(429), "{name}");
            }
            service.let_out(LIMIT);
            for _ in 0..LIMIT {
                assert_eq!(clients.next().await, Some(answered), "{name}");
            }
            let left = if answered == 200 { LIMIT as u32 } else { 0 };
            eventually(&limiter, name, "alice", |looked| looked.remaining() == left).await;
        }
        assert_eq!(service.calls(), 2 * LIMIT);
        let looked = limiter.peek(name, "alice").await.unwrap();
        assert_eq!(looked.remaining(), 0, "{name}");
    }
}

async fn what_an_estimate_was_too_high_by_is_given_back(bench: &Bench) {
    for (name, limit) in in_time(10, MINUTE) {
        let limiter = bench.limiter([rows(limit)]);
        let service = Service::closed();
        let url = service.behind(limiter.clone()).await;
        let response = tokio::spawn(reqwest::get(format!("{url}/200/2")));
        service.inside(1).await;
        let reserved = limiter.peek("rows", "alice").await.unwrap();
        assert_eq!(
            reserved.remaining(),
            5,
            "{name}: the estimate is taken first"
        );
        service.let_out(1);
        let response = response.await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        let told = response.headers()["ratelimit"].to_str().unwrap();
        assert!(
            told.contains(";r=5;"),
            "{name}: what was left before, {told}"
        );
        eventually(&limiter, "rows", "alice", |looked| looked.remaining() == 8).await;
        limiter.reset("rows", "alice").await.unwrap();
    }
}

async fn what_an_estimate_was_too_low_by_is_charged_and_later_requests_wait(bench: &Bench) {
    for (name, limit) in in_time(10, MINUTE) {
        bench.align(MINUTE);
        let limiter = bench.limiter([rows(limit)]);
        let url = Service::open().behind(limiter.clone()).await;
        assert_eq!(status(format!("{url}/200/9")).await, 200);
        eventually(&limiter, "rows", "alice", |looked| looked.remaining() == 1).await;
        limiter.reset("rows", "alice").await.unwrap();

        // Over the limit, by more than a whole estimate.
        assert_eq!(status(format!("{url}/200/16")).await, 200);
        eventually(&limiter, "rows", "alice", |looked| looked.remaining() == 0).await;
        let denied = reqwest::get(format!("{url}/200/5")).await.unwrap();
        assert_eq!(denied.status(), 429, "{name}");
        let secs = denied.headers()["retry-after"].to_str().unwrap();
        let wait = Duration::from_secs(secs.parse().unwrap());
        bench.advance(wait - SECOND);
        assert_eq!(status(format!("{url}/200/5")).await, 429, "{name}");
        bench.advance(SECOND);
        assert_eq!(status(format!("{url}/200/5")).await, 200, "{name}");
        limiter.reset("rows", "alice").await.unwrap();
    }
}

async fn an_estimate_that_was_right_is_settled_without_a_trip(bench: &Bench) {
    let limiter = bench.limiter([rows(Limit::gcra(20, MINUTE))]);
    let url = Service::open().behind(limiter.clone()).await;
    for _ in 0..3 {
        assert_eq!(status(format!("{url}/200/5")).await, 200);
    }
    assert_eq!(limiter.peek("rows", "alice").await.unwrap().remaining(), 5);
    if let Some(server) = bench.server_if_any() {
        assert_eq!(server.calls("evalsha"), 4);
    }
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
    let service = RateLimitLayer::new(limiter.clone()).layer(broken);
    assert_eq!(
        service.oneshot(Request::new(())).await.unwrap_err(),
        "broken"
    );
    let looked = limiter.peek("rows", "alice").await.unwrap();
    assert_eq!(looked.remaining(), 5);
}

async fn a_window_that_has_ended_in_between_is_not_touched(bench: &Bench) {
    bench.align(MINUTE);
    for limit in [
        Limit::fixed_window(10, MINUTE),
        Limit::fixed_window(10, MINUTE).aligned(),
    ] {
        let after_end = |bench: &Bench| bench.advance(MINUTE);
        slow_then_another(bench, limit, after_end, 8).await;
    }
}

async fn what_came_back_by_itself_is_not_given_back_once_more(bench: &Bench) {
    for (_, limit) in in_time(10, MINUTE) {
        let long_after = |bench: &Bench| bench.advance(3 * MINUTE);
        slow_then_another(bench, limit, long_after, 8).await;
    }
    // Half of what it has taken has come back after half of the time.
    for limit in [
        Limit::gcra(10, MINUTE),
        Limit::token_bucket(10, per_minute(10)),
        Limit::leaky_bucket(10, per_minute(10)).without_delay(),
    ] {
        let meanwhile = |bench: &Bench| bench.advance(15 * SECOND);
        slow_then_another(bench, limit, meanwhile, 8).await;
    }
}

/// A request that will turn out to cost nothing is inside while time passes; then another one comes
/// that will have cost two. What is left in the end.
async fn slow_then_another(bench: &Bench, limit: Limit, meanwhile: impl Fn(&Bench), left: u32) {
    let limiter = bench.limiter([rows(limit)]);
    let service = Service::closed();
    let url = service.behind(limiter.clone()).await;
    let slow = tokio::spawn(status(format!("{url}/200/0")));
    service.inside(1).await;
    meanwhile(bench);
    let another = tokio::spawn(status(format!("{url}/200/2")));
    service.inside(2).await;
    service.let_out(1);
    assert_eq!(slow.await.unwrap(), 200);
    service.let_out(1);
    assert_eq!(another.await.unwrap(), 200);
    // Were it the other way round, it would be ten: the refunds are sent in this order.
    eventually(&limiter, "rows", "alice", |looked| {
        looked.remaining() == left
    })
    .await;
    limiter.reset("rows", "alice").await.unwrap();
}

/// Else whoever has slow successes under way has as many failures more.
async fn what_others_have_taken_since_is_not_given_back(bench: &Bench) {
    let limit = Limit::gcra(3, MINUTE);
    let policy = Policy::new("login", limit)
        .by(alice)
        .count_if(is_unauthorized);
    let limiter = bench.limiter([policy]);
    let service = Service::closed();
    let url = service.behind(limiter.clone()).await;
    let mut slow = Vec::new();
    for inside in 1..=6 {
        slow.push(tokio::spawn(status(format!("{url}/200/0"))));
        service.inside(inside).await;
        bench.advance(20 * SECOND);
    }
    for _ in 0..3 {
        assert!(limiter.check("login", "alice").await.unwrap().is_allowed());
    }
    // One more than there are, so that it is answered, were it let in.
    service.let_out(7);
    for slow in slow {
        assert_eq!(slow.await.unwrap(), 200);
    }
    assert_eq!(status(format!("{url}/401/0")).await, 429);
}

async fn each_policy_settles_its_own_cost(bench: &Bench) {
    let limiter = bench.limiter([
        rows(Limit::gcra(10, MINUTE)),
        Policy::new("failures", Limit::sliding_log(10, MINUTE))
            .by(alice)
            .count_if(is_unauthorized),
        Policy::new("requests", Limit::fixed_window(10, MINUTE)).by(alice),
    ]);
    let url = Service::open().behind(limiter.clone()).await;
    assert_eq!(status(format!("{url}/200/7")).await, 200);
    for (policy, left) in [("rows", 3), ("failures", 10), ("requests", 9)] {
        eventually(&limiter, policy, "alice", |looked| {
            looked.remaining() == left
        })
        .await;
    }
}

/// What becomes of a question that settles costs.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Answered,
    Fails,
    FailsLate,
    Lost,
}

/// A store that works while requests are judged.
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
        let judges = |check: &Check<'_>| matches!(check.action, Action::Take(_));
        if checks.iter().all(judges) {
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
            let limiter = Limiter::builder(store.clone())
                .policy(rows(Limit::gcra(10, MINUTE)))
                // So that an answer that is lost stays lost.
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

#[tokio::test]
async fn a_server_that_is_killed_before_a_cost_is_settled_spoils_no_response() {
    let mut server = Server::start();
    let limiter = Limiter::builder(server.store().await)
        .policy(rows(Limit::gcra(10, MINUTE)))
        .timeout(MINUTE);
    let service = Service::closed();
    let url = service.behind(limiter.build().unwrap()).await;
    let response = tokio::spawn(status(format!("{url}/200/2")));
    service.inside(1).await;
    server.kill();
    service.let_out(1);
    assert_eq!(response.await.unwrap(), 200);
}

/// A store in memory needs no runtime, nor does settling by it.
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
    let layer = RateLimitLayer::new(limiter.clone());
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

#[tokio::test]
async fn a_cost_above_the_capacity_never_fits_whoever_would_wait_or_settle() {
    let dear = |_: &RequestHead<'_>| 11;
    for policy in [
        rows(Limit::gcra(10, MINUTE)).cost_by(dear),
        rows(Limit::gcra(10, MINUTE)).cost_by(dear).max_wait(MINUTE),
        rows(Limit::leaky_bucket(10, per_minute(10))).cost_by(dear),
    ] {
        let limiter = Limiter::new(MemoryStore::new(), [policy]).unwrap();
        let service = Service::open();
        let url = service.behind(limiter.clone()).await;
        let denied = reqwest::get(format!("{url}/200/0")).await.unwrap();
        assert_eq!(denied.status(), 429);
        assert!(!denied.headers().contains_key("retry-after"));
        let text = denied.text().await.unwrap();
        assert!(
            text.contains("costs more than the quota can ever hold"),
            "{text}"
        );
        assert_eq!(service.calls(), 0);
        assert_eq!(limiter.peek("rows", "alice").await.unwrap().remaining(), 10);
    }
}

#[test]
fn what_is_held_while_a_request_runs_has_nothing_to_settle() {
    let refusal = |policy: Policy| {
        let refused = Limiter::new(MemoryStore::new(), [policy]).unwrap_err();
        refused.to_string()
    };
    let exports = || Policy::new("exports", Limit::concurrency(2));
    let why = "got \"a limit of concurrency\": what is held while a request runs is given back \
               when it ends; there is nothing to settle";
    assert_eq!(
        refusal(exports().count_if(is_unauthorized)),
        format!("policy \"exports\": count_if: {why}")
    );
    assert_eq!(
        refusal(exports().settle(stated)),
        format!("policy \"exports\": settle: {why}")
    );
}
