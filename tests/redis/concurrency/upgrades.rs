//! Upgraded connections, such as WebSockets, served as `Limit::concurrency` describes.

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::StatusCode;
use http::header::{CONNECTION, UPGRADE};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use tokio::net::{TcpListener, TcpStream};
use tower_throttle::{Denied, Limit, Limiter, MemoryStore, NoRequest, RateLimitLayer};

use super::places::{EVERYBODY, POLICY, come_to, in_time, patient, policy};
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

/// Asks for an upgrade. Returns the connection, and the status of the answer.
async fn upgrade(address: &str) -> (TcpStream, u16) {
    let mut connection = TcpStream::connect(address).await.unwrap();
    let asks = "GET / HTTP/1.1\r\nhost: stage\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
    connection.write_all(asks.as_bytes()).await.unwrap();
    let head = head(&mut connection).await;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (connection, status)
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
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async { axum::serve(listener, app).await });
        in_time(async {
            let mut open = Vec::new();
            for _ in 0..places {
                let (mut connection, status) = upgrade(&address).await;
                assert_eq!(status, 101, "of {places} places");
                is_echoed(&mut connection).await;
                open.push(connection);
            }
            let (_, status) = upgrade(&address).await;
            assert_eq!(status, 429, "of {places} places");
            open.pop();
            come_to(&limiter, places - 1).await;
            assert_eq!(upgrade(&address).await.1, 101, "of {places} places");
        })
        .await;
        server.abort();
    }
}
