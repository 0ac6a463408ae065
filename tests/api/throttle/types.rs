//! The types: of requests, which may be any, and of layer and service.

use std::convert::Infallible;

use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{Feedback, Limit, SECOND, Throttle, ThrottleLayer};

use super::{Partner, Watched, layer};

#[tokio::test(start_paused = true)]
async fn requests_of_any_type_are_sent() {
    let limiter = Watched::new().limiter(Limit::gcra(1, SECOND));
    let inner = service_fn(async |text: &str| Ok::<_, Infallible>(text.len()));
    let mut service = layer(&limiter).layer(inner);
    let mut lengths = Vec::new();
    for text in ["one", "seven"] {
        lengths.push(service.ready().await.unwrap().call(text).await.unwrap());
    }
    assert_eq!(lengths, [3, 5]);
}

#[tokio::test(start_paused = true)]
async fn the_service_inside_is_the_one_that_is_called() {
    let limiter = Watched::new().limiter(Limit::gcra(1, SECOND));
    let mut service = layer(&limiter).layer(7);
    *service.get_mut() += 1;
    assert_eq!(*service.get_ref(), 8);
    assert_eq!(service.into_inner(), 8);
}

/// Layer and service can be named without parameters for key, store or policy.
#[allow(dead_code)]
struct Named {
    layer: ThrottleLayer,
    service: Throttle<Partner>,
}

#[test]
fn all_types_can_be_sent_shared_and_cloned() {
    fn plain<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}

    plain::<ThrottleLayer>();
    plain::<Throttle<Partner>>();
    plain::<ThrottleLayer<Feedback>>();
    plain::<Throttle<Partner, Feedback>>();
}
