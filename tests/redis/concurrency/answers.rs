//! When a place is given back for responses of each kind: without a body, with trailers, with an
//! error, and those that never come.

use std::convert::Infallible;

use http::{HeaderMap, HeaderValue, Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::places::{Places, on_both_stores};
use super::stage::{GET, Stage, bodyless, client, clients, head, send};

on_both_stores! {
    bodyless_responses_free_the_place_on_an_open_connection
    head_requests_free_the_place_for_any_body
    a_body_of_known_length_ends_with_its_last_frame
    the_place_is_kept_until_the_trailers
    an_error_amid_the_body_gives_the_place_back
    a_service_that_fails_gives_the_place_back
    a_service_that_panics_gives_the_place_back
    a_body_that_panics_gives_the_place_back
    an_upgraded_connection_holds_no_place
}

async fn bodyless_responses_free_the_place_on_an_open_connection(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        for status in [204, 304] {
            let (response, ()) = tokio::join!(stage.get(&client), async {
                stage.arrived().await.answer(Ok(bodyless(status)));
            });
            assert_eq!(response.unwrap().status(), status);
            places.empty().await;
        }
    }
}

async fn head_requests_free_the_place_for_any_body(places: &Places) {
    let stage = Stage::behind(places).await;
    let client = client(Version::HTTP_11);
    let (response, feed) = tokio::join!(client.head(stage.url()).send(), async {
        stage.arrived().await.stream()
    });
    assert_eq!(response.unwrap().status(), 200);
    feed.closed().await;
    places.empty().await;
}

/// Nobody polls a body again that has said it is at its end.
async fn a_body_of_known_length_ends_with_its_last_frame(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let (response, ()) = tokio::join!(stage.get(&client), async {
            let body = Full::from("all of it").map_err(|never: Infallible| match never {});
            let response = Response::new(body.boxed_unsync());
            stage.arrived().await.answer(Ok(response));
        });
        assert_eq!(response.unwrap().text().await.unwrap(), "all of it");
        places.empty().await;
    }
}

async fn the_place_is_kept_until_the_trailers(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let (response, feed) = stage.open(&client).await;
        send(&feed, "all of it").await;
        assert_eq!(places.in_use().await, 1);
        let mut trailers = HeaderMap::new();
        trailers.insert("x-sum", 9.into());
        feed.send(Ok(Frame::trailers(trailers))).await.unwrap();
        drop(feed);
        assert_eq!(response.text().await.unwrap(), "all of it");
        places.empty().await;
    }
}

async fn an_error_amid_the_body_gives_the_place_back(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let (mut response, feed) = stage.open(&client).await;
        send(&feed, "some of it").await;
        assert_eq!(response.chunk().await.unwrap().unwrap(), "some of it");
        feed.send(Err("the disk is gone")).await.unwrap();
        assert!(response.chunk().await.is_err());
        feed.closed().await;
        places.empty().await;
    }
}

async fn a_service_that_fails_gives_the_place_back(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let (response, ()) = tokio::join!(stage.get(&client), async {
            stage.arrived().await.answer(Err("out of order"));
        });
        assert!(response.is_err());
        places.empty().await;
    }
}

async fn a_service_that_panics_gives_the_place_back(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let (response, ()) = tokio::join!(stage.get(&client), async {
            drop(stage.arrived().await);
        });
        assert!(response.is_err());
        places.empty().await;
    }
}

async fn a_body_that_panics_gives_the_place_back(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let (response, ()) = tokio::join!(stage.get(&client), async {
            let panics = futures_util::stream::once(async { panic!("as the test wants it to") });
            let body = StreamBody::new(panics).boxed_unsync();
            stage.arrived().await.answer(Ok(Response::new(body)));
        });
        // The head may or may not have been sent.
        if let Ok(response) = response {
            assert!(response.bytes().await.is_err());
        }
        places.empty().await;
    }
}

/// It is no longer a response; its service holds what it needs.
async fn an_upgraded_connection_holds_no_place(places: &Places) {
    let stage = Stage::behind(places).await;
    let request = GET.replacen(
        "\r\n\r\n",
        "\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n",
        1,
    );
    let mut connection = stage.connection(&request).await;
    let mut arrived = stage.arrived().await;
    let upgraded = hyper::upgrade::on(&mut arrived.request);
    let mut response = bodyless(101);
    for (name, value) in [("connection", "upgrade"), ("upgrade", "echo")] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    arrived.answer(Ok(response));
    assert!(head(&mut connection).await.starts_with("HTTP/1.1 101"));
    places.empty().await;
    let mut upgraded = TokioIo::new(upgraded.await.unwrap());
    connection.write_all(b"still here").await.unwrap();
    let mut read = [0; 10];
    upgraded.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"still here");
}
