//! A Unix socket, about which axum itself provides nothing.

use std::net::SocketAddr;

use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tower_throttle::{ClientAddr, Limit, Limiter, MINUTE, MemoryStore, Policy, RateLimitLayer};

use super::*;

/// One request a minute for each client behind the proxy.
fn limited() -> RateLimitLayer {
    let client = ClientAddr::x_forwarded_for(["10.0.0.0/8"]).unwrap();
    let policy = Policy::new("client", Limit::gcra(1, MINUTE)).by(client);
    RateLimitLayer::new(Limiter::new(MemoryStore::new(), [policy]).unwrap())
}

/// The answers to clients, one after the other, over a connection of the proxy.
async fn statuses<const N: usize>(app: Router, clients: [&str; N]) -> [u16; N] {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(axum::serve(listener, app).into_future());
    let stream = TokioIo::new(UnixStream::connect(path).await.unwrap());
    let handshake = hyper::client::conn::http1::handshake(stream);
    let (mut proxy, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let mut statuses = [0; N];
    for (status, client) in statuses.iter_mut().zip(clients) {
        let request = Request::get("/").header("x-forwarded-for", client);
        let request = request.body(Empty::<Bytes>::new()).unwrap();
        proxy.ready().await.unwrap();
        let answer = proxy.send_request(request).await.unwrap();
        *status = answer.status().as_u16();
        // Once it has been read, the connection is free for the next.
        answer.into_body().collect().await.unwrap();
    }
    server.abort();
    statuses
}

#[tokio::test]
async fn a_layer_that_is_added_after_the_limit_tells_the_peer() {
    let app = Router::new().route("/", get(async || "served"));
    let app = app.layer(limited()).layer(Extension(Peer::UnixSocket));
    let clients = ["203.0.113.9", "203.0.113.9", "203.0.113.8"];
    assert_eq!(statuses(app, clients).await, [200, 429, 200]);
}

#[tokio::test]
async fn a_layer_that_is_added_before_the_limit_comes_too_late() {
    let app = Router::new().route("/", get(async || "served"));
    let app = app.layer(Extension(Peer::UnixSocket)).layer(limited());
    assert_eq!(statuses(app, ["203.0.113.9"]).await, [500]);
}

/// The layer says of every request that it came over the socket.
#[tokio::test]
async fn a_tcp_client_of_the_same_router_is_not_the_proxy() {
    let app = Router::new().route("/", get(async || "served"));
    let app = app.layer(limited()).layer(Extension(Peer::UnixSocket));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = tokio::spawn(axum::serve(listener, service).into_future());
    for (made_up, status) in [("203.0.113.9", 200), ("203.0.113.8", 429)] {
        let request = reqwest::Client::new().get(&url);
        let request = request.header("x-forwarded-for", made_up);
        assert_eq!(request.send().await.unwrap().status(), status);
    }
    server.abort();
}
