//! Meters that charge while the stream runs.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use futures_util::future::join_all;
use futures_util::poll;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use support::bench::Bench;
use support::on_every_store;
use support::web::eventually;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    Charging, Denied, FailureMode, Limiter, MemoryStore, Mode, RateLimitLayer, ResponseBody,
    StoreError, StoreErrorKind, per_minute,
};

use super::*;

on_every_store! {
    a_stream_is_charged_in_steps_and_told_when_the_limit_is_used_up
    streams_at_once_never_get_more_than_the_limit_and_a_call_each
    what_was_charged_ahead_is_given_back_at_the_end
    in_shadow_a_stream_goes_on_and_is_counted_at_its_end
    a_use_beyond_all_numbers_is_told_to_the_producer
    the_kill_switch_lets_a_stream_go_on
    a_policy_that_is_turned_off_lets_a_stream_go_on
    what_was_charged_ahead_comes_back_after_a_long_stream
    a_step_that_nobody_waits_for_is_charged_once
    calls_at_the_same_time_take_no_step_twice
    after_the_end_a_producer_is_charged_nothing
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
    let limiter = bench.limiter([tokens_of(Limit::fixed_window(100, MINUTE), 10)]);
    let looker = limiter.clone();
    let response = send(&limiter, move |meter| {
        let limiter = looker.clone();
        async move {
            let charging = meter.charging();
            let left_now = async || {
                let looked = limiter.peek("tokens", key("alice")).await;
                looked.expect("a policy").remaining()
            };
            // Within the estimate nothing is asked; beyond it, a step as large is taken.
            for (used, expected) in [(10, 90), (1, 80), (9, 80), (25, 50), (45, 10)] {
                assert_eq!(charging.add(used).await, Ok(()));
                assert_eq!(left_now().await, expected);
            }
            // The last few are less than a step.
            assert_eq!(charging.add(10).await, Ok(()));
            assert_eq!(left_now().await, 0);
            let denied: Denied = charging.add(1).await.expect_err("there is nothing left");
            assert_eq!(denied.policy(), "tokens");
            assert!(denied.retry_after().is_some());
        }
    });
    drop(response.await.into_body().collect().await);
    assert_eq!(left(&limiter).await, 0);
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
    assert_eq!(left(&limiter).await, 0);
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

async fn a_policy_that_is_turned_off_lets_a_stream_go_on(bench: &Bench) {
    let limiter = bench.limiter([tokens(7)]);
    let changer = limiter.clone();
    let response = send(&limiter, move |meter| {
        let limiter = changer.clone();
        async move {
            assert!(meter.charging().add(5_000).await.is_err());
            for mode in [Mode::Off, Mode::Shadow] {
                limiter.set_mode("tokens", mode).expect("a policy");
                assert_eq!(meter.charging().add(1).await, Ok(()), "{mode:?}");
            }
            limiter.set_mode("tokens", Mode::Enforce).expect("a policy");
            assert!(meter.charging().add(1).await.is_err());
        }
    });
    drop(response.await);
}

/// When it ends, what was charged when it arrived has come back by itself.
async fn what_was_charged_ahead_comes_back_after_a_long_stream(bench: &Bench) {
    for limit in [
        Limit::gcra(1_000, MINUTE),
        Limit::token_bucket(1_000, per_minute(1_000)),
        Limit::leaky_bucket(1_000, per_minute(1_000)).without_delay(),
        Limit::fixed_window(1_000, MINUTE),
        Limit::fixed_window(1_000, MINUTE).aligned(),
        Limit::sliding_log(1_000, MINUTE),
        Limit::sliding_window(1_000, MINUTE),
        Limit::sliding_counter(1_000, MINUTE),
        Limit::fixed_window(1_000, MINUTE).and(2_000, 2 * MINUTE),
    ] {
        let name = format!("{limit:?}");
        let limiter = bench.limiter([tokens_of(limit, 100)]);
        let clock = bench.clock.clone();
        let response = send(&limiter, move |meter| {
            let clock = clock.clone();
            async move {
                let charging = meter.charging();
                assert_eq!(charging.add(100).await, Ok(()));
                clock.advance(5 * MINUTE);
                assert_eq!(charging.add(1).await, Ok(()));
            }
        });
        drop(response.await.into_body().collect().await);
        assert_eq!(left(&limiter).await, 999, "{name}");
        let reset = limiter.reset("tokens", key("alice")).await;
        assert!(reset.is_ok());
    }
}

async fn a_step_that_nobody_waits_for_is_charged_once(bench: &Bench) {
    let limiter = bench.limiter([tokens(50)]);
    let response = send(&limiter, |meter| async move {
        let charging = meter.charging();
        // It may be there at once.
        let _ = poll!(pin!(charging.add(101)));
    });
    drop(response.await.into_body().collect().await);
    let _ = eventually(&limiter, "tokens", key("alice"), |looked| {
        looked.remaining() == 899
    })
    .await;
    assert_eq!(left(&limiter).await, 899);
}

async fn calls_at_the_same_time_take_no_step_twice(bench: &Bench) {
    let limiter = bench.limiter([tokens_of(Limit::fixed_window(10, MINUTE), 5)]);
    let response = send(&limiter, |meter| async move {
        let adds = (0..10).map(|_| meter.charging());
        let adds = adds.map(|charging| async move { charging.add(1).await });
        for added in join_all(adds).await {
            assert_eq!(added, Ok(()));
        }
    });
    drop(response.await.into_body().collect().await);
    assert_eq!(left(&limiter).await, 0);
}

async fn after_the_end_a_producer_is_charged_nothing(bench: &Bench) {
    let limiter = bench.limiter([tokens(50)]);
    let (give, given) = mpsc::channel();
    let response = send(&limiter, move |meter| {
        let _ = give.send(meter.charging());
        async move { meter.add(60) }
    });
    drop(response.await.into_body().collect().await);
    let producer: Charging = given.recv().expect("a producer");
    assert_eq!(producer.add(5_000).await, Ok(()));
    assert_eq!(left(&limiter).await, 940);
}

/// A store that fails while it is told to.
#[derive(Clone)]
struct Interrupted {
    store: MemoryStore,
    fails: Arc<AtomicBool>,
}

impl Store for Interrupted {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match self.fails.load(Ordering::SeqCst) {
            true => Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable))),
            false => self.store.ask(checks),
        }
    }
}

#[tokio::test]
async fn a_step_of_the_local_share_is_not_given_back_to_the_store() {
    let store = Interrupted {
        store: MemoryStore::new(),
        fails: Arc::default(),
    };
    let policy = tokens(100).on_store_failure(FailureMode::Local { share: 1.0 });
    let limiter = Limiter::new(store.clone(), [policy]).expect("a valid policy");
    let response = send(&limiter, move |meter| {
        let fails = Arc::clone(&store.fails);
        async move {
            fails.store(true, Ordering::SeqCst);
            assert_eq!(meter.charging().add(101).await, Ok(()));
            fails.store(false, Ordering::SeqCst);
        }
    });
    drop(response.await.into_body().collect().await);
    assert_eq!(left(&limiter).await, 900);
}
