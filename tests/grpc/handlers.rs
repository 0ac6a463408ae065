//! Denials by a method for a policy of its own, inside of a layer.

use tonic::codegen::BoxStream;
use tonic::transport::Server;
use tonic::{Code, Request, Response, Status};
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tower_throttle::{Key, Limit, Limiter, MINUTE, NoRequest, Policy, SECOND};

use crate::stage::{client, layer_of, listen};
use crate::status::pushback;
use support::http_store::{TestStore, Trip};

/// Asks for each call itself.
struct Asking(Limiter);

#[tonic::async_trait]
impl Health for Asking {
    type WatchStream = BoxStream<HealthCheckResponse>;

    async fn check(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let _permit = self.0.admit("login", Key::user(7)).await?;
        Ok(Response::new(HealthCheckResponse::default()))
    }

    async fn watch(
        &self,
        _: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        Err(Status::unimplemented("nobody watches"))
    }
}

/// The response to the second call, behind a layer with this policy.
async fn denied(login: Limit, outer: Policy) -> Status {
    let login = Policy::new("login", login).on(NoRequest);
    let limiter = Limiter::new(TestStore::new(Trip::Short), [login]).expect("a valid policy");
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(layer_of(Trip::None, [outer]))
        .add_service(HealthServer::new(Asking(limiter)));
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = client(address).await;
    let call = HealthCheckRequest::default;
    client.check(call()).await.expect("allowed");
    client.check(call()).await.expect_err("denied")
}

fn quotas(status: &Status) -> Vec<&str> {
    let lines = status.metadata().get_all("ratelimit").iter();
    lines.map(|line| line.to_str().expect("a text")).collect()
}

#[tokio::test]
async fn the_policy_by_which_a_method_denies_is_in_the_headers() {
    let outer = Policy::new("client", Limit::gcra(20, MINUTE));
    let denied = denied(Limit::sliding_log(1, 15 * MINUTE), outer).await;
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(
        quotas(&denied),
        [r#""login";r=0;t=900"#, r#""client";r=18;t=54"#]
    );
    assert_eq!(pushback(&denied), -1);
}

#[tokio::test]
async fn a_method_pushes_back_until_an_outer_layer_has_permits_again() {
    for (outer, least) in [(2, 8_000), (3, 5_000)] {
        let outer = Policy::new("client", Limit::fixed_window(outer, 8 * SECOND));
        let denied = denied(Limit::sliding_log(1, 5 * SECOND), outer).await;
        let longest = least + least / 10;
        assert!((least..=longest).contains(&pushback(&denied)), "{denied:?}");
    }
    let outer = Policy::new("client", Limit::fixed_window(2, MINUTE));
    let denied = denied(Limit::sliding_log(1, 5 * SECOND), outer).await;
    assert_eq!(pushback(&denied), -1);
}
