//! What callers who leave cost the server, and what they use.

use std::convert::Infallible;

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{DAY, Key, Limit, Limiter, Mode, Policy, RateLimitLayer, per_day};

use super::left::{Before, PATHS, limiter, looked_at, patient, pause, unpause};
use support::redis::Server;

/// The status of a request through a layer. Its response has ended.
pub(crate) async fn request(limiter: &Limiter, path: &str) -> u16 {
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let request = Request::builder().uri(path).body(()).unwrap();
    service.oneshot(request).await.unwrap().status().as_u16()
}

/// Asks, and leaves while the question is on its way.
async fn leave(server: &Server, asking: impl Future) {
    pause(server);
    assert!(!looked_at(1, asking).await);
    unpause(server);
}

#[tokio::test]
async fn callers_that_leave_cost_as_many_scripts_as_others() {
    let server = Server::start();
    let limiter = limiter(&server).await;
    let before = Before::now(&server, &limiter).await;
    let [_, places, _] = PATHS;
    // The server then knows both scripts.
    assert_eq!(request(&limiter, places).await, 200);
    before.all_tasks_are_over().await;
    for is_in_layer in [true, false] {
        let scripts = server.calls("evalsha");
        if is_in_layer {
            leave(&server, request(&limiter, places)).await;
        } else {
            leave(&server, limiter.admit("places", "mallory")).await;
        }
        before.all_tasks_are_over().await;
        assert_eq!(server.calls("evalsha") - scripts, 2, "{is_in_layer}");
    }
    before.comes_back(&server, &limiter).await;
}

/// Otherwise a client that leaves before each answer would never be denied.
#[tokio::test]
async fn a_request_whose_client_leaves_counts_where_nobody_waits() {
    let beside = [
        Policy::new("beside", Limit::concurrency(9)),
        Policy::new("beside", Limit::gcra(9, DAY)).max_wait(DAY),
        Policy::new("beside", Limit::leaky_bucket(9, per_day(1))).mode(Mode::Shadow),
    ];
    for beside in beside {
        let server = Server::start();
        let rate = Policy::new("rate", Limit::fixed_window(3, DAY));
        let limiter = patient(&server, [rate, beside]).await;
        for _ in 0..3 {
            leave(&server, request(&limiter, "/")).await;
            limiter.flush().await;
        }
        assert_eq!(request(&limiter, "/").await, 429, "{limiter:?}");
        let left = limiter.peek("beside", Key::everybody()).await.unwrap();
        assert_eq!(left.remaining(), 9, "{limiter:?}");
    }
}

#[tokio::test]
async fn a_call_of_admit_whose_caller_leaves_is_counted() {
    let server = Server::start();
    let limiter = patient(&server, [Policy::new("rate", Limit::gcra(1, DAY))]).await;
    leave(&server, limiter.admit("rate", "mallory")).await;
    limiter.flush().await;
    assert!(limiter.admit("rate", "mallory").await.is_err());
}
