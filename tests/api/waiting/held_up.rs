//! The layer: requests that are held up instead of denied.

use std::convert::Infallible;
use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use http::{Request, Response};
use tokio::time::{Instant, advance, sleep, timeout};
use tower::util::BoxCloneService;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    DAY, Header, Key, Limit, Limiter, MINUTE, Policy, RateLimitLayer, Rejection, RejectionKind,
    RequestHead, SECOND, per_second,
};

use support::virtual_time::{self, ms, timed};

type Limited = BoxCloneService<Request<()>, Response<()>, Infallible>;

/// A service behind these policies that answers at once, and its limiter.
fn service(policies: impl IntoIterator<Item = Policy>) -> (Limited, Limiter) {
    let limiter = Limiter::new(virtual_time::store(), policies).unwrap();
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let service = service.map_response(|response| response.map(drop));
    (BoxCloneService::new(service), limiter)
}

/// One a second, and none stored, for callers that wait no longer than this.
async fn one_a_second(longest: Duration) -> (Limited, Limiter) {
    let api = Policy::new("api", Limit::gcra(1, SECOND)).max_wait(longest);
    let (mut service, limiter) = service([api]);
    assert_eq!(send(&mut service).await.status(), 200);
    (service, limiter)
}

async fn send(service: &mut Limited) -> Response<()> {
    let ready = service.ready().await.unwrap();
    ready.call(Request::new(())).await.unwrap()
}

/// How many permits a policy has left.
async fn left(limiter: &Limiter, policy: &str) -> u64 {
    let peeked = limiter.peek(policy, Key::everybody()).await;
    peeked.unwrap().remaining()
}

/// When each of this many simultaneous requests is answered, and with what.
async fn answers(service: &Limited, requests: usize) -> Vec<(Duration, u16)> {
    let start = Instant::now();
    let answer = async |mut service: Limited| {
        let status = send(&mut service).await.status().as_u16();
        (start.elapsed(), status)
    };
    join_all((0..requests).map(|_| answer(service.clone()))).await
}

