//! The layer: clients that give up while their requests are held up, and come again.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Limit, Limiter, Policy, RateLimitLayer, SECOND};

use crate::support::virtual_time::{self, ms};

const CLIENTS: usize = 40;
const RATE: usize = 20;
const SECONDS: usize = 10;

/// How many requests are answered in each second, if no request is held up for longer than this and
/// each client gives up after half a second.
async fn answered_in_seconds(longest: Duration) -> [usize; SECONDS] {
    let limit = Limit::gcra(RATE as u32, SECOND).burst(1);
    let policy = Policy::new("api", limit).max_wait(longest);
    let limiter = Limiter::new(virtual_time::store(), [policy]).unwrap();
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = RateLimitLayer::new(limiter).layer(inner);
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
async fn clients_who_wait_longer_than_the_longest_wait_get_the_whole_rate() {
    for longest in [50, 250, 400].map(ms) {
        let answered = answered_in_seconds(longest).await;
        assert_eq!(answered, [RATE; SECONDS], "{longest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn clients_who_give_up_before_the_longest_wait_are_not_served_after_a_second() {
    for longest in [1_000, 5_000].map(ms) {
        let [_, after_the_first @ ..] = answered_in_seconds(longest).await;
        assert_eq!(after_the_first, [0; SECONDS - 1], "{longest:?}");
    }
}
