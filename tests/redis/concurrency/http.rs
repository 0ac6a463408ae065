//! Requests over sockets: when each holds its place, and that clients that leave give it back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::stream;
use http::{Response, Version};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::places::{PLACES, Places, on_both_stores, until};
use super::stage::{GET, Stage, client, clients, head, send};

on_both_stores! {
    a_request_holds_its_place_until_its_body_has_ended
    no_more_requests_run_than_there_are_places
    leaving_before_the_response_frees_the_place
    a_client_that_leaves_amid_the_response_gives_its_place_back
    a_break_amid_the_response_frees_the_place
    a_broken_connection_frees_the_places_of_all_its_streams
    a_client_that_never_reads_keeps_its_place_until_it_is_gone
}

async fn a_request_holds_its_place_until_its_body_has_ended(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let (response, feed) = tokio::join!(stage.get(&client), async {
            let arrived = stage.arrived().await;
            assert_eq!(places.in_use().await, 1, "before the answer");
            arrived.stream()
        });
        let mut response = response.unwrap();
        assert_eq!(places.in_use().await, 1, "after the head");
        send(&feed, "some of it").await;
        assert_eq!(response.chunk().await.unwrap().unwrap(), "some of it");
        assert_eq!(places.in_use().await, 1, "amid the body");
        drop(feed);
        assert_eq!(response.text().await.unwrap(), "");
        places.empty().await;
    }
}

async fn no_more_requests_run_than_there_are_places(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let mut running = Vec::new();
        for _ in 0..PLACES {
            running.push(stage.open(&client).await);
        }
        let denied = stage.get(&client).await.unwrap();
        assert_eq!(denied.status(), 429);
        assert_eq!(denied.headers()["retry-after"], "1");
        let why = "the limit of concurrent requests is reached, retry after 1 s";
        let told = denied.text().await.unwrap();
        assert!(told.contains(why), "{told}");
        assert_eq!(places.in_use().await, PLACES);
        drop(running.pop());
        places.come_to(PLACES - 1).await;
        running.push(stage.open(&client).await);
        drop(running);
        places.empty().await;
    }
}

async fn leaving_before_the_response_frees_the_place(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let request = client.get(stage.url());
        let waiting = tokio::spawn(request.send());
        let arrived = stage.arrived().await;
        assert_eq!(places.in_use().await, 1);
        waiting.abort();
        arrived.was_dropped().await;
        places.empty().await;
    }
}

async fn a_client_that_leaves_amid_the_response_gives_its_place_back(places: &Places) {
    let stage = Stage::behind(places).await;
    for client in clients() {
        let (mut response, feed) = stage.open(&client).await;
        send(&feed, "some of it").await;
        assert_eq!(response.chunk().await.unwrap().unwrap(), "some of it");
        drop(response);
        // The service has nothing to send, so no write fails.
        feed.closed().await;
        places.empty().await;
    }
}

/// With unread data, the connection is reset instead of closed.
async fn a_break_amid_the_response_frees_the_place(places: &Places) {
    let stage = Stage::behind(places).await;
    let mut connection = stage.connection(GET).await;
    let feed = stage.arrived().await.stream();
    head(&mut connection).await;
    send(&feed, "some of it").await;
    connection.readable().await.unwrap();
    assert_eq!(places.in_use().await, 1);
    drop(connection);
    feed.closed().await;
    places.empty().await;
}

async fn a_broken_connection_frees_the_places_of_all_its_streams(places: &Places) {
    let stage = Stage::behind(places).await;
    let (address, relay) = relay(stage.address).await;
    let client = client(Version::HTTP_2);
    let get = || tokio::spawn(client.get(format!("http://{address}/")).send());
    let (answered, feed) = (get(), stage.arrived().await.stream());
    let response = answered.await.unwrap().unwrap();
    let (unanswered, arrived) = (get(), stage.arrived().await);
    assert_eq!(places.in_use().await, 2);
    relay.abort();
    feed.closed().await;
    arrived.was_dropped().await;
    places.empty().await;
    assert!(unanswered.await.unwrap().is_err());
    assert!(response.bytes().await.is_err());
}

/// Relays one connection until it is aborted.
async fn relay(to: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let relay = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = TcpStream::connect(to).await.unwrap();
        let _ = copy_bidirectional(&mut client, &mut server).await;
    });
    (address, relay)
}

async fn a_client_that_never_reads_keeps_its_place_until_it_is_gone(places: &Places) {
    let stage = Stage::behind(places).await;
    let connection = stage.connection(GET).await;
    let produced = Arc::new(AtomicUsize::new(0));
    let frames = stream::repeat_with({
        let produced = Arc::clone(&produced);
        move || {
            produced.fetch_add(1, Ordering::SeqCst);
            Ok(Frame::data(Bytes::from_static(&[b'.'; 65_536])))
        }
    });
    let body = StreamBody::new(frames).boxed_unsync();
    let arrived = stage.arrived().await;
    arrived.answer(Ok(Response::new(body)));
    until("more than one write", async || {
        produced.load(Ordering::SeqCst) > 2
    })
    .await;
    assert_eq!(places.in_use().await, 1);
    assert_eq!(Arc::strong_count(&produced), 2);
    drop(connection);
    places.empty().await;
    assert_eq!(Arc::strong_count(&produced), 1, "the body is still there");
}
