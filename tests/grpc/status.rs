//! What a tonic client gets: the code, the details, and when to return.

use std::net::IpAddr;
use std::time::Duration;

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::{Code, Request, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_server::HealthServer;
use tonic_types::StatusExt;
use tower_throttle::{
    AccessList, AddressExtractor, FailureMode, Key, KeyError, Limit, Limiter, MINUTE, OnMissingKey,
    PeerAddr, Policy, RateLimitLayer, RequestHead, Rules, SECOND,
};

use crate::stage::{Counted, bind, check, client, layer, layer_of, listen, serve};
use support::http_store::{TRIPS, TestStore, Trip};
use support::web::quota_number;

/// The status of a call that is not let through.
async fn refused(layer: RateLimitLayer) -> Status {
    let service = Counted::default();
    let mut client = client(serve(layer, service.clone()).await).await;
    let refused = check(&mut client).await.expect_err("refused");
    assert_eq!(service.calls(), 0);
    refused
}

fn retry_delay(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

fn quota_ids(status: &Status) -> Option<Vec<String>> {
    let failure = status.get_details_quota_failure()?;
    let ids = failure.violations.into_iter().map(|each| each.quota_id);
    Some(ids.collect())
}

/// The pushback for a client that retries automatically. It must occur once.
pub(crate) fn pushback(status: &Status) -> i64 {
    let values = status.metadata().get_all("grpc-retry-pushback-ms");
    let values: Vec<_> = values.iter().collect();
    assert_eq!(values.len(), 1, "{values:?}");
    let text = values[0].to_str().expect("text");
    text.parse().expect("a number")
}

#[tokio::test]
async fn a_denied_call_is_resource_exhausted_and_goes_no_further() {
    for trip in TRIPS {
        let service = Counted::default();
        let mut client = client(serve(layer(trip, 2), service.clone()).await).await;
        check(&mut client).await.expect("allowed");
        check(&mut client).await.expect("allowed");
        let denied = check(&mut client).await.expect_err("denied");
        assert_eq!(denied.code(), Code::ResourceExhausted, "{trip:?}");
        assert_eq!(
            denied.message(),
            "policy \"api\": the quota is used up, retry after 30 s"
        );
        assert_eq!(service.calls(), 2);
    }
}

#[tokio::test]
async fn a_denied_call_says_which_policies_deny_and_how_long_exactly() {
    let layer = layer_of(
        Trip::Short,
        [
            Policy::new("second", Limit::gcra(3, 10 * SECOND).burst(1)),
            Policy::new("minute", Limit::gcra(7, MINUTE).burst(1)),
            Policy::new("hour", Limit::gcra(1_000, MINUTE)),
        ],
    );
    let mut client = client(serve(layer, Counted::default()).await).await;
    check(&mut client).await.expect("allowed");
    let denied = check(&mut client).await.expect_err("denied");
    // A minute divided by seven, rounded up to the microsecond.
    let wait = Duration::from_micros(8_571_429);
    assert_eq!(retry_delay(&denied), Some(wait));
    assert_eq!(
        quota_ids(&denied),
        Some(vec!["second".to_owned(), "minute".to_owned()])
    );
    let pushback = pushback(&denied);
    assert!((8_572..=8_572 + 857).contains(&pushback), "{pushback}");
}

#[tokio::test]
async fn a_call_that_would_wait_too_long_is_not_retried() {
    let mut client = client(serve(layer(Trip::None, 2), Counted::default()).await).await;
    check(&mut client).await.expect("allowed");
    check(&mut client).await.expect("allowed");
    let denied = check(&mut client).await.expect_err("denied");
    assert_eq!(retry_delay(&denied), Some(30 * SECOND));
    assert_eq!(pushback(&denied), -1);
}

#[tokio::test]
async fn a_call_that_never_fits_is_not_retried() {
    let costly = |_: &RequestHead<'_>| 5_u64;
    let policy = Policy::new("api", Limit::gcra(4, SECOND)).cost_by(costly);
    let denied = refused(layer_of(Trip::None, [policy])).await;
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(retry_delay(&denied), None);
    assert_eq!(quota_ids(&denied), Some(vec!["api".to_owned()]));
    assert_eq!(pushback(&denied), -1);
}

#[tokio::test]
async fn a_policy_that_fails_closed_is_unavailable_for_a_second() {
    for trip in [Trip::Fails, Trip::FailsLate] {
        let policy = Policy::new("api", Limit::gcra(1, MINUTE)).on_store_failure(FailureMode::Deny);
        let refused = refused(layer_of(trip, [policy])).await;
        assert_eq!(refused.code(), Code::Unavailable, "{trip:?}");
        assert_eq!(retry_delay(&refused), Some(SECOND));
        assert_eq!(quota_ids(&refused), None);
        let pushback = pushback(&refused);
        assert!((1_000..=1_100).contains(&pushback), "{pushback}");
    }
}

#[tokio::test]
async fn a_client_on_the_deny_list_is_denied_permission() {
    let policy =
        Policy::new("user", Limit::gcra(9, MINUTE)).by(|_: &RequestHead<'_>| Some("mallory"));
    let limiter = Limiter::new(
        TestStore::new(Trip::Short),
        Rules::new([policy]).deny(AccessList::new().keys(["mallory"])),
    )
    .expect("a valid policy");
    let refused = refused(RateLimitLayer::new(limiter)).await;
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert_eq!(refused.details(), b"");
    assert_eq!(pushback(&refused), -1);
}

/// For requests whose address cannot be read.
struct Garbled;

impl AddressExtractor for Garbled {
    fn address(&self, _: &RequestHead<'_>) -> Result<IpAddr, KeyError> {
        Err(KeyError::Malformed)
    }
}

#[tokio::test]
async fn calls_with_unreadable_addresses_are_invalid_arguments() {
    let denied = AccessList::new().addresses(Garbled, ["203.0.113.9"]);
    let limiter = Limiter::new(
        TestStore::new(Trip::Short),
        Rules::new([]).deny(denied.expect("a range")),
    )
    .expect("a valid list");
    let refused = refused(RateLimitLayer::new(limiter)).await;
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.details(), b"");
    assert_eq!(pushback(&refused), -1);
}

#[tokio::test]
async fn a_call_without_its_key_is_an_invalid_argument() {
    let policy = Policy::new("user", Limit::gcra(1, MINUTE))
        .by(|_: &RequestHead<'_>| None::<Key>)
        .on_missing_key(OnMissingKey::Reject);
    let refused = refused(layer_of(Trip::None, [policy])).await;
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.details(), b"");
    assert_eq!(pushback(&refused), -1);
}

#[tokio::test]
async fn a_missing_peer_address_is_explained_as_far_as_there_is_room() {
    const TONIC: &str = "On tonic, enable the feature `tonic` of tower-throttle \
        (`tonic-tls` behind tokio-rustls)";
    const AXUM: &str = "on axum, the feature `axum`";
    // The other name is as long as possible.
    for (name, advice) in [("client", &[TONIC, AXUM][..]), (&"p".repeat(64), &[TONIC])] {
        let policy = Policy::new(name, Limit::gcra(1, MINUTE)).by(PeerAddr);
        let service = Routes::new(HealthServer::new(Counted::default()));
        let app = service.into_axum_router();
        let app = app.layer(layer_of(Trip::None, [policy]));
        let (listener, address) = bind().await;
        tokio::spawn(axum::serve(listener, app).into_future());
        let refused = check(&mut client(address).await).await;
        let refused = refused.expect_err("refused");
        assert_eq!(refused.code(), Code::Internal);
        for advice in advice {
            assert!(refused.message().contains(advice), "{refused}");
        }
    }
}

#[tokio::test]
async fn nested_layers_push_back_once() {
    let (incoming, address) = listen().await;
    let server = Server::builder()
        .layer(layer(Trip::Short, 100))
        .layer(layer(Trip::Short, 1))
        .add_service(HealthServer::new(Counted::default()));
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut client = client(address).await;
    check(&mut client).await.expect("allowed");
    let denied = check(&mut client).await.expect_err("denied");
    assert_eq!(pushback(&denied), -1);
}

#[tokio::test]
async fn two_hundred_policies_fit_into_a_small_answer() {
    // As long as possible, with every character escaped.
    let policy = |number| Policy::new(format!("{number:\"<64}"), Limit::gcra(1, MINUTE));
    let layer = layer_of(Trip::None, (0..200).map(policy));
    let mut client = client(serve(layer, Counted::default()).await).await;
    check(&mut client).await.expect("allowed");
    let denied = check(&mut client).await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(retry_delay(&denied), Some(MINUTE));
    let told = quota_ids(&denied).expect("there are some");
    assert!((3..200).contains(&told.len()), "{told:?}");
    assert!(denied.details().len() < 768, "{}", denied.details().len());
    assert_eq!(denied.message().len(), 256);
    for list in ["ratelimit-policy", "ratelimit"] {
        let told = denied.metadata().get(list).expect("some are told");
        assert!((512..=1024).contains(&told.len()), "{list}: {}", told.len());
    }
}

#[tokio::test]
async fn a_limit_of_fifteen_digits_is_shown_to_the_last_digit() {
    const MOST: u64 = 999_999_999_999_999;
    let cost = |request: &RequestHead<'_>| match request.headers.contains_key("all") {
        true => MOST - 1,
        false => 1,
    };
    let policy = Policy::new("wide", Limit::fixed_window(MOST, MINUTE)).cost_by(cost);
    let mut client = client(serve(layer_of(Trip::Short, [policy]), Counted::default()).await).await;
    let quota = |metadata: &MetadataMap, field: &str, parameter: &str| {
        let line = metadata.get(field).expect(field).to_str().expect("text");
        quota_number(line, parameter)
    };
    let allowed = client.check(HealthCheckRequest::default()).await;
    let allowed = allowed.expect("allowed");
    assert_eq!(quota(allowed.metadata(), "ratelimit-policy", ";q="), MOST);
    assert_eq!(quota(allowed.metadata(), "ratelimit", ";r="), MOST - 1);
    let mut all = Request::new(HealthCheckRequest::default());
    all.metadata_mut()
        .insert("all", MetadataValue::from_static(""));
    let allowed = client.check(all).await.expect("allowed");
    assert_eq!(quota(allowed.metadata(), "ratelimit", ";r="), 0);
    let denied = check(&mut client).await.expect_err("denied");
    assert_eq!(quota(denied.metadata(), "ratelimit-policy", ";q="), MOST);
    assert_eq!(quota(denied.metadata(), "ratelimit", ";r="), 0);
    assert_eq!(quota_ids(&denied), Some(vec!["wide".to_owned()]));
    assert_eq!(denied.code(), Code::ResourceExhausted);
}

#[tokio::test]
async fn a_single_service_can_be_limited_beside_others_that_are_not() {
    use tower::Layer;

    use crate::stage::connect;
    use crate::streaming::{Streams, sum};

    let service = Counted::default();
    let (incoming, address) = listen().await;
    let limited = layer(Trip::Short, 1).layer(HealthServer::new(service.clone()));
    let server = Server::builder()
        .add_service(limited)
        .add_service(Streams::default());
    tokio::spawn(server.serve_with_incoming(incoming));

    let mut health = client(address).await;
    check(&mut health).await.expect("allowed");
    let denied = check(&mut health).await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
    assert_eq!(service.calls(), 1);
    let channel = connect(address).await;
    for _ in 0..3 {
        let messages = futures_util::stream::empty();
        assert_eq!(sum(channel.clone(), messages).await.expect("no limit"), "0");
    }
}

#[tokio::test]
async fn a_layer_that_may_be_absent_fits_around_a_server() {
    for is_there in [true, false] {
        let limits = tower::util::option_layer(is_there.then(|| layer(Trip::Short, 1)));
        let (incoming, address) = listen().await;
        let server = Server::builder()
            .layer(limits)
            .add_service(HealthServer::new(Counted::default()));
        tokio::spawn(server.serve_with_incoming(incoming));
        let mut health = client(address).await;
        check(&mut health).await.expect("allowed");
        assert_eq!(check(&mut health).await.is_err(), is_there);
    }
}

/// An interceptor changes the body.
#[tokio::test]
async fn a_service_with_an_interceptor_is_limited_by_wrapped_bodies() {
    use tower::Layer;

    let passes = |request: tonic::Request<()>| Ok(request);
    let health = HealthServer::with_interceptor(Counted::default(), passes);
    let limited = layer(Trip::Short, 1).wrap_body().layer(health);
    let (incoming, address) = listen().await;
    let server = Server::builder().add_service(limited);
    tokio::spawn(server.serve_with_incoming(incoming));
    let mut health = client(address).await;
    check(&mut health).await.expect("allowed");
    let denied = check(&mut health).await.expect_err("denied");
    assert_eq!(denied.code(), Code::ResourceExhausted);
}
