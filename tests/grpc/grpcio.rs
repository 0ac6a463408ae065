//! Another implementation of gRPC: Python's grpcio, which is the C core that most languages use,
//! and which retries automatically if configured to.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::process::Command;
use tonic::Status;
use tonic::transport::Server;
use tonic_health::pb::health_server::HealthServer;
use tower::util::MapRequestLayer;
use tower_throttle::{
    FailureMode, Limit, Limiter, MINUTE, ManualClock, MemoryStore, Policy, RateLimitLayer, SECOND,
};

use crate::stage::{Counted, check, client, layer, layer_of, listen, serve};
use support::http_store::Trip;

/// Calls once, with this service config, and returns what the client got.
async fn call(address: SocketAddr, service_config: Option<Value>) -> Value {
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/grpcio/bin/python");
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/grpc/call.py"))
        .arg(address.to_string())
        .args(service_config.map(|config| config.to_string()))
        .kill_on_drop(true)
        .output()
        .await;
    let output = output.unwrap_or_else(|error| {
        panic!(
            "{python}: {error}\nscripts/test installs it; by hand: python3 -m venv target/grpcio \
             && target/grpcio/bin/pip install grpcio-status"
        )
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}:\n{stderr}"))
}

/// Retries a few times at once, unless a pushback sets another time.
fn retrying(code: &str) -> Option<Value> {
    Some(json!({
        "methodConfig": [{
            "name": [{}],
            "retryPolicy": {
                "maxAttempts": 3,
                "initialBackoff": "0.01s",
                "maxBackoff": "0.1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": [code],
            },
        }],
    }))
}

/// When the server was reached.
#[derive(Clone, Default)]
struct Attempts(Arc<Mutex<Vec<Instant>>>);

impl Attempts {
    /// How long after the previous one.
    fn another(&self) -> Duration {
        let mut attempts = self.0.lock().expect("no test panics in here");
        let now = Instant::now();
        let before = attempts.last().copied().unwrap_or(now);
        attempts.push(now);
        now - before
    }

    fn count(&self) -> usize {
        self.0.lock().expect("no test panics in here").len()
    }
}

/// A server that sees each attempt before the layer does.
async fn watched(
    layer: RateLimitLayer,
    on_attempt: impl Fn() + Clone + Send + Sync + 'static,
) -> SocketAddr {
    let watch = move |request: http::Request<tonic::body::Body>| {
        on_attempt();
        request
    };
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(MapRequestLayer::new(watch))
        .layer(layer)
        .add_service(HealthServer::new(Counted::default()));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

async fn spend_the_only_permit(address: SocketAddr) {
    check(&mut client(address).await).await.expect("allowed");
}

#[tokio::test]
async fn a_denied_call_is_understood() {
    let address = serve(layer(Trip::Short, 1), Counted::default()).await;
    assert_eq!(call(address, None).await, json!({ "code": "OK" }));
    assert_eq!(
        call(address, None).await,
        json!({
            "code": "RESOURCE_EXHAUSTED",
            "message": "policy \"api\": the quota is used up, retry after 60 s",
            "pushback": ["-1"],
            "retry_delay_ms": 60_000,
            "quota_ids": ["api"],
        })
    );
}

#[tokio::test]
async fn a_store_that_fails_is_unavailable() {
    let policy = Policy::new("api", Limit::gcra(1, MINUTE)).on_store_failure(FailureMode::Deny);
    let layer = layer_of(Trip::FailsLate, [policy]);
    let told = call(serve(layer, Counted::default()).await, None).await;
    assert_eq!(told["code"], "UNAVAILABLE");
    assert_eq!(told["retry_delay_ms"], 1_000);
    assert_eq!(told["quota_ids"], json!([]));
}

#[tokio::test]
async fn a_client_retries_after_the_pushback_and_not_before() {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let policies = [Policy::new("api", Limit::gcra(1, SECOND))];
    let limiter = Limiter::new(store, policies).expect("a valid policy");
    let attempts = Attempts::default();
    let on_attempt = {
        let attempts = attempts.clone();
        // Time advances only between attempts, so a slow machine changes nothing. The client counts
        // in whole milliseconds, and may have missed a fraction at either end.
        move || clock.advance(attempts.another() + Duration::from_millis(2))
    };
    let address = watched(RateLimitLayer::new(limiter), on_attempt).await;
    spend_the_only_permit(address).await;
    attempts.0.lock().expect("no test panics in here").clear();

    let told = call(address, retrying("RESOURCE_EXHAUSTED")).await;
    assert_eq!(told, json!({ "code": "OK" }));
    assert_eq!(attempts.count(), 2);
}

#[tokio::test]
async fn a_client_that_retries_is_stopped_when_it_would_wait_too_long() {
    let attempts = Attempts::default();
    let on_attempt = {
        let attempts = attempts.clone();
        move || _ = attempts.another()
    };
    let address = watched(layer(Trip::Short, 1), on_attempt).await;
    spend_the_only_permit(address).await;
    let told = call(address, retrying("RESOURCE_EXHAUSTED")).await;
    assert_eq!(told["code"], "RESOURCE_EXHAUSTED");
    assert_eq!(attempts.count(), 1 + 1);
}

/// Without this the test above could not fail.
#[tokio::test]
async fn a_client_that_is_not_pushed_back_retries() {
    let attempts = Attempts::default();
    let refusing = {
        let attempts = attempts.clone();
        move |_| {
            attempts.another();
            Err(Status::resource_exhausted("by the service itself"))
        }
    };
    let (incoming, address) = listen().await;
    let server =
        Server::builder().add_service(HealthServer::with_interceptor(Counted::default(), refusing));
    tokio::spawn(server.serve_with_incoming(incoming));
    let told = call(address, retrying("RESOURCE_EXHAUSTED")).await;
    assert_eq!(told["message"], "by the service itself");
    assert_eq!(attempts.count(), 3);
}
