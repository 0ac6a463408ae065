//! Leases in a cluster, where each policy of a request may have its subject on another node.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio::time::timeout;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    DAY, FailureMode, HOUR, Limit, Limiter, Policy, RateLimitLayer, RedisStore, RequestHead,
    ResponseBody, SECOND, StoreErrorKind,
};

use super::places::{POLICY, patient, until};
use support::cluster::Cluster;
use support::proxy::Way;

type Body = Full<Bytes>;

/// How many places there are. Their leases lapse in no test.
const PLACES: u64 = 5;

/// So many that they are not all on one node.
const SUBJECTS: [&str; 10] = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];

/// A policy of places on one node, followed by one that has no permit left on another node.
struct Pair {
    cluster: Cluster,
    limiter: Limiter,
    /// The subject that has places.
    subject: &'static str,
    /// The subject that has no permit left.
    other: &'static str,
    /// The positions of the two nodes.
    places: usize,
    full: usize,
}

impl Pair {
    async fn new(full_on_store_failure: FailureMode) -> Self {
        let cluster = Cluster::behind_proxies();
        let store = cluster.patient().connect().await.unwrap();
        let [(subject, places), (other, full)] = cluster.apart(&store, &SUBJECTS).await;
        let full_on_store_failure = (other, full_on_store_failure);
        let limiter = limiter(
            store,
            [(subject, FailureMode::Allow), full_on_store_failure],
        );
        assert!(limiter.check("full", other).await.unwrap().is_allowed());
        Self {
            cluster,
            limiter,
            subject,
            other,
            places,
            full,
        }
    }

    /// How many places were taken since the server started.
    fn acquired(&self) -> u64 {
        self.cluster.masters[self.places].calls("zadd")
    }

    async fn all_are_free(&self) -> bool {
        let decision = self.limiter.peek(POLICY, self.subject).await.unwrap();
        decision.store_failure().is_none() && decision.remaining() == PLACES
    }

    /// A request that takes a place, gets no answer about it, and is then denied by the other node.
    /// If `is_to_be_back`, that node hangs until the first one is back.
    async fn request_without_an_answer(&self, is_to_be_back: bool) -> Response<ResponseBody<Body>> {
        let way = &self.cluster.proxies[self.places];
        let other = &self.cluster.masters[self.full];
        // Its connection is in use, so it is not tried out first.
        until("all are free", async || self.all_are_free().await).await;
        let before = self.acquired();
        way.set(Way::CutReplies);
        if !is_to_be_back {
            return request(self.limiter.clone()).await;
        }
        other.signal("STOP");
        let asking = tokio::spawn(request(self.limiter.clone()));
        let is_taken = until("it is taken", async || self.acquired() > before);
        // On a busy machine the connection may have been tried out all the same.
        let _ = timeout(2 * SECOND, is_taken).await;
        way.set(Way::Pass);
        until("it is back", async || {
            let decision = self.limiter.peek(POLICY, self.subject).await.unwrap();
            decision.store_failure().is_none()
        })
        .await;
        other.signal("CONT");
        asking.await.unwrap()
    }

    /// A request that has taken a place whose node is unreachable when the other one answers.
    async fn request_that_is_cut_off_its_place(
        &self,
        others_way: Way,
    ) -> Response<ResponseBody<Body>> {
        let way = &self.cluster.proxies[self.places];
        let other = &self.cluster.masters[self.full];
        self.cluster.proxies[self.full].set(others_way);
        other.signal("STOP");
        let before = self.acquired();
        let asking = tokio::spawn(request(self.limiter.clone()));
        until("it is taken", async || self.acquired() > before).await;
        // Over the same connection, so that the previous answer has arrived, too.
        assert!(!self.all_are_free().await);
        way.set(Way::Refuse);
        until("its node is gone", async || {
            let decision = self.limiter.peek(POLICY, self.subject).await.unwrap();
            decision.store_failure().is_some()
        })
        .await;
        other.signal("CONT");
        let response = asking.await.unwrap();
        way.set(Way::Pass);
        response
    }
}

