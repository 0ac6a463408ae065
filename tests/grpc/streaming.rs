//! Streaming calls of every kind: one decision each, however many messages follow.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, Stream, StreamExt, stream};
use http::uri::PathAndQuery;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, HealthCheckRequest as Message};
use tonic_prost::ProstCodec;
use tonic_types::StatusExt;
use tower::service_fn;
use tower_throttle::{Key, Limit, Limiter, MINUTE, Meter, Policy, RateLimitLayer, SECOND};

use crate::stage::{Counted, client, connect, layer, layer_of, listen, serve};
use support::http_store::{TestStore, Trip};
use support::web::eventually;

/// Takes messages, and counts its calls.
#[derive(Clone, Default)]
pub(crate) struct Streams(Arc<AtomicUsize>);

/// A client stream, answered with the number of its messages.
const SUM: &str = "/test.Streams/Sum";
/// A bidirectional stream that echoes its input.
const ECHO: &str = "/test.Streams/Echo";

impl NamedService for Streams {
    const NAME: &'static str = "test.Streams";
}

impl tower::Service<http::Request<Body>> for Streams {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.0.fetch_add(1, Ordering::SeqCst);
        let mut grpc = tonic::server::Grpc::new(ProstCodec::<Message, Message>::default());
        async move {
            Ok(match request.uri().path() {
                SUM => grpc.client_streaming(service_fn(sum_up), request).await,
                ECHO => grpc.streaming(service_fn(echo), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        }
        .boxed()
    }
}

async fn sum_up(request: Request<Streaming<Message>>) -> Result<Response<Message>, Status> {
    let mut messages = request.into_inner();
    let mut count = 0;
    while messages.message().await?.is_some() {
        count += 1;
    }
    Ok(Response::new(message(count)))
}

/// Charges for each message by the meter of the call, and ends when there is nothing left.
async fn echo(
    request: Request<Streaming<Message>>,
) -> Result<Response<BoxStream<'static, Result<Message, Status>>>, Status> {
    let meter = request.extensions().get::<Meter>().cloned();
    let meter = meter.unwrap_or_default();
    let messages = request.into_inner().then(move |message| {
        let charging = meter.charging();
        async move {
            charging.add(1).await?;
            message
        }
    });
    Ok(Response::new(messages.boxed()))
}

fn message(number: usize) -> Message {
    Message {
        service: number.to_string(),
    }
}

/// The answer to a client stream.
pub(crate) async fn sum(
    channel: Channel,
    messages: impl Stream<Item = Message> + Send + 'static,
) -> Result<String, Status> {
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("a connection");
    let codec = ProstCodec::<Message, Message>::default();
    let path = PathAndQuery::from_static(SUM);
    let answer = grpc.client_streaming(Request::new(messages), path, codec);
    Ok(answer.await?.into_inner().service)
}

/// A bidirectional stream: what goes out, and what comes in.
async fn talk(
    channel: Channel,
) -> Result<(mpsc::UnboundedSender<Message>, Streaming<Message>), Status> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut grpc = tonic::client::Grpc::new(channel);
    grpc.ready().await.expect("a connection");
    let codec = ProstCodec::<Message, Message>::default();
    let path = PathAndQuery::from_static(ECHO);
    let answer = grpc.streaming(Request::new(endless(receiver)), path, codec);
    Ok((sender, answer.await?.into_inner()))
}

/// Sends this many messages, each after the answer to the one before.
async fn echo_each(
    sender: &mpsc::UnboundedSender<Message>,
    answers: &mut Streaming<Message>,
    messages: usize,
) {
    for number in 0..messages {
        sender.send(message(number)).expect("the call goes on");
        let answer = answers.message().await.expect("a message");
        assert_eq!(answer, Some(message(number)));
    }
}

/// Ends when the sender is dropped.
fn endless(receiver: mpsc::UnboundedReceiver<Message>) -> impl Stream<Item = Message> + Send {
    stream::unfold(receiver, async |mut receiver| {
        Some((receiver.recv().await?, receiver))
    })
}

/// A server with the layer around it.
async fn behind(layer: RateLimitLayer) -> (Streams, Channel) {
    let service = Streams::default();
    let (incoming, address) = listen().await;
    let server = Server::builder().layer(layer).add_service(service.clone());
    tokio::spawn(server.serve_with_incoming(incoming));
    (service, connect(address).await)
}

