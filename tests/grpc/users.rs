//! Users that an interceptor has found in a call's metadata.

use tonic::service::InterceptorLayer;
use tonic::transport::Server;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_server::HealthServer;
use tower_throttle::{Extension, HOUR, Key, Limit, OnMissingKey, Policy};

use crate::stage::{Counted, client, layer_of, listen};
use support::http_store::Trip;

#[derive(Clone)]
struct User(String);

fn authenticate(mut call: Request<()>) -> Result<Request<()>, Status> {
    let user = call.metadata().get("x-token").map(|token| token.to_str());
    let Some(Ok(user)) = user else {
        return Err(Status::unauthenticated("no token"));
    };
    let user = User(user.to_owned());
    call.extensions_mut().insert(user);
    Ok(call)
}

#[tokio::test]
async fn each_user_has_a_quota_and_anonymous_calls_use_none() {
    let key = Extension::with(|user: &User| Key::user(user.0.as_str()));
    let policy = Policy::new("user", Limit::gcra(1, HOUR)).by(key);
    let policy = policy.on_missing_key(OnMissingKey::Reject);
    let service = Counted::default();
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(InterceptorLayer::new(authenticate))
        .layer(layer_of(Trip::None, [policy]))
        .add_service(HealthServer::new(service.clone()));
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut client = client(address).await;
    for (token, code) in [
        (Some("alice"), Code::Ok),
        (None, Code::Unauthenticated),
        (Some("alice"), Code::ResourceExhausted),
        (Some("bob"), Code::Ok),
    ] {
        let mut call = Request::new(HealthCheckRequest::default());
        if let Some(token) = token {
            call.metadata_mut()
                .insert("x-token", token.parse().unwrap());
        }
        let answer = client.check(call).await;
        let answered = answer.map_or_else(|status| status.code(), |_| Code::Ok);
        assert_eq!(answered, code, "{token:?}");
    }
    assert_eq!(service.calls(), 2);
}
