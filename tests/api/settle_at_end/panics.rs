//! What goes wrong at the end of a body leaves the estimate, and nobody hears of it but the log.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use http::{Request, Response};
use support::bench::Bench;
use support::on_every_store;
use support::web::eventually;
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{RateLimitLayer, ResponseBody};

use super::*;

on_every_store! {
    a_panic_at_the_end_leaves_the_estimate
    a_process_that_ends_leaves_the_estimate
    a_body_may_be_dropped_outside_of_any_runtime
    a_closure_runs_once_for_each_request
}

/// The answer to a request, whose body will use seven.
async fn answer(limiter: &Limiter) -> ResponseBody<Metered> {
    let service = service_fn(|request: Request<()>| async move {
        let meter: &Meter = request.extensions().get().expect("a meter");
        meter.add(7);
        let body = Metered {
            meter: meter.clone(),
            chunks: VecDeque::new(),
            ending: Some(Last::Trailers),
            is_exact: false,
        };
        Ok::<_, Infallible>(Response::new(body))
    });
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(service);
    let request = Request::builder().header(KEY, "alice");
    let request = request.body(()).expect("a request");
    service
        .oneshot(request)
        .await
        .expect("an answer")
        .into_body()
}

async fn a_panic_at_the_end_leaves_the_estimate(bench: &Bench) {
    let policy = tokens(3).settle_at_end(|_| panic!("on purpose"));
    let limiter = bench.limiter([policy]);
    drop(answer(&limiter).await);
    assert_eq!(left(&limiter).await, 997);
}

async fn a_process_that_ends_leaves_the_estimate(bench: &Bench) {
    let limiter = bench.limiter([tokens(3)]);
    std::mem::forget(answer(&limiter).await);
    assert_eq!(left(&limiter).await, 997);
}

async fn a_body_may_be_dropped_outside_of_any_runtime(bench: &Bench) {
    let limiter = bench.limiter([tokens(3)]);
    let body = answer(&limiter).await;
    thread::spawn(move || drop(body)).join().expect("no panic");
    let _ = eventually(&limiter, "tokens", key("alice"), |looked| {
        looked.remaining() == 993
    })
    .await;
}

async fn a_closure_runs_once_for_each_request(bench: &Bench) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&runs);
    let limiter = bench.limiter([tokens(3).settle_at_end(move |end| {
        counted.fetch_add(1, Ordering::SeqCst);
        end.used()
    })]);
    for requests in 1..=3 {
        drop(answer(&limiter).await);
        assert_eq!(runs.load(Ordering::SeqCst), requests);
    }
    assert_eq!(left(&limiter).await, 1_000 - 3 * 7);
}
