//! `admit` holds a caller up as the layer does a request.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;
use tower_throttle::{Limit, Limiter, MINUTE, Policy, SECOND, per_second};

use support::virtual_time::{self, timed};

/// One a second, with each way of being held up, for no longer than two.
fn patient_limiters() -> [Limiter; 2] {
    [
        Policy::new("api", Limit::gcra(1, SECOND)).max_wait(2 * SECOND),
        Policy::new("api", Limit::leaky_bucket(3, per_second(1))),
    ]
    .map(|patient| {
        let beside = Policy::new("beside", Limit::fixed_window(10, MINUTE));
        Limiter::new(virtual_time::store(), [patient, beside]).unwrap()
    })
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_held_up_as_a_request_is() {
    for limiter in patient_limiters() {
        let asked = join_all((0..5).map(|_| timed(limiter.admit("api", "us")))).await;
        let told: Vec<_> = asked
            .iter()
            .map(|(permit, waited)| (permit.is_ok(), waited.as_secs()))
            .collect();
        let expected = [(true, 0), (true, 1), (true, 2), (false, 0), (false, 0)];
        assert_eq!(told, expected, "{limiter:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn leaving_while_delayed_gives_back_permits_of_all_policies() {
    for limiter in patient_limiters() {
        assert!(limiter.admit("api", "us").await.is_ok());
        let both = limiter.admit_all([("api", "us", 1), ("beside", "us", 4)]);
        assert!(timeout(SECOND / 2, both).await.is_err());
        let beside = limiter.peek("beside", "us").await.unwrap();
        assert_eq!(beside.remaining(), 10, "{limiter:?}");
        let (next, waited) = timed(limiter.admit("api", "us")).await;
        assert!(next.is_ok());
        assert_eq!(waited, Duration::from_millis(500), "{limiter:?}");
    }
}