fn limiter(store: RedisStore, [places, full]: [(&'static str, FailureMode); 2]) -> Limiter {
    let policies = [
        (POLICY, Limit::concurrency(PLACES).lease(HOUR), places),
        ("full", Limit::fixed_window(1, DAY), full),
    ];
    let policies = policies.map(|(name, limit, (subject, mode))| {
        let policy = Policy::new(name, limit).by(move |_: &RequestHead<'_>| Some(subject));
        policy.on_store_failure(mode)
    });
    // Every question must reach the servers.
    patient(store.without_deny_cache(), policies)
}

async fn request(limiter: Limiter) -> Response<ResponseBody<Body>> {
    let inner = service_fn(|_| async { Ok::<_, Infallible>(Response::new(Body::default())) });
    let service = RateLimitLayer::new(limiter).wrap_body().layer(inner);
    service
        .oneshot(Request::new(Body::default()))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_lease_without_answer_is_ended_if_another_node_denies() {
    let pair = Pair::new(FailureMode::Allow).await;
    for is_back in [false, true] {
        let before = pair.acquired();
        for _ in 0..10 {
            let response = pair.request_without_an_answer(is_back).await;
            assert_eq!(response.status(), 429);
            let told = response.headers()["ratelimit"].to_str().unwrap();
            assert!(told.contains("\"full\";r=0;"), "{told}");
            pair.cluster.proxies[pair.places].set(Way::Pass);
            until("it is given back", async || pair.all_are_free().await).await;
            if pair.acquired() > before {
                break;
            }
        }
        assert!(pair.acquired() > before, "none was taken");
    }
}

#[tokio::test]
async fn a_lease_without_answer_is_ended_if_another_node_is_gone() {
    let pair = Pair::new(FailureMode::Deny).await;
    pair.cluster.proxies[pair.full].set(Way::Refuse);
    until("it is known to be gone", async || {
        let decision = pair.limiter.check("full", pair.other).await.unwrap();
        decision.store_failure() == Some(StoreErrorKind::Unreachable)
    })
    .await;
    let before = pair.acquired();
    for _ in 0..10 {
        let response = pair.request_without_an_answer(false).await;
        assert_eq!(response.status(), 503);
        pair.cluster.proxies[pair.places].set(Way::Pass);
        until("it is given back", async || pair.all_are_free().await).await;
        if pair.acquired() > before {
            return;
        }
    }
    panic!("none was taken");
}

#[tokio::test]
async fn a_place_on_a_gone_node_comes_back_when_another_denies() {
    let pair = Pair::new(FailureMode::Allow).await;
    let response = pair.request_that_is_cut_off_its_place(Way::Pass).await;
    assert_eq!(response.status(), 429);
    until("it is given back", async || pair.all_are_free().await).await;
}

/// Here the store gives it back, not the limiter.
#[tokio::test]
async fn flush_waits_for_a_place_on_a_node_that_was_gone() {
    let pair = Pair::new(FailureMode::Allow).await;
    let response = pair.request_that_is_cut_off_its_place(Way::Pass).await;
    assert_eq!(response.status(), 429);
    assert!(pair.limiter.flush().await);
    assert!(pair.all_are_free().await);
}

#[tokio::test]
async fn a_place_on_a_gone_node_comes_back_when_another_fails() {
    let pair = Pair::new(FailureMode::Deny).await;
    let loading = Way::Garble(b"-LOADING it has only begun\r\n");
    let response = pair.request_that_is_cut_off_its_place(loading).await;
    assert_eq!(response.status(), 503);
    until("it is given back", async || pair.all_are_free().await).await;
}

/// One after the other, as over a single server.
#[tokio::test]
async fn places_on_several_nodes_are_free_for_the_next_request() {
    let cluster = Cluster::start();
    let store = cluster.patient().connect().await.unwrap();
    let apart = cluster.apart(&store, &SUBJECTS).await;
    let policies = [("one", apart[0].0), ("other", apart[1].0)].map(|(name, subject)| {
        let policy = Policy::new(name, Limit::concurrency(1).lease(HOUR));
        policy.by(move |_: &RequestHead<'_>| Some(subject))
    });
    let limiter = patient(store, policies);
    for time in 0..100 {
        let response = request(limiter.clone()).await;
        assert_eq!(response.status(), 200, "{time}");
    }
}

#[tokio::test]
async fn a_place_is_free_at_once_after_another_node_failed() {
    let pair = Pair::new(FailureMode::Deny).await;
    pair.cluster.proxies[pair.full].set(Way::Refuse);
    let before = pair.acquired();
    for time in 0..100 {
        let response = request(pair.limiter.clone()).await;
        assert_eq!(response.status(), 503, "{time}");
        assert!(pair.all_are_free().await, "{time}");
    }
    assert!(pair.acquired() > before, "none was taken");
}
