//! The layer over gRPC: a real tonic server and client, and a raw HTTP/2 client for what tonic
//! does not show.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body::Body;
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::BoxStream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower_throttle::{
    FailureMode, Key, Limit, Limiter, MINUTE, OnMissingKey, PlainText, Policy, RateLimitLayer,
    RequestHead,
};

#[path = "support/http_store.rs"]
mod http_store;
use http_store::{TRIPS, TestStore, Trip};

fn layer(trip: Trip, permits: u32) -> RateLimitLayer {
    RateLimitLayer::new(TestStore::new(trip).limiter(Limit::gcra(permits, MINUTE)))
}

fn layer_of(trip: Trip, policy: Policy) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::new(TestStore::new(trip), [policy]).expect("a sound policy"))
}

/// Answers and counts its calls.
#[derive(Clone, Default)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn calls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    fn answer(&self) -> HealthCheckResponse {
        HealthCheckResponse {
            status: ServingStatus::Serving.into(),
        }
    }
}

#[tonic::async_trait]
impl Health for Counted {
    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn check(
        &self,
        _: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<HealthCheckResponse>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(tonic::Response::new(self.answer()))
    }

    async fn watch(
        &self,
        _: tonic::Request<HealthCheckRequest>,
    ) -> Result<tonic::Response<Self::WatchStream>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let messages = stream::iter([Ok(self.answer()), Ok(self.answer())]);
        let ending = stream::iter([Err(Status::data_loss("in the trailers"))]);
        Ok(tonic::Response::new(messages.chain(ending).boxed()))
    }
}

/// A port of its own, and where it is.
async fn listen() -> (TcpIncoming, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener.into(), address)
}

/// A server with the layer around all of its services.
async fn serve(layer: RateLimitLayer, service: Counted) -> SocketAddr {
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(layer)
        .add_service(HealthServer::new(service));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

async fn client(address: SocketAddr) -> HealthClient<Channel> {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
    HealthClient::new(endpoint.connect().await.expect("a connection"))
}

async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client
        .check(HealthCheckRequest::default())
        .await
        .map(|response| assert_eq!(response.into_inner().status(), ServingStatus::Serving))
}

#[tokio::test]
async fn a_denied_call_is_resource_exhausted_and_never_reaches_the_service() {
    for trip in TRIPS {
        let service = Counted::default();
        let mut client = client(serve(layer(trip, 2), service.clone()).await).await;
        check(&mut client).await.expect("allowed");
        check(&mut client).await.expect("allowed");
        let denied = check(&mut client).await.expect_err("denied");
        assert_eq!(denied.code(), Code::ResourceExhausted, "{trip:?}");
        assert_eq!(
            denied.message(),
            "policy \"api\": the quota is used up, retry after 30 s"
        );
        assert_eq!(service.calls(), 2);
    }
}

#[cfg(feature = "tonic")]
#[tokio::test]
async fn a_single_service_can_be_limited_by_its_name() {
    use tower::Layer;

    let service = Counted::default();
    let (incoming, address) = listen().await;
    let limited = layer(Trip::Short, 1).layer(HealthServer::new(service.clone()));
    let server = Server::builder().add_service(limited);
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut client = client(address).await;
    check(&mut client).await.expect("allowed");
    let denied = check(&mut client).await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(service.calls(), 1);
}

#[tokio::test]
async fn a_streaming_call_is_one_decision_and_keeps_its_messages_and_trailers() {
    let service = Counted::default();
    let mut client = client(serve(layer(Trip::Short, 1), service.clone()).await).await;
    let watched = client.watch(HealthCheckRequest::default()).await;
    let mut messages = watched.expect("allowed").into_inner();
    for _ in 0..2 {
        assert!(messages.message().await.expect("a message").is_some());
    }
    let ending = messages
        .message()
        .await
        .expect_err("the status of the service");
    assert_eq!(ending.code(), Code::DataLoss);
    let denied = client.watch(HealthCheckRequest::default()).await;
    assert_eq!(denied.expect_err("denied").code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_policy_that_fails_closed_is_unavailable() {
    for trip in [Trip::Fails, Trip::FailsLate] {
        let policy = Policy::new("api", Limit::gcra(1, MINUTE)).on_store_failure(FailureMode::Deny);
        let service = Counted::default();
        let mut client = client(serve(layer_of(trip, policy), service.clone()).await).await;
        let refused = check(&mut client).await.expect_err("refused");
        assert_eq!(refused.code(), Code::Unavailable, "{trip:?}");
        assert_eq!(service.calls(), 0);
    }
}

#[tokio::test]
async fn a_call_that_does_not_say_whose_it_is_is_an_invalid_argument() {
    let policy = Policy::new("user", Limit::gcra(1, MINUTE))
        .by(|_: &RequestHead<'_>| None::<Key>)
        .on_missing_key(OnMissingKey::Reject);
    let layer = layer_of(Trip::None, policy);
    let mut client = client(serve(layer, Counted::default()).await).await;
    let refused = check(&mut client).await.expect_err("refused");
    assert_eq!(refused.code(), Code::InvalidArgument);
}

/// What a raw HTTP/2 client gets for a call with this content type.
async fn raw(address: SocketAddr, content_type: &str) -> Response<Incoming> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("HTTP/2");
    tokio::spawn(connection);
    let request = Request::post(format!("http://{address}/grpc.health.v1.Health/Check"))
        .header("content-type", content_type)
        .header("te", "trailers")
        .body(Empty::<Bytes>::new())
        .expect("a request");
    sender.send_request(request).await.expect("a response")
}

#[tokio::test]
async fn a_denial_is_trailers_only_on_the_wire() {
    for trip in TRIPS {
        let address = serve(layer(trip, 1), Counted::default()).await;
        check(&mut client(address).await).await.expect("allowed");
        let denied = raw(address, "application/grpc+proto").await;
        assert_eq!(denied.status(), 200);
        assert_eq!(denied.headers()["content-type"], "application/grpc");
        assert_eq!(denied.headers()["grpc-status"], "8");
        assert!(denied.headers().contains_key("grpc-message"));
        // The frame that brought the headers ended the stream.
        assert!(denied.body().is_end_stream(), "{trip:?}");
    }
}

#[tokio::test]
async fn grpc_never_gets_429_whatever_the_builder_makes() {
    let layer = layer(Trip::None, 1).on_rejection(PlainText);
    let (incoming, address) = listen().await;
    let app = Router::new().layer(layer);
    let server = Server::builder().add_routes(app.into());
    tokio::spawn(server.serve_with_incoming(incoming));

    // Spends the only permit on a path that nobody serves.
    raw(address, "application/json").await;
    for (asked, answered) in [
        ("application/grpc", "application/grpc"),
        ("application/grpc;charset=utf-8", "application/grpc"),
        ("application/grpc-web", "application/grpc-web"),
        ("application/grpc-web+proto", "application/grpc-web+proto"),
        ("application/grpc-web-text", "application/grpc-web-text"),
    ] {
        let denied = raw(address, asked).await;
        assert_eq!(denied.status(), 200, "{asked}");
        assert_eq!(denied.headers()["content-type"], answered);
        assert_eq!(denied.headers()["grpc-status"], "8");
        assert!(denied.body().is_end_stream());
    }
    assert_eq!(raw(address, "application/json").await.status(), 429);
}