#[tokio::test(start_paused = true)]
async fn requests_are_held_up_until_they_fit_in_order_of_arrival() {
    for limit in [
        Limit::gcra(10, SECOND).burst(2),
        Limit::token_bucket(2, per_second(10)),
        Limit::leaky_bucket(2, per_second(10)).without_delay(),
    ] {
        let (service, _) = service([Policy::new("api", limit).max_wait(ms(200))]);
        let expected = [
            (0, 200),
            (0, 200),
            (100, 200),
            (200, 200),
            (0, 429),
            (0, 429),
        ];
        let expected = expected.map(|(after, status)| (ms(after), status));
        assert_eq!(answers(&service, 6).await, expected, "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_paces_requests_evenly() {
    let (service, _) = service([Policy::new("api", Limit::leaky_bucket(4, per_second(10)))]);
    let expected = [(0, 200), (100, 200), (200, 200), (300, 200), (0, 429)];
    let expected = expected.map(|(after, status)| (ms(after), status));
    assert_eq!(answers(&service, 5).await, expected);
    // Those who come later are in step with those before.
    advance(ms(20)).await;
    let expected = [(80, 200), (180, 200), (280, 200), (0, 429)].map(|(at, s)| (ms(at), s));
    assert_eq!(answers(&service, 4).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_queue_holds_nobody_up_for_longer_than_its_policy_says() {
    let queue = Policy::new("api", Limit::leaky_bucket(4, per_second(10))).max_wait(ms(100));
    let (service, _) = service([queue]);
    let expected = [(0, 200), (100, 200), (0, 429)].map(|(at, status)| (ms(at), status));
    assert_eq!(answers(&service, 3).await, expected);
}

#[tokio::test(start_paused = true)]
async fn a_place_left_in_a_queue_brings_no_two_callers_together() {
    let (first, _) = service([Policy::new("api", Limit::leaky_bucket(9, per_second(10)))]);
    let [mut first, mut leaving, mut behind, mut last] = std::array::from_fn(|_| first.clone());
    send(&mut first).await;
    let (dropped, behind, last) = tokio::join!(
        timeout(ms(10), send(&mut leaving)),
        timed(send(&mut behind)),
        async {
            tokio::time::sleep(ms(20)).await;
            timed(send(&mut last)).await
        },
    );
    assert!(dropped.is_err());
    assert_eq!((behind.1, last.1), (ms(200), ms(280)));
}

#[tokio::test(start_paused = true)]
async fn a_denial_says_exactly_when_a_request_will_be_held_up_instead() {
    let (mut service, _) = one_a_second(ms(2_500)).await;
    let mut second = service.clone();
    let mut third = service.clone();
    let (_, _, denied) = tokio::join!(send(&mut service), send(&mut second), async {
        send(&mut third).await
    });
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.headers()["retry-after"], "1");
    let rejection = denied.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.kind(), RejectionKind::QuotaExceeded);
    assert_eq!(rejection.retry_after(), Some(ms(500)));
}

#[tokio::test(start_paused = true)]
async fn the_wait_that_a_denial_tells_is_exact_to_the_microsecond() {
    let (mut service, _) = one_a_second(ms(1)).await;
    let denied = send(&mut service).await;
    let retry_after = |denied: &Response<()>| {
        let rejection = denied.extensions().get::<Rejection>();
        rejection.and_then(Rejection::retry_after)
    };
    assert_eq!(retry_after(&denied), Some(ms(999)));
    advance(ms(999) - Duration::from_micros(1)).await;
    let early = send(&mut service).await;
    assert_eq!(retry_after(&early), Some(Duration::from_micros(1)));
    advance(Duration::from_micros(1)).await;
    let (held_up, waited) = timed(send(&mut service)).await;
    assert_eq!((held_up.status().as_u16(), waited), (200, ms(1)));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_delayed_request_gives_back_every_policys_permits() {
    let (mut service, limiter) = service([
        Policy::new("second", Limit::gcra(1, SECOND)).max_wait(MINUTE),
        Policy::new("minute", Limit::fixed_window(10, MINUTE)),
        Policy::new("burst", Limit::token_bucket(10, per_second(1))),
        Policy::new("log", Limit::sliding_log(10, MINUTE)),
        Policy::new("queue", Limit::leaky_bucket(10, per_second(20))),
    ]);
    assert_eq!(send(&mut service).await.status(), 200);
    let mut beside = service.clone();
    let dropped = timeout(ms(10), send(&mut beside)).await;
    assert!(dropped.is_err());
    assert_eq!(left(&limiter, "second").await, 0);
    for policy in ["minute", "burst", "log", "queue"] {
        assert_eq!(left(&limiter, policy).await, 9, "{policy}");
    }
    let (served, waited) = timed(send(&mut service)).await;
    assert_eq!((served.status().as_u16(), waited), (200, ms(990)));
}

#[tokio::test(start_paused = true)]
async fn a_request_others_queue_behind_gives_back_what_nobody_awaits() {
    let (mut service, limiter) = service([
        Policy::new("second", Limit::gcra(1, SECOND)).max_wait(MINUTE),
        Policy::new("minute", Limit::fixed_window(10, MINUTE)),
        Policy::new("day", Limit::gcra(10, DAY)),
    ]);
    assert_eq!(send(&mut service).await.status(), 200);
    let (mut leaving, mut behind) = (service.clone(), service.clone());
    let leaving = timeout(ms(10), send(&mut leaving));
    let (dropped, behind) = tokio::join!(leaving, timed(send(&mut behind)));
    assert!(dropped.is_err());
    assert_eq!(behind.1, 2 * SECOND);
    assert_eq!(left(&limiter, "minute").await, 8);
    assert_eq!(left(&limiter, "day").await, 8);
    let (_, waited) = timed(send(&mut service)).await;
    assert_eq!(waited, SECOND, "the second that nobody used stays taken");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_goes_on_keeps_its_permits() {
    let (mut service, limiter) = one_a_second(MINUTE).await;
    let (held_up, waited) = timed(send(&mut service)).await;
    assert_eq!((held_up.status().as_u16(), waited), (200, SECOND));
    let left = limiter.peek("api", Key::everybody()).await.unwrap();
    assert_eq!((left.remaining(), left.reset_after()), (0, SECOND));
}

#[tokio::test(start_paused = true)]
async fn the_longest_wait_of_all_policies_is_waited_once() {
    let (mut service, _) = service([
        Policy::new("slow", Limit::gcra(1, SECOND)).max_wait(MINUTE),
        Policy::new("quick", Limit::leaky_bucket(9, per_second(4))),
    ]);
    let mut waits = Vec::new();
    for _ in 0..3 {
        waits.push(timed(send(&mut service)).await.1);
    }
    assert_eq!(waits, [Duration::ZERO, SECOND, SECOND]);
}

/// When requests reach the service: those of two clients that come twice and are held up the second
/// time, and of two others that come when that is over.
async fn arrivals(layers: impl FnOnce(Policy, Policy) -> Vec<Vec<Policy>>) -> Vec<Duration> {
    let client = Policy::new("client", Limit::gcra(1, 10 * SECOND)).by(Header::new("x-user"));
    let everybody = Policy::new("everybody", Limit::sliding_log(2, SECOND));
    let arrivals = Arc::new(Mutex::new(Vec::new()));
    let (start, arrived) = (Instant::now(), Arc::clone(&arrivals));
    let inner = service_fn(move |_: Request<()>| {
        arrived.lock().unwrap().push(start.elapsed());
        ready(Ok::<_, Infallible>(Response::new(())))
    });
    let mut service = BoxCloneService::new(inner);
    for policies in layers(client.max_wait(MINUTE), everybody) {
        let limiter = Limiter::new(virtual_time::store(), policies).unwrap();
        let limited = RateLimitLayer::new(limiter).wrap_body().layer(service);
        service = BoxCloneService::new(limited.map_response(|response| response.map(drop)));
    }
    let come = async |second: u32, user: &str| {
        sleep(second * SECOND).await;
        let request = Request::builder().header("x-user", user).body(()).unwrap();
        service.clone().oneshot(request).await.unwrap();
    };
    let (five, ten) = (5, 10);
    tokio::join!(
        come(0, "alice"),
        come(0, "bob"),
        come(five, "alice"),
        come(five, "bob"),
        come(ten, "carol"),
        come(ten, "dave"),
    );
    std::mem::take(&mut *arrivals.lock().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_layer_inside_the_waiting_one_judges_what_arrives() {
    let at = |seconds: &[u32]| -> Vec<_> { seconds.iter().map(|at| *at * SECOND).collect() };
    let in_one = arrivals(|client, everybody| vec![vec![client, everybody]]).await;
    assert_eq!(in_one, at(&[0, 0, 10, 10, 10, 10]));
    let in_two = arrivals(|client, everybody| vec![vec![everybody], vec![client]]).await;
    assert_eq!(in_two, at(&[0, 0, 10, 10]), "two a second");
}

#[tokio::test(start_paused = true)]
async fn when_limiting_is_turned_off_nobody_is_held_up_any_more() {
    let (mut service, limiter) = one_a_second(MINUTE).await;
    let turned_off = async {
        sleep(ms(1_500)).await;
        limiter.turn_off();
    };
    let (answers, ()) = tokio::join!(answers(&service, 10), turned_off);
    let mut expected = vec![(ms(1_500), 200); 10];
    expected[0] = (SECOND, 200);
    assert_eq!(answers, expected);
    limiter.turn_on();
    let waited = timed(send(&mut service)).await.1;
    assert_eq!(waited, ms(9_500), "what they took stays taken");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_another_policy_denies_is_not_delayed() {
    let (mut service, limiter) = service([
        Policy::new("second", Limit::gcra(1, SECOND)).max_wait(MINUTE),
        Policy::new("minute", Limit::fixed_window(1, MINUTE)),
    ]);
    assert_eq!(send(&mut service).await.status(), 200);
    let before = limiter.peek("second", Key::everybody()).await.unwrap();
    let (denied, waited) = timed(send(&mut service)).await;
    assert_eq!((denied.status().as_u16(), waited), (429, Duration::ZERO));
    let rejection = denied.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.policies(), ["minute"]);
    let after = limiter.peek("second", Key::everybody()).await.unwrap();
    assert_eq!(after, before);
}

#[tokio::test(start_paused = true)]
async fn a_cost_that_never_fits_is_denied_however_long_one_may_wait() {
    let cost = |request: &RequestHead<'_>| request.headers.len() as u64 + 1;
    let api = Policy::new("api", Limit::gcra(1, SECOND));
    let (service, _) = service([api.max_wait(MINUTE).cost_by(cost)]);
    let request = Request::builder().header("x-cost", "2").body(()).unwrap();
    let denied = service.oneshot(request).await.unwrap();
    let rejection = denied.extensions().get::<Rejection>().unwrap();
    assert_eq!(rejection.kind(), RejectionKind::NeverFits);
    assert!(!denied.headers().contains_key("retry-after"));
}

#[test]
fn a_limit_nobody_can_wait_for_is_refused_with_alternatives() {
    let refusal = |policy: Policy| {
        let limiter = Limiter::new(tower_throttle::MemoryStore::new(), [policy]);
        limiter.unwrap_err().to_string()
    };
    let windows = Policy::new("api", Limit::fixed_window(1, SECOND));
    assert_eq!(
        refusal(windows.max_wait(SECOND)),
        "policy \"api\": max_wait: is an option of gcra, token_bucket and leaky_bucket"
    );
    let gcra = Policy::new("api", Limit::gcra(1, SECOND));
    assert_eq!(
        refusal(gcra.max_wait(Duration::ZERO)),
        "policy \"api\": max_wait: got 0ns, expected 1 ms to 24 h"
    );
}