impl Streams {
    fn calls(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_clients_stream_is_one_decision() {
    let store = TestStore::new(Trip::Short);
    let layer = RateLimitLayer::new(store.limiter(Limit::gcra(1, MINUTE)));
    let (service, channel) = behind(layer).await;
    let messages = stream::iter((0..5).map(message));
    assert_eq!(sum(channel, messages).await.expect("allowed"), "5");
    assert_eq!((store.decided(), service.calls()), (1, 1));
}

#[tokio::test]
async fn a_servers_stream_is_one_decision_and_stays_whole() {
    let service = Counted::default();
    let mut client = client(serve(layer(Trip::Short, 1), service.clone()).await).await;
    let watched = client.watch(HealthCheckRequest::default()).await;
    let watched = watched.expect("allowed");
    assert!(watched.metadata().contains_key("ratelimit"));
    let mut messages = watched.into_inner();
    for _ in 0..2 {
        assert!(messages.message().await.expect("a message").is_some());
    }
    let ending = messages
        .message()
        .await
        .expect_err("the status of the service");
    assert_eq!(ending.code(), Code::DataLoss);
    // The quota was sent before, in the headers.
    assert!(!ending.metadata().contains_key("ratelimit"));
    let denied = client.watch(HealthCheckRequest::default()).await;
    assert_eq!(denied.expect_err("denied").code(), Code::ResourceExhausted);
    assert_eq!(service.calls(), 1);
}

#[tokio::test]
async fn a_stream_either_way_is_one_decision() {
    let store = TestStore::new(Trip::Short);
    let layer = RateLimitLayer::new(store.limiter(Limit::gcra(1, MINUTE)));
    let (service, channel) = behind(layer).await;
    let (sender, mut answers) = talk(channel).await.expect("allowed");
    echo_each(&sender, &mut answers, 5).await;
    drop(sender);
    assert_eq!(answers.message().await.expect("its end"), None);
    assert_eq!((store.decided(), service.calls()), (1, 1));
}

#[tokio::test]
async fn a_denied_call_ends_though_its_client_has_more_to_send() {
    let (service, channel) = behind(layer(Trip::Short, 1)).await;
    drop(talk(channel.clone()).await.expect("allowed"));

    let (_sender, receiver) = mpsc::unbounded_channel();
    let denied = sum(channel.clone(), endless(receiver)).await;
    assert_eq!(denied.expect_err("denied").code(), Code::ResourceExhausted);
    let denied = talk(channel).await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(service.calls(), 1);
}

#[tokio::test]
async fn a_stream_either_way_holds_its_place_until_both_have_ended() {
    // Its store answers at once, so the place is free when the client sees the end.
    let limiter = TestStore::new(Trip::None).limiter(Limit::concurrency(1));
    let (_, channel) = behind(RateLimitLayer::new(limiter)).await;
    let (sender, mut answers) = talk(channel.clone()).await.expect("allowed");
    sender.send(message(1)).expect("the call goes on");
    answers.message().await.expect("a message");

    let denied = talk(channel.clone()).await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    // Not when its lease lapses: nobody waits for that.
    let info = denied.get_details_retry_info().expect("a wait");
    assert_eq!(info.retry_delay, Some(SECOND));

    drop(sender);
    assert_eq!(answers.message().await.expect("its end"), None);
    drop(talk(channel).await.expect("allowed"));
}

/// Its store answers at once, so what does not count is given back when the client sees the end.
#[tokio::test]
async fn a_call_that_fails_in_its_stream_counts_by_its_trailers() {
    let policy = Policy::new("failed", Limit::fixed_window(2, MINUTE))
        .count_if_at_end(|end| end.grpc_status() == Some(Code::DataLoss as u32));
    let layer = layer_of(Trip::None, [policy]);
    let mut client = client(serve(layer, Counted::default()).await).await;
    let fails = async |client: &mut HealthClient<Channel>| {
        let watched = client.watch(HealthCheckRequest::default()).await;
        let mut messages = watched?.into_inner();
        while messages.message().await?.is_some() {}
        Ok::<(), Status>(())
    };
    for _ in 0..3 {
        let succeeds = client.check(HealthCheckRequest::default()).await;
        assert!(succeeds.is_ok(), "none of them counts");
    }
    for _ in 0..2 {
        assert_eq!(
            fails(&mut client).await.expect_err("fails").code(),
            Code::DataLoss
        );
    }
    assert_eq!(
        fails(&mut client).await.expect_err("denied").code(),
        Code::ResourceExhausted
    );
}

#[tokio::test]
async fn a_call_that_is_left_before_its_trailers_counts() {
    let policy = Policy::new("failed", Limit::fixed_window(1, MINUTE)).count_if_at_end(|_| false);
    let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("sound policies");
    let (_, channel) = behind(RateLimitLayer::new(limiter.clone())).await;
    let (sender, mut answers) = talk(channel.clone()).await.expect("allowed");
    sender.send(message(1)).expect("the call goes on");
    answers.message().await.expect("a message");
    drop((sender, answers));
    let denied = talk(channel).await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let left = limiter
        .peek("failed", Key::everybody())
        .await
        .expect("a policy");
    assert_eq!(left.remaining(), 0);
}

/// One that ends costs its messages; one that its client leaves at any message no less than estimated.
#[tokio::test]
async fn a_stream_costs_the_messages_that_it_meters() {
    let policy = Policy::new("messages", Limit::fixed_window(100, MINUTE))
        .cost(3)
        .settle_at_end(|end| end.used());
    let limiter = Limiter::new(TestStore::new(Trip::None), [policy]).expect("sound policies");
    let (_, channel) = behind(RateLimitLayer::new(limiter.clone())).await;
    let mut left = 100;
    for (messages, ends, cost) in [
        (5, true, 5),
        (1, true, 1),
        (0, false, 3),
        (2, false, 3),
        (4, false, 4),
    ] {
        let (sender, mut answers) = talk(channel.clone()).await.expect("allowed");
        echo_each(&sender, &mut answers, messages).await;
        if ends {
            drop(sender);
            assert_eq!(answers.message().await.expect("its end"), None);
        } else {
            drop((sender, answers));
        }
        left -= cost;
        let _ = eventually(&limiter, "messages", Key::everybody(), |looked| {
            looked.remaining() == left
        })
        .await;
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_budget_is_used_up() {
    let policy = Policy::new("messages", Limit::fixed_window(5, MINUTE))
        .cost(2)
        .settle_at_end(|end| end.used());
    let limiter = Limiter::new(TestStore::new(Trip::Short), [policy]).expect("valid policies");
    let (_, channel) = behind(RateLimitLayer::new(limiter)).await;
    let (sender, mut answers) = talk(channel).await.expect("allowed");
    echo_each(&sender, &mut answers, 5).await;
    sender.send(message(5)).expect("the call goes on");
    let denied = answers.message().await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    let info = denied.get_details_retry_info().expect("a wait");
    assert!(info.retry_delay.is_some());
}
