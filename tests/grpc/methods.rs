//! Calls by other HTTP methods than `POST`: no gRPC client sends them, but tonic serves them.

use http::Method;
use http_body_util::BodyExt;
use tonic::transport::Server;
use tonic_health::pb::health_server::HealthServer;
use tower_http::cors::CorsLayer;
use tower_throttle::{HOUR, Limit, Policy, Route};

use crate::stage::{Counted, check_by, layer, layer_of, listen, raw, send, serve};
use support::http_store::Trip;

/// An empty, uncompressed message of no bytes.
const MESSAGE: &[u8] = &[0; 5];

#[tokio::test]
async fn a_grpc_call_counts_whatever_its_http_method() {
    let route = Route::any("/grpc.health.v1.Health/Check");
    let policy = Policy::new("check", Limit::gcra(2, HOUR)).on(route);
    for (method, denied_with) in [
        ("POST", 200),
        ("PUT", 429),
        ("GET", 429),
        ("DELETE", 429),
        ("post", 429),
    ] {
        let service = Counted::default();
        let layer = layer_of(Trip::None, [policy.clone()]);
        let address = serve(layer, service.clone()).await;
        let call = async || {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            raw(address, method, "application/grpc", MESSAGE).await
        };
        for _ in 0..2 {
            let served = call().await.collect().await.expect("a message");
            let trailers = served.trailers().expect("trailers");
            assert_eq!(trailers["grpc-status"], "0", "{method}");
        }
        assert_eq!(call().await.status(), denied_with, "{method}");
        assert_eq!(service.calls(), 2, "{method}");
    }
}

/// A preflight is known by its head alone, and tonic serves calls by any method.
#[tokio::test]
async fn a_call_like_a_skipped_preflight_passes_without_cors_layer() {
    let preflight = || {
        let request = check_by(Method::OPTIONS).header("origin", "https://example.com");
        request.header("access-control-request-method", "POST")
    };
    let skipping = || layer(Trip::None, 1).skip_preflights();

    let service = Counted::default();
    let address = serve(skipping(), service.clone()).await;
    for _ in 0..3 {
        let served = send(address, preflight(), MESSAGE).await;
        let served = served.collect().await.expect("a message");
        assert_eq!(served.trailers().expect("trailers")["grpc-status"], "0");
    }
    assert_eq!(service.calls(), 3);

    let service = Counted::default();
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(skipping())
        .layer(CorsLayer::permissive())
        .add_service(HealthServer::new(service.clone()));
    tokio::spawn(server.serve_with_incoming(incoming));
    let answered = send(address, preflight(), MESSAGE).await;
    assert!(
        answered
            .headers()
            .contains_key("access-control-allow-origin")
    );
    assert_eq!(service.calls(), 0);
}
