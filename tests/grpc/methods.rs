//! Calls by other HTTP methods than `POST`: no gRPC client sends them, but tonic serves them.

use http::Method;
use http_body_util::BodyExt;
use tower_throttle::{HOUR, Limit, Policy, Route};

use crate::http_store::Trip;
use crate::stage::{Counted, layer_of, raw, serve};

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
