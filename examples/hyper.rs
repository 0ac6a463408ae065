//! Plain hyper, no framework: `cargo run --example hyper`.

use std::convert::Infallible;
use std::error::Error;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Limit, Limiter, MINUTE, MemoryStore, Peer, PeerAddr, Policy, RateLimitLayer};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::from("hello\n")))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(
        MemoryStore::new(),
        [Policy::new("client", Limit::gcra(60, MINUTE).burst(5)).by(PeerAddr)],
    )?;
    // Each connection gets a clone of the service; clones share the counts.
    let service = RateLimitLayer::new(limiter)
        .wrap_body()
        .layer(service_fn(hello));

    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on {}, try", listener.local_addr()?);
    println!("  for i in 1 2 3 4 5 6; do curl -i http://127.0.0.1:3000/; done");
    loop {
        let (stream, address) = listener.accept().await?;
        // Hyper does not provide the peer's address.
        let service = service
            .clone()
            .map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Peer::from(address));
                request
            });
        tokio::spawn(async move {
            let connection = auto::Builder::new(TokioExecutor::new());
            let service = TowerToHyperService::new(service);
            let served = connection.serve_connection(TokioIo::new(stream), service);
            if let Err(error) = served.await {
                eprintln!("{address}: {error}");
            }
        });
    }
}
