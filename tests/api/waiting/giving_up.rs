//! The layer: clients that give up while their requests are held up, and come again.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tower::util::BoxCloneService;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{HOUR, Header, Limit, Limiter, Policy, RateLimitLayer, SECOND};

use support::virtual_time::{self, ms};

const CLIENTS: usize = 40;
const RATE: usize = 20;
const SECONDS: usize = 10;

/// How many requests are answered in each second, if no request is held up for longer than this and
/// each client gives up after half a second.
async fn answered_in_seconds(longest: Duration) -> [usize; SECONDS] {
    let limit = Limit::gcra(RATE as u64, SECOND).burst(1);
    let policy = Policy::new("api", limit).max_wait(longest);
    let limiter = Limiter::new(virtual_time::store(), [policy]).unwrap();
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = RateLimitLayer::new(limiter).wrap_body().layer(inner);
    let start = Instant::now();
    let client = async || {
        let mut answered = Vec::new();
        while start.elapsed() < SECONDS as u32 * SECOND {
            let answer = service.clone().oneshot(Request::new(()));
            let Ok(answer) = timeout(ms(500), answer).await else {
                continue;
            };
            match answer.unwrap().status() {
                StatusCode::OK => answered.push(start.elapsed()),
                _ => sleep(ms(50)).await,
            }
        }
        answered
    };
    let answered = join_all((0..CLIENTS).map(|_| client())).await.concat();
    let mut in_seconds = [0; SECONDS];
    for at in answered {
        // Those who come just before the end are answered after it.
        if let Some(second) = in_seconds.get_mut(at.as_secs() as usize) {
            *second += 1;
        }
    }
    in_seconds
}

#[tokio::test(start_paused = true)]
async fn impatient_clients_together_get_the_whole_rate() {
    for longest in [50, 250, 400].map(ms) {
        let answered = answered_in_seconds(longest).await;
        assert_eq!(answered, [RATE; SECONDS], "{longest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_who_give_up_early_are_not_served_after_a_second() {
    for longest in [1_000, 5_000].map(ms) {
        let [_, after_the_first @ ..] = answered_in_seconds(longest).await;
        assert_eq!(after_the_first, [0; SECONDS - 1], "{longest:?}");
    }
}

/// What a client is answered while another one sends a hundred requests, and gives each up as soon
/// as the next has queued behind it.
async fn answered_beside_one_who_gives_up(
    layers: impl FnOnce(Policy, Policy) -> Vec<Vec<Policy>>,
) -> u16 {
    let client = Policy::new("client", Limit::gcra(5, HOUR)).by(Header::new("x-user"));
    let queue = Policy::new("queue", Limit::gcra(RATE as u64, SECOND).burst(1)).max_wait(SECOND);
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let mut service = BoxCloneService::new(inner);
    for policies in layers(client, queue) {
        let limiter = Limiter::new(virtual_time::store(), policies).unwrap();
        let limited = RateLimitLayer::new(limiter).wrap_body().layer(service);
        service = BoxCloneService::new(limited.map_response(|response| response.map(drop)));
    }
    let send = |user: &str| {
        let request = Request::builder().header("x-user", user).body(()).unwrap();
        service.clone().oneshot(request)
    };
    let mut waiting = None;
    for _ in 0..100 {
        let mut request = Box::pin(send("mallory"));
        if poll!(request.as_mut()).is_pending() {
            // Drops the one before.
            waiting = Some(request);
        }
    }
    let answered = send("alice").await.unwrap().status().as_u16();
    drop(waiting);
    answered
}

#[tokio::test(start_paused = true)]
async fn places_a_client_leaves_behind_count_only_against_it() {
    let in_one = answered_beside_one_who_gives_up(|client, queue| vec![vec![client, queue]]).await;
    assert_eq!(in_one, 429);
    let in_two = answered_beside_one_who_gives_up(|client, queue| vec![vec![queue], vec![client]]);
    assert_eq!(in_two.await, 200);
}
