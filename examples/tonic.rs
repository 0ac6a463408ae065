//! A gRPC service behind a limit, and a client that runs into it:
//! `cargo run --features tonic --example tonic`.

use std::error::Error;
use std::net::Ipv4Addr;

use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower_throttle::{
    Limit, Limiter, MINUTE, MemoryStore, PeerAddr, Policy, RateLimitLayer, Route,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let limiter = Limiter::new(
        MemoryStore::new(),
        [
            Policy::new("client", Limit::gcra(600, MINUTE)).by(PeerAddr),
            // A gRPC method is a path. `Route::post` would miss calls by other HTTP methods, which
            // tonic serves too.
            Policy::new("health", Limit::gcra(60, MINUTE).burst(3))
                .by(PeerAddr)
                .on(Route::any("/grpc.health.v1.Health/Check")),
        ],
    )?;

    let (_reporter, health) = tonic_health::server::health_reporter();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    println!("listening on {address}");
    tokio::spawn(
        Server::builder()
            .layer(RateLimitLayer::new(limiter))
            .add_service(health)
            .serve_with_incoming(TcpIncoming::from(listener)),
    );

    let channel = Endpoint::try_from(format!("http://{address}"))?
        .connect()
        .await?;
    let mut client = HealthClient::new(channel);
    for call in 1..=5 {
        match client.check(HealthCheckRequest::default()).await {
            Ok(_) => println!("call {call}: served"),
            Err(status) => println!("call {call}: {:?}, {}", status.code(), status.message()),
        }
    }
    Ok(())
}
