//! Meters that charge while the stream runs.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use support::bench::Bench;
use support::on_every_store;
use support::web::eventually;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{Denied, Limiter, Mode, RateLimitLayer, ResponseBody};

use super::*;

on_every_store! {
    a_stream_is_charged_in_steps_and_told_when_the_limit_is_used_up
    streams_at_once_never_get_more_than_the_limit_and_a_call_each
    what_was_charged_ahead_is_given_back_at_the_end
    in_shadow_a_stream_goes_on_and_is_counted_at_its_end
    a_use_beyond_all_numbers_is_told_to_the_producer
    the_kill_switch_lets_a_stream_go_on
}

/// Sends a request, whose handler is given its meter. The answer has no body.
async fn send<F, W>(limiter: &Limiter, work: W) -> Response<ResponseBody<Empty<Bytes>>>
where
    F: Future<Output = ()> + Send + 'static,
    W: Fn(Meter) -> F + Clone + Send + Sync + 'static,
{
    let service = service_fn(move |request: Request<()>| {
        let meter: &Meter = request.extensions().get().expect("a meter");
        let done = work(meter.clone());
        async move {
            done.await;
            Ok::<_, Infallible>(Response::new(Empty::new()))
        }
    });
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(service);
    let request = Request::builder().header(KEY, "alice");
    let request = request.body(()).expect("a request");
    service.oneshot(request).await.expect("an answer")
}

async fn a_stream_is_charged_in_steps_and_told_when_the_limit_is_used_up(bench: &Bench) {
    let limiter = bench.limiter([Policy::new("tokens", Limit::fixed_window(100, MINUTE))
        .by(Header::new(KEY))
        .cost(10)
        .settle_at_end(|end| end.used())]);
    let looker = limiter.clone();
    let response = send(&limiter, move |meter| {
        let limiter = looker.clone();
        async move {
            let charging = meter.charging();
            let left = async || {
                let looked = limiter.peek("tokens", key("alice")).await;
                looked.expect("a policy").remaining()
            };
            // Within the estimate nothing is asked; beyond it, a step as large is taken.
            for (used, expected) in [(10, 90), (1, 80), (9, 80), (25, 50), (45, 10)] {
                assert_eq!(charging.add(used).await, Ok(()));
                assert_eq!(left().await, expected);
            }
            // The last few are less than a step.
            assert_eq!(charging.add(10).await, Ok(()));
            assert_eq!(left().await, 0);
            let denied: Denied = charging.add(1).await.expect_err("there is nothing left");
            assert_eq!(denied.policy(), "tokens");
            assert!(denied.retry_after().is_some());
        }
    });
    drop(response.await.into_body().collect().await);
    assert!(limiter.flush().await);
    let looked = limiter.peek("tokens", key("alice")).await;
    assert_eq!(looked.expect("a policy").remaining(), 0);
}

async fn streams_at_once_never_get_more_than_the_limit_and_a_call_each(bench: &Bench) {
    let limiter = bench.limiter([tokens(7)]);
    let granted = Arc::new(AtomicU64::new(0));
    let streams = (0..8).map(|_| {
        let granted = Arc::clone(&granted);
        send(&limiter, move |meter| {
            let granted = Arc::clone(&granted);
            async move {
                while meter.charging().add(3).await.is_ok() {
                    granted.fetch_add(3, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            }
        })
    });
    let answers = join_all(streams).await;
    let granted = granted.load(Ordering::SeqCst);
    assert!((1_000 - 8 * 10..=1_000).contains(&granted), "{granted}");
    drop(answers);
    assert!(limiter.flush().await);
}

async fn what_was_charged_ahead_is_given_back_at_the_end(bench: &Bench) {
    let limiter = bench.limiter([tokens(50)]);
    let response = send(&limiter, |meter| async move {
        assert_eq!(meter.charging().add(51).await, Ok(()));
    });
    drop(response.await.into_body().collect().await);
    let _ = eventually(&limiter, "tokens", key("alice"), |looked| {
        looked.remaining() == 949
    })
    .await;
}

async fn in_shadow_a_stream_goes_on_and_is_counted_at_its_end(bench: &Bench) {
    let limiter = bench.limiter([tokens(400).mode(Mode::Shadow)]);
    let response = send(&limiter, |meter| async move {
        for _ in 0..4 {
            assert_eq!(meter.charging().add(300).await, Ok(()));
        }
    });
    drop(response.await.into_body().collect().await);
    let _ = eventually(&limiter, "tokens", key("alice"), |looked| {
        looked.remaining() == 0
    })
    .await;
}

async fn a_use_beyond_all_numbers_is_told_to_the_producer(bench: &Bench) {
    let limiter = bench.limiter([tokens(7)]);
    let response = send(&limiter, |meter| async move {
        assert!(meter.charging().add(u64::MAX).await.is_err());
    });
    drop(response.await.into_body().collect().await);
    assert!(limiter.flush().await);
    let looked = limiter.peek("tokens", key("alice")).await;
    assert_eq!(looked.expect("a policy").remaining(), 0);
}

async fn the_kill_switch_lets_a_stream_go_on(bench: &Bench) {
    let limiter = bench.limiter([tokens(7)]);
    let switch = limiter.clone();
    let response = send(&limiter, move |meter| {
        let switch = switch.clone();
        async move {
            switch.turn_off();
            assert_eq!(meter.charging().add(5_000).await, Ok(()));
            switch.turn_on();
        }
    });
    drop(response.await.into_body().collect().await);
}
