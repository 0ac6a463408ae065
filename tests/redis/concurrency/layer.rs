//! The layer's own futures and bodies: keeping one does not hold the place for longer than
//! something runs.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Mutex;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use tokio::sync::mpsc;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{RateLimitLayer, ResponseBody};

use super::places::{Places, on_both_stores};
use super::stage::{Answer, Body, Feed, send, streaming};

on_both_stores! {
    a_future_that_has_failed_holds_nothing_though_it_is_kept
    a_dropped_unpolled_future_holds_nothing
    a_body_that_has_ended_holds_nothing_though_it_is_kept
    a_body_of_known_length_holds_nothing_after_its_last_frame
    a_body_that_has_failed_holds_nothing_though_it_is_kept
    a_body_that_nobody_asks_holds_its_place_until_it_is_dropped
    a_body_of_axum_stays_one_and_holds_its_place_until_it_ends
    a_panic_in_call_frees_the_place
}

fn request() -> Request<Empty<Bytes>> {
    Request::new(Empty::new())
}

/// A response through the layer, and the feed of its body.
async fn respond(places: &Places) -> (Feed, ResponseBody<Body>) {
    let (feeds, mut fed) = mpsc::unbounded_channel();
    let answers = service_fn(move |_| {
        let (feed, response) = streaming();
        feeds.send(feed).unwrap();
        ready(Answer::Ok(response))
    });
    let response = places.layer().layer(answers).oneshot(request()).await;
    (fed.recv().await.unwrap(), response.unwrap().into_body())
}

async fn a_future_that_has_failed_holds_nothing_though_it_is_kept(places: &Places) {
    let fails = service_fn(|_| ready(Answer::Err("out of order")));
    let mut response = pin!(places.layer().layer(fails).oneshot(request()));
    assert!(response.as_mut().await.is_err());
    places.empty().await;
}

async fn a_dropped_unpolled_future_holds_nothing(places: &Places) {
    let answers = service_fn(|_| ready(Answer::Ok(streaming().1)));
    let mut service = places.layer().layer(answers);
    let service = ServiceExt::<Request<_>>::ready(&mut service).await.unwrap();
    drop(service.call(request()));
    places.empty().await;
}

async fn a_body_that_has_ended_holds_nothing_though_it_is_kept(places: &Places) {
    let (feed, mut body) = respond(places).await;
    assert_eq!(places.in_use().await, 1);
    drop(feed);
    assert!(body.frame().await.is_none());
    places.empty().await;
    drop(body);
}

/// Whoever knows that it is the last one asks for no other.
async fn a_body_of_known_length_holds_nothing_after_its_last_frame(places: &Places) {
    let answers = service_fn(|_| ready(Ok::<_, Infallible>(Response::new(Full::from("hello")))));
    let response = places.layer().layer(answers).oneshot(request()).await;
    let mut body: ResponseBody<Full<Bytes>> = response.unwrap().into_body();
    assert_eq!(places.in_use().await, 1);
    assert!(body.frame().await.unwrap().is_ok());
    places.empty().await;
    drop(body);
}

async fn a_body_that_has_failed_holds_nothing_though_it_is_kept(places: &Places) {
    let (feed, mut body) = respond(places).await;
    feed.send(Err("the disk is gone")).await.unwrap();
    assert!(body.frame().await.unwrap().is_err());
    places.empty().await;
    drop((feed, body));
}

async fn a_body_that_nobody_asks_holds_its_place_until_it_is_dropped(places: &Places) {
    let (feed, body) = respond(places).await;
    drop(feed);
    assert_eq!(places.in_use().await, 1);
    drop(body);
    places.empty().await;
}

async fn a_body_of_axum_stays_one_and_holds_its_place_until_it_ends(places: &Places) {
    let (feed, fed) = streaming();
    let fed = Mutex::new(Some(fed.map(axum::body::Body::new)));
    let answers = service_fn(|_| ready(Ok::<_, Infallible>(fed.lock().unwrap().take().unwrap())));
    let service = RateLimitLayer::new(places.limiter.clone()).layer(answers);
    let response = service.oneshot(request()).await.unwrap();
    let mut body: axum::body::Body = response.into_body();
    send(&feed, "hello").await;
    let frame = body.frame().await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "hello");
    assert_eq!(places.in_use().await, 1);
    drop(feed);
    assert!(body.frame().await.is_none());
    places.empty().await;
    drop(body);
}

async fn a_panic_in_call_frees_the_place(places: &Places) {
    let panics = service_fn(|_| -> Ready<Answer> { panic!("as the test wants it to") });
    let response = places.layer().layer(panics).oneshot(request());
    assert!(AssertUnwindSafe(response).catch_unwind().await.is_err());
    places.empty().await;
}
