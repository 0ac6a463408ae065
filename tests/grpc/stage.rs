//! Servers behind the layer, and tonic's client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::Method;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tonic::codegen::BoxStream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower_throttle::{Limit, Limiter, MINUTE, Policy, RateLimitLayer};

use support::http_store::{TestStore, Trip};

pub(crate) fn layer(trip: Trip, permits: u64) -> RateLimitLayer {
    RateLimitLayer::new(TestStore::new(trip).limiter(Limit::gcra(permits, MINUTE)))
}

pub(crate) fn layer_of(trip: Trip, policies: impl IntoIterator<Item = Policy>) -> RateLimitLayer {
    RateLimitLayer::new(Limiter::new(TestStore::new(trip), policies).expect("sound policies"))
}

/// A watch of this service ends before the first message.
pub(crate) const SILENT: &str = "silent";

/// Answers and counts its calls.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub(crate) fn calls(&self) -> usize {
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
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(Response::new(self.answer()))
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        let is_silent = request.get_ref().service == SILENT;
        let messages = stream::repeat(Ok(self.answer())).take(if is_silent { 0 } else { 2 });
        let ending = stream::iter([Err(Status::data_loss("in the trailers"))]);
        Ok(Response::new(messages.chain(ending).boxed()))
    }
}

/// A free port, and its address.
pub(crate) async fn bind() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

/// The same for a tonic server.
pub(crate) async fn listen() -> (TcpIncoming, SocketAddr) {
    let (listener, address) = bind().await;
    (listener.into(), address)
}

/// A server with the layer around all of its services.
pub(crate) async fn serve(layer: RateLimitLayer, service: Counted) -> SocketAddr {
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(layer)
        .add_service(HealthServer::new(service));
    tokio::spawn(server.serve_with_incoming(incoming));
    address
}

/// What a raw HTTP/2 client gets for a health request.
pub(crate) async fn raw(
    address: SocketAddr,
    method: Method,
    content_type: &str,
    body: &'static [u8],
) -> http::Response<Incoming> {
    let request = check_by(method).header("content-type", content_type);
    send(address, request, body).await
}

/// The beginning of a health request by this method.
pub(crate) fn check_by(method: Method) -> http::request::Builder {
    let request = http::Request::builder().method(method);
    request.header("te", "trailers")
}

/// What a raw HTTP/2 client gets for the rest of it.
pub(crate) async fn send(
    address: SocketAddr,
    request: http::request::Builder,
    body: &'static [u8],
) -> http::Response<Incoming> {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .expect("HTTP/2");
    tokio::spawn(connection);
    let request = request
        .uri(format!("http://{address}/grpc.health.v1.Health/Check"))
        .body(Full::new(Bytes::from_static(body)))
        .expect("a request");
    sender.send_request(request).await.expect("a response")
}

pub(crate) async fn connect(address: SocketAddr) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
    endpoint.connect().await.expect("a connection")
}

pub(crate) async fn client(address: SocketAddr) -> HealthClient<Channel> {
    HealthClient::new(connect(address).await)
}

pub(crate) async fn check(client: &mut HealthClient<Channel>) -> Result<(), Status> {
    client
        .check(HealthCheckRequest::default())
        .await
        .map(|response| assert_eq!(response.into_inner().status(), ServingStatus::Serving))
}
