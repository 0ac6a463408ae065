//! gRPC-Web: answered in the request's own content type, by the headers alone.

use std::net::SocketAddr;

use axum::Router;
use http::{HeaderName, Method, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tonic::transport::Server;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::HealthServer;
use tonic_types::StatusExt;
use tonic_web::{GrpcWebClientLayer, GrpcWebLayer};
use tower::ServiceBuilder;
use tower_http::cors::{Any, CorsLayer};
use tower_throttle::PlainText;

use crate::stage::{self, Counted, layer, listen};
use support::http_store::{TRIPS, Trip};

async fn raw(address: SocketAddr, method: Method, content_type: &str) -> Response<Incoming> {
    stage::raw(address, method, content_type, &[]).await
}

/// Content types that make a `POST` a call, each with that of its answer.
const CONTENT_TYPES: [(&str, &str); 6] = [
    ("application/grpc", "application/grpc"),
    ("application/grpc+proto", "application/grpc"),
    ("application/grpc;charset=utf-8", "application/grpc"),
    ("application/grpc-web", "application/grpc-web"),
    ("application/grpc-web+proto", "application/grpc-web+proto"),
    ("application/grpc-web-text", "application/grpc-web-text"),
];

/// A server whose only permit has been spent, on a path that nobody serves.
async fn spent() -> SocketAddr {
    let layer = layer(Trip::None, 1).on_rejection(PlainText);
    let (incoming, address) = listen().await;
    let app = Router::new().layer(layer);
    let server = Server::builder().add_routes(app.into());
    tokio::spawn(server.serve_with_incoming(incoming));
    raw(address, Method::POST, "application/json").await;
    address
}

#[tokio::test]
async fn grpc_never_gets_429_whatever_the_builder_makes() {
    let address = spent().await;
    for (asked, answered) in CONTENT_TYPES {
        let denied = raw(address, Method::POST, asked).await;
        assert_eq!(denied.status(), 200, "{asked}");
        assert_eq!(denied.headers()["content-type"], answered);
        assert_eq!(denied.headers()["grpc-status"], "8");
        assert_eq!(denied.headers()["cache-control"], "no-store");
        assert!(denied.body().is_end_stream());
    }
    let denied = raw(address, Method::POST, "application/json").await;
    assert_eq!(denied.status(), 429);
}

#[tokio::test]
async fn a_content_type_does_not_turn_a_denial_into_a_success() {
    let address = spent().await;
    for (asked, _) in CONTENT_TYPES {
        for method in [Method::GET, Method::HEAD, Method::PUT] {
            let denied = raw(address, method, asked).await;
            assert_eq!(denied.status(), 429, "{asked}");
            assert_eq!(denied.headers()["retry-after"], "60");
            assert_eq!(denied.headers()["cache-control"], "no-store");
        }
    }
}

/// The second response to a gRPC-Web client, over HTTP/1.1 as from a browser.
async fn second_call(address: SocketAddr) -> Status {
    let http = Client::builder(TokioExecutor::new()).build_http();
    let web = ServiceBuilder::new()
        .layer(GrpcWebClientLayer::new())
        .service(http);
    let origin = format!("http://{address}").parse().expect("an origin");
    let mut client = HealthClient::with_origin(web, origin);
    let first = client.check(HealthCheckRequest::default()).await;
    first.expect("allowed");
    let second = client.check(HealthCheckRequest::default()).await;
    second.expect_err("denied")
}

fn assert_explained(denied: &Status) {
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert!(denied.message().starts_with("policy \"api\""));
    let info = denied.get_details_retry_info().expect("a wait");
    assert_eq!(info.retry_delay, Some(tower_throttle::MINUTE));
    let failure = denied.get_details_quota_failure().expect("a policy");
    assert_eq!(failure.violations[0].quota_id, "api");
}

#[tokio::test]
async fn grpc_web_clients_understand_a_layer_outside_the_translation() {
    for trip in TRIPS {
        let (incoming, address) = listen().await;
        let server = Server::builder()
            .accept_http1(true)
            .layer(layer(trip, 1))
            .layer(GrpcWebLayer::new())
            .add_service(HealthServer::new(Counted::default()));
        tokio::spawn(server.serve_with_incoming(incoming));
        assert_explained(&second_call(address).await);
    }
}

#[tokio::test]
async fn grpc_web_clients_understand_a_layer_inside_the_translation() {
    for trip in TRIPS {
        let (incoming, address) = listen().await;
        let server = Server::builder()
            .accept_http1(true)
            .layer(GrpcWebLayer::new())
            .layer(layer(trip, 1))
            .add_service(HealthServer::new(Counted::default()));
        tokio::spawn(server.serve_with_incoming(incoming));
        assert_explained(&second_call(address).await);
    }
}

#[tokio::test]
async fn browsers_see_the_answer_through_an_outer_cors_layer() {
    const STATUS: [&str; 3] = ["grpc-status", "grpc-message", "grpc-status-details-bin"];
    let (incoming, address) = listen().await;
    let cors = CorsLayer::new()
        .allow_origin(Any)
        .expose_headers(STATUS.map(HeaderName::from_static));
    let server = Server::builder()
        .accept_http1(true)
        .layer(cors)
        .layer(layer(Trip::Short, 1))
        .layer(GrpcWebLayer::new())
        .add_service(HealthServer::new(Counted::default()));
    tokio::spawn(server.serve_with_incoming(incoming));

    let call = || {
        let call = reqwest::Client::new()
            .post(format!("http://{address}/grpc.health.v1.Health/Check"))
            .header("content-type", "application/grpc-web+proto")
            .header("origin", "https://app.example")
            .body(vec![0; 5]);
        async { call.send().await.expect("an answer") }
    };
    call().await;
    let denied = call().await;
    assert_eq!(denied.headers()["access-control-allow-origin"], "*");
    let exposed = denied.headers()["access-control-expose-headers"].to_str();
    let exposed: Vec<_> = exposed.expect("text").split(',').map(str::trim).collect();
    for name in STATUS {
        assert!(exposed.contains(&name), "{exposed:?}");
        assert!(denied.headers().contains_key(name), "{name}");
    }
}
