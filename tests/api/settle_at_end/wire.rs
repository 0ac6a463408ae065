//! Over real sockets, HTTP/1.1 and HTTP/2: clients that hang up at any chunk.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::State;
use axum::routing::get;
use futures_util::stream;
use reqwest::{Client, Version};
use support::bench::Bench;
use support::web::{eventually, serve};
use tokio::sync::mpsc;
use tower_throttle::{Limiter, MemoryStore, RateLimitLayer};

use super::*;

/// Lets the test send the chunks of the next answer.
#[derive(Clone, Default)]
struct Sender(Arc<Mutex<Option<mpsc::UnboundedReceiver<u64>>>>);

impl Sender {
    fn next(&self) -> mpsc::UnboundedSender<u64> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.0.lock().unwrap() = Some(receiver);
        sender
    }

    /// The chunks of the next answer, until `count` says that there are no more.
    fn body<F>(&self, count: impl Fn(u64) -> F + Clone + Send + 'static) -> AxumBody
    where
        F: Future<Output = Option<()>> + Send,
    {
        let receiver = self.0.lock().unwrap().take().expect("a channel");
        AxumBody::from_stream(stream::unfold(receiver, move |mut receiver| {
            let count = count.clone();
            async move {
                let used = receiver.recv().await?;
                count(used).await?;
                Some((Ok::<_, Infallible>("chunk"), receiver))
            }
        }))
    }
}

async fn chunks(State(sender): State<Sender>, meter: Meter) -> AxumBody {
    sender.body(move |used| {
        meter.add(used);
        ready(Some(()))
    })
}

/// The same, which charges for each chunk before it is sent, and ends when there is nothing left.
async fn charged_chunks(State(sender): State<Sender>, meter: Meter) -> AxumBody {
    sender.body(move |used| {
        let charging = meter.charging();
        async move { charging.add(used).await.ok() }
    })
}

#[tokio::test]
async fn a_client_that_hangs_up_pays_for_what_it_was_sent() {
    let limiter = Limiter::new(MemoryStore::new(), [tokens(10)]).unwrap();
    let sender = Sender::default();
    let app = Router::new()
        .route("/", get(chunks))
        .with_state(sender.clone());
    let url = serve(app.layer(RateLimitLayer::new(limiter.clone()))).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for (hangs_up_after, cost) in [(0, 10), (1, 10), (2, 10), (3, 12), (4, 16)] {
            let name = format!("{version:?} {hangs_up_after}");
            let sent = sender.next();
            let mut response = get_with(version, &url, &name).await;
            for _ in 0..hangs_up_after {
                sent.send(4).unwrap();
                assert_eq!(response.chunk().await.unwrap().unwrap(), "chunk");
            }
            drop(response);
            let settled = eventually(&limiter, "tokens", key(&name), |looked| {
                looked.remaining() == 1_000 - cost && sent.is_closed()
            });
            let _ = settled.await;
        }
        // Whoever reads it to its end pays for no more.
        let name = format!("{version:?}");
        let sent = sender.next();
        let response = get_with(version, &url, &name).await;
        sent.send(4).unwrap();
        drop(sent);
        assert_eq!(response.text().await.unwrap(), "chunk");
        let is_settled = eventually(&limiter, "tokens", key(&name), |looked| {
            looked.remaining() == 996
        });
        let _ = is_settled.await;
    }
}

/// Over Redis, so that clients hang up while a step is asked for, too.
#[tokio::test]
async fn a_client_that_hangs_up_pays_for_no_step_ahead() {
    let bench = Bench::redis().await;
    let limiter = bench.limiter([tokens(10)]);
    let sender = Sender::default();
    let app = Router::new()
        .route("/", get(charged_chunks))
        .with_state(sender.clone());
    let url = serve(app.layer(RateLimitLayer::new(limiter.clone()))).await;
    for version in [Version::HTTP_11, Version::HTTP_2] {
        for read in 0..4 {
            let name = format!("{version:?} {read}");
            let sent = sender.next();
            let mut response = get_with(version, &url, &name).await;
            for _ in 0..read {
                sent.send(7).unwrap();
                assert_eq!(response.chunk().await.unwrap().unwrap(), "chunk");
            }
            sent.send(7).unwrap();
            drop(response);
            sent.closed().await;
            // The last piece may have been made by then.
            let costs = [read, read + 1].map(|pieces| (7 * pieces).max(10));
            let settled = eventually(&limiter, "tokens", key(&name), |looked| {
                costs.contains(&(1_000 - looked.remaining()))
            });
            let _ = settled.await;
            assert!(limiter.flush().await);
            let looked = limiter.peek("tokens", key(&name)).await.expect("a policy");
            assert!(costs.contains(&(1_000 - looked.remaining())), "{name}");
        }
        let name = format!("{version:?} to its end");
        let sent = sender.next();
        let response = get_with(version, &url, &name).await;
        for _ in 0..200 {
            sent.send(7).unwrap();
        }
        // 142 pieces of seven are 994, and the next one is more than there is.
        assert_eq!(response.text().await.unwrap(), "chunk".repeat(142));
    }
}

#[tokio::test]
async fn a_handler_without_a_policy_has_a_meter_all_the_same() {
    let sender = Sender::default();
    let app = Router::new()
        .route("/", get(chunks))
        .with_state(sender.clone());
    let sent = sender.next();
    sent.send(4).unwrap();
    drop(sent);
    let response = get_with(Version::HTTP_11, &serve(app).await, "alice").await;
    assert_eq!(response.text().await.unwrap(), "chunk");
}

async fn get_with(version: Version, url: &str, name: &str) -> reqwest::Response {
    let client = match version {
        Version::HTTP_2 => Client::builder().http2_prior_knowledge(),
        _ => Client::builder().http1_only(),
    };
    let request = client.build().unwrap().get(url).header(KEY, name);
    request.send().await.expect("an answer")
}
