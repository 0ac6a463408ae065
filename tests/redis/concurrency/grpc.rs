//! gRPC calls over a real tonic server and client: each holds its place until its trailers.

use std::future::pending;

use futures_util::{StreamExt, stream};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};
use tonic::codegen::BoxStream;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower_throttle::RateLimitLayer;

use super::places::{PLACES, Places, on_both_stores};

on_both_stores! {
    a_stream_holds_its_place_until_its_status
    a_stream_that_fails_gives_its_place_back
    no_more_streams_run_than_there_are_places
    cancelled_streams_free_the_place_on_an_open_connection
    cancelled_calls_free_the_place_on_an_open_connection
}

/// Feeds a stream message by message. Dropping it ends the stream.
type Feed = mpsc::Sender<Result<HealthCheckResponse, Status>>;

/// Its streams are fed by the test; its unary calls are never answered.
struct Fed(mpsc::UnboundedSender<Feed>);

#[tonic::async_trait]
impl Health for Fed {
    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let (feed, _messages) = mpsc::channel(1);
        self.0.send(feed).unwrap();
        pending().await
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (feed, messages) = mpsc::channel(1);
        self.0.send(feed).unwrap();
        let messages = stream::unfold(messages, async |mut messages| {
            Some((messages.recv().await?, messages))
        });
        Ok(Response::new(messages.boxed()))
    }
}

/// A connection to a server behind the limit.
struct Calls {
    client: HealthClient<Channel>,
    feeds: Mutex<mpsc::UnboundedReceiver<Feed>>,
}

impl Calls {
    async fn behind(places: &Places) -> Self {
        let (feeds, fed) = mpsc::unbounded_channel();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Server::builder()
            .layer(RateLimitLayer::new(places.limiter.clone()))
            .add_service(HealthServer::new(Fed(feeds)));
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
        Self {
            client: HealthClient::new(endpoint.connect().await.unwrap()),
            feeds: Mutex::new(fed),
        }
    }

    async fn watch(&self) -> Result<(Streaming<HealthCheckResponse>, Feed), Status> {
        let mut client = self.client.clone();
        let watched = client.watch(HealthCheckRequest::default()).await?;
        Ok((watched.into_inner(), self.feed().await))
    }

    async fn feed(&self) -> Feed {
        self.feeds.lock().await.recv().await.unwrap()
    }
}

async fn a_stream_holds_its_place_until_its_status(places: &Places) {
    let calls = Calls::behind(places).await;
    let (mut stream, feed) = calls.watch().await.unwrap();
    for _ in 0..3 {
        feed.send(Ok(HealthCheckResponse::default())).await.unwrap();
        assert!(stream.message().await.unwrap().is_some());
        assert_eq!(places.in_use().await, 1);
    }
    drop(feed);
    assert_eq!(stream.message().await.unwrap(), None);
    places.empty().await;
}

async fn a_stream_that_fails_gives_its_place_back(places: &Places) {
    let calls = Calls::behind(places).await;
    let (mut stream, feed) = calls.watch().await.unwrap();
    let lost = Status::data_loss("the disk is gone");
    feed.send(Err(lost)).await.unwrap();
    let failed = stream.message().await.unwrap_err();
    assert_eq!(failed.code(), Code::DataLoss);
    places.empty().await;
}

async fn no_more_streams_run_than_there_are_places(places: &Places) {
    let calls = Calls::behind(places).await;
    let mut running = Vec::new();
    for _ in 0..PLACES {
        running.push(calls.watch().await.unwrap());
    }
    let denied = calls.watch().await.map(drop).unwrap_err();
    assert_eq!(denied.code(), Code::ResourceExhausted);
    running.pop();
    places.come_to(PLACES - 1).await;
    running.push(calls.watch().await.unwrap());
    drop(running);
    places.empty().await;
}

async fn cancelled_streams_free_the_place_on_an_open_connection(places: &Places) {
    let calls = Calls::behind(places).await;
    let (stream, feed) = calls.watch().await.unwrap();
    let (_other, _other_feed) = calls.watch().await.unwrap();
    assert_eq!(places.in_use().await, 2);
    drop(stream);
    feed.closed().await;
    places.come_to(1).await;
}

async fn cancelled_calls_free_the_place_on_an_open_connection(places: &Places) {
    let calls = Calls::behind(places).await;
    let (_other, _other_feed) = calls.watch().await.unwrap();
    let mut client = calls.client.clone();
    let call = tokio::spawn(async move { client.check(HealthCheckRequest::default()).await });
    let feed = calls.feed().await;
    assert_eq!(places.in_use().await, 2);
    call.abort();
    feed.closed().await;
    places.come_to(1).await;
}
