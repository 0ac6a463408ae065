//! A server whose requests the test answers, and its clients.

use std::net::SocketAddr;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, Version};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use reqwest::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, oneshot};
use tower::{Layer, service_fn};

use super::places::Places;

pub(crate) type Body = UnsyncBoxBody<Bytes, &'static str>;
pub(crate) type Answer = Result<Response<Body>, &'static str>;

/// Feeds a body frame by frame. Dropping it ends the body.
pub(crate) type Feed = mpsc::Sender<Result<Frame<Bytes>, &'static str>>;

/// A response whose body the test feeds.
pub(crate) fn streaming() -> (Feed, Response<Body>) {
    let (feed, frames) = mpsc::channel(1);
    let frames = stream::unfold(frames, async |mut frames| {
        Some((frames.recv().await?, frames))
    });
    let body = StreamBody::new(frames).boxed_unsync();
    (feed, Response::new(body))
}

pub(crate) async fn send(feed: &Feed, text: &'static str) {
    feed.send(Ok(Frame::data(text.into()))).await.unwrap();
}

pub(crate) fn bodyless(status: u16) -> Response<Body> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status.try_into().unwrap();
    response
}

/// A request that was let in and waits for its answer. Dropping it makes its service panic.
pub(crate) struct Arrived {
    pub(crate) request: Request<Incoming>,
    answer: oneshot::Sender<Answer>,
}

impl Arrived {
    pub(crate) fn answer(self, answer: Answer) {
        assert!(self.answer.send(answer).is_ok(), "nobody waits for it");
    }

    /// Answers with a body that the test feeds.
    pub(crate) fn stream(self) -> Feed {
        let (feed, response) = streaming();
        self.answer(Ok(response));
        feed
    }

    /// Waits until the service was dropped.
    pub(crate) async fn was_dropped(mut self) {
        self.answer.closed().await;
    }
}

pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    requests: Mutex<mpsc::UnboundedReceiver<Arrived>>,
}

impl Stage {
    /// Behind the limit.
    pub(crate) async fn behind(places: &Places) -> Self {
        let (arrivals, requests) = mpsc::unbounded_channel();
        let service = places.layer().layer(service_fn(move |request| {
            let (answer, answered) = oneshot::channel();
            let arrived = Arrived { request, answer };
            arrivals.send(arrived).unwrap();
            async { answered.await.expect("an answer by the test") }
        }));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = TowerToHyperService::new(service.clone());
                tokio::spawn(async move {
                    let connection = auto::Builder::new(TokioExecutor::new());
                    let stream = TokioIo::new(stream);
                    let served = connection.serve_connection_with_upgrades(stream, service);
                    served.await
                });
            }
        });
        Self {
            address,
            requests: Mutex::new(requests),
        }
    }

    /// The next request that was let in.
    pub(crate) async fn arrived(&self) -> Arrived {
        self.requests.lock().await.recv().await.unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    pub(crate) async fn get(&self, client: &Client) -> reqwest::Result<reqwest::Response> {
        client.get(self.url()).send().await
    }

    /// A request that was let in, answered with a body that the test feeds.
    pub(crate) async fn open(&self, client: &Client) -> (reqwest::Response, Feed) {
        let (response, feed) =
            tokio::join!(self.get(client), async { self.arrived().await.stream() });
        (response.unwrap(), feed)
    }

    /// A connection on which a request was sent and nothing is read.
    pub(crate) async fn connection(&self, head: &str) -> TcpStream {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        connection
    }
}

/// A client for each version of HTTP.
pub(crate) fn clients() -> [Client; 2] {
    [client(Version::HTTP_11), client(Version::HTTP_2)]
}

pub(crate) fn client(version: Version) -> Client {
    let client = match version {
        Version::HTTP_2 => Client::builder().http2_prior_knowledge(),
        _ => Client::builder().http1_only(),
    };
    client.build().unwrap()
}

/// A request as sent.
pub(crate) const GET: &str = "GET / HTTP/1.1\r\nhost: stage\r\n\r\n";

/// The head of a response.
pub(crate) async fn head(connection: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}
