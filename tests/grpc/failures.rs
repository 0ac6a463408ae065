//! Policies that count only calls that fail.

use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tonic::transport::Server;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::ServiceBuilder;
use tower_throttle::{HOUR, Limit, Policy, RateLimitLayer, ResponseHead};

use crate::stage::{Counted, SILENT, client, layer_of, listen, serve};
use support::http_store::Trip;

/// Two of them are let through.
fn only(failures: Code) -> RateLimitLayer {
    let counts = move |response: &ResponseHead<'_>| response.grpc_status() == Some(failures as u32);
    let policy = Policy::new("failures", Limit::sliding_log(2, HOUR)).count_if(counts);
    layer_of(Trip::None, [policy])
}

/// A question for a health service, which only knows the service without a name.
fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

/// `ask` asks for the health of a service.
async fn two_failures_are_let_through(mut ask: impl AsyncFnMut(&str) -> Result<(), Status>) {
    for _ in 0..2 {
        for _ in 0..3 {
            ask("").await.expect("nothing of it counts");
        }
        let failure = ask("unknown").await.expect_err("a failure");
        assert_eq!(failure.code(), Code::NotFound);
    }
    for service in ["unknown", ""] {
        let denied = ask(service).await.expect_err("denied");
        assert_eq!(denied.code(), Code::ResourceExhausted, "{service:?}");
    }
}

#[tokio::test]
async fn only_calls_that_fail_so_count() {
    let (incoming, address) = listen().await;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(only(Code::NotFound))
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = client(address).await;
    two_failures_are_let_through(async |service| client.check(about(service)).await.map(drop))
        .await;
}

#[tokio::test]
async fn only_calls_that_fail_so_count_on_the_outside_of_grpc_web_too() {
    let (incoming, address) = listen().await;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .accept_http1(true)
        .layer(only(Code::NotFound))
        .layer(GrpcWebLayer::new())
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    let web = ServiceBuilder::new()
        .layer(GrpcWebClientLayer::new())
        .service(Client::builder(TokioExecutor::new()).build_http());
    let origin = format!("http://{address}").parse().expect("an origin");
    let mut client = HealthClient::with_origin(web, origin);
    two_failures_are_let_through(async |service| client.check(about(service)).await.map(drop))
        .await;
}

#[tokio::test]
async fn calls_that_fail_otherwise_do_not_count() {
    let (incoming, address) = listen().await;
    let (_, health) = tonic_health::server::health_reporter();
    let server = Server::builder()
        .layer(only(Code::Unauthenticated))
        .add_service(health);
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = client(address).await;
    for _ in 0..4 {
        let answer = client.check(about("unknown")).await;
        let failure = answer.expect_err("a failure");
        assert_eq!(failure.code(), Code::NotFound);
    }
}

#[tokio::test]
async fn a_failure_within_a_stream_is_not_counted() {
    for (service, messages) in [("", 2), (SILENT, 0)] {
        let address = serve(only(Code::DataLoss), Counted::default()).await;
        let mut client = client(address).await;
        for _ in 0..4 {
            let watched = client.watch(about(service)).await;
            let mut answer = watched.expect("never denied").into_inner();
            for _ in 0..messages {
                assert!(answer.message().await.expect("a message").is_some());
            }
            let failure = answer.message().await.expect_err("a failure");
            assert_eq!(failure.code(), Code::DataLoss);
        }
    }
}
