//! Upgraded connections, such as WebSockets, served as `Limit::concurrency` describes.

use std::io;

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{CONNECTION, UPGRADE};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tower_throttle::{Denied, Limit, Limiter, MemoryStore, NoRequest, RateLimitLayer};

use super::places::{
    EVERYBODY, LIFE, PLACES, POLICY, Places, come_to, in_time, patient, policy, until,
};
use super::stage::head;

async fn echo(State(limiter): State<Limiter>, request: Request) -> Result<Response, Denied> {
    let place = limiter.admit(POLICY, EVERYBODY).await?;
    tokio::spawn(async move {
        let connection = hyper::upgrade::on(request).await.unwrap();
        let (mut read, mut write) = split(TokioIo::new(connection));
        // Until the client closes it.
        let _ = copy(&mut read, &mut write).await;
        drop(place);
    });
    let headers = [(CONNECTION, "upgrade"), (UPGRADE, "echo")];
    Ok((StatusCode::SWITCHING_PROTOCOLS, headers).into_response())
}

async fn serve(app: Router) -> (String, JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = tokio::spawn(async { axum::serve(listener, app).await });
    (address, server)
}

/// Asks for an upgrade. Returns the connection, and the head of the answer.
async fn upgrade(address: &str) -> (TcpStream, String) {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let asks = "GET / HTTP/1.1\r\nhost: stage\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    connection.write_all(asks.as_bytes()).await.unwrap();
    let head = head(&mut connection).await;
    (connection, head)
}

fn status(head: &str) -> u16 {
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

async fn is_echoed(connection: &mut TcpStream) {
    connection.write_all(b"hello").await.unwrap();
    let mut read = [0; 5];
    connection.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"hello");
}

#[tokio::test]
async fn as_many_connections_are_upgraded_as_there_are_places() {
    for places in [1, 2] {
        let sockets = policy(Limit::concurrency(places)).on(NoRequest);
        let limiter = patient(MemoryStore::new(), [sockets]);
        let app = Router::new().route("/", get(echo));
        let app = app.with_state(limiter.clone());
        let app = app.layer(RateLimitLayer::new(limiter.clone()));
        let (address, server) = serve(app).await;
        in_time(async {
            let mut open = Vec::new();
            for _ in 0..places {
                let (mut connection, head) = upgrade(&address).await;
                assert_eq!(status(&head), 101, "of {places} places");
                is_echoed(&mut connection).await;
                open.push(connection);
            }
            let (_, denied) = upgrade(&address).await;
            assert_eq!(status(&denied), 429, "of {places} places");
            assert!(denied.contains("\r\nretry-after: 1\r\n"), "{denied}");
            assert!(!denied.contains("\r\nupgrade:"), "{denied}");
            open.pop();
            come_to(&limiter, places - 1).await;
            assert_eq!(
                status(&upgrade(&address).await.1),
                101,
                "of {places} places"
            );
        })
        .await;
        server.abort();
    }
}

/// For longer than a lease lives without renewal.
#[tokio::test]
async fn an_upgraded_connection_holds_its_place_to_its_end() {
    let places = Places::memory();
    let app = Router::new().route("/", get(echo));
    let (address, server) = serve(app.with_state(places.limiter.clone())).await;
    in_time(async {
        let (mut connection, head) = upgrade(&address).await;
        assert_eq!(status(&head), 101);
        for _ in 0..6 {
            places.clock.advance(LIFE / 3);
            until("it is renewed", async || {
                let looked = places.limiter.peek(POLICY, EVERYBODY).await.unwrap();
                looked.remaining() == PLACES - 1 && looked.reset_after() == LIFE
            })
            .await;
        }
        is_echoed(&mut connection).await;
        drop(connection);
        places.come_to(0).await;
    })
    .await;
    server.abort();
}
