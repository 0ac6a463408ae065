//! Feedback: an upstream asks to wait, and the whole fleet does.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::{Ready, join_all, ready};
use http::{Extensions, HeaderMap, Response, StatusCode};
use support::asking::answered;
use support::virtual_time::ms;
use tokio::task::yield_now;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, ServiceExt};
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    DAY, FailureMode, Feedback, Key, Limit, Limiter, MINUTE, Mode, Policy, ResponseHead, SECOND,
    Throttle, per_second,
};

use super::{Watched, after, layer};

/// An upstream that notes when requests arrive, and refuses some.
#[derive(Clone, Debug)]
struct Upstream(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    arrived: Mutex<Vec<Duration>>,
    /// Which of the requests it answers with a 429, and the seconds that it tells.
    refusals: Vec<(usize, u64)>,
}

impl Upstream {
    /// Refuses requests by their numbers.
    fn refusing(refusals: &[(usize, u64)]) -> Self {
        Self(Arc::new(Inner {
            start: Instant::now(),
            arrived: Mutex::default(),
            refusals: refusals.to_vec(),
        }))
    }

    fn arrived(&self) -> Vec<Duration> {
        self.0.arrived.lock().unwrap().clone()
    }
}

impl<R> Service<R> for Upstream {
    type Response = Response<()>;
    type Error = Infallible;
    type Future = Ready<Result<Response<()>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        let mut arrived = self.0.arrived.lock().unwrap();
        let mut refusals = self.0.refusals.iter();
        let refusal = refusals.find(|(number, _)| *number == arrived.len());
        arrived.push(self.0.start.elapsed());
        ready(Ok(match refusal {
            Some((_, secs)) => refused(*secs),
            None => Response::new(()),
        }))
    }
}

fn refused(secs: u64) -> Response<()> {
    let response = Response::builder().status(429).header("retry-after", secs);
    response.body(()).unwrap()
}

type Obedient = Throttle<Upstream, Feedback>;

fn obedient(limiter: &Limiter, upstream: &Upstream) -> Obedient {
    layer(limiter)
        .feedback(Feedback::http())
        .layer(upstream.clone())
}

async fn send(service: &mut Obedient) {
    ServiceExt::<()>::ready(service).await.unwrap();
    service.call(()).await.unwrap();
}

async fn send_all(mut service: Obedient, requests: usize) {
    for _ in 0..requests {
        send(&mut service).await;
    }
}

/// When requests arrive under this limit, one after the other from one client.
async fn arrivals(limit: Limit, requests: usize, refusals: &[(usize, u64)]) -> Vec<Duration> {
    let upstream = Upstream::refusing(refusals);
    send_all(
        obedient(&Watched::new().limiter(limit), &upstream),
        requests,
    )
    .await;
    upstream.arrived()
}

#[tokio::test(start_paused = true)]
async fn after_a_hold_requests_go_on_at_the_pace_and_not_together() {
    let limit = Limit::token_bucket(4, per_second(10));
    let sent = arrivals(limit, 7, &[(1, 2)]).await;
    assert_eq!(sent, after([0, 0, 2_000, 2_100, 2_200, 2_300, 2_400]));
}

#[tokio::test(start_paused = true)]
async fn a_queue_is_held_as_well() {
    let limit = Limit::leaky_bucket(4, per_second(10));
    let sent = arrivals(limit, 5, &[(1, 2)]).await;
    assert_eq!(sent, after([0, 100, 2_100, 2_200, 2_300]));
}

/// Forty callers of four processes have places for four seconds ahead.
#[tokio::test(start_paused = true)]
async fn all_who_wait_already_are_held_and_none_goes_early() {
    for secs in [1, 2, 10] {
        let store = Watched::new();
        let limit = Limit::token_bucket(2, per_second(10));
        let upstream = Upstream::refusing(&[(5, secs)]);
        let fleet: Vec<_> = (0..4).map(|_| store.limiter(limit)).collect();
        let callers = (0..40).map(|nth| send_all(obedient(&fleet[nth % 4], &upstream), 1));
        join_all(callers).await;
        let arrived = upstream.arrived();
        assert_eq!(arrived.len(), 40);
        let until = arrived[5] + Duration::from_secs(secs);
        assert!(arrived[6] == until, "{arrived:?}");
        assert!(
            arrived[6..].is_sorted_by(|one, next| *next - *one == ms(100)),
            "{arrived:?}"
        );
    }
}

/// What they give back lowers the debt, and so would let others go on earlier.
#[tokio::test(start_paused = true)]
async fn callers_who_give_up_during_a_hold_let_nobody_go_early() {
    let store = Watched::new();
    let upstream = Upstream::refusing(&[(1, 3)]);
    let limiter = store.limiter(Limit::token_bucket(2, per_second(10)));
    let mut waiting: Vec<_> = (0..40)
        .map(|_| Box::pin(timeout(MINUTE, send_all(obedient(&limiter, &upstream), 1))))
        .collect();
    let _ = timeout(ms(50), join_all(waiting.iter_mut())).await;
    assert_eq!(upstream.arrived(), after([0, 0]));
    // The last first, so that all of them give back.
    while let Some(last) = waiting.pop() {
        drop(last);
    }
    join_all((0..5).map(|_| send_all(obedient(&limiter, &upstream), 1))).await;
    assert_eq!(
        upstream.arrived(),
        after([0, 0, 3_000, 3_100, 3_200, 3_300, 3_400])
    );
}

#[tokio::test(start_paused = true)]
async fn of_several_announcements_the_latest_instant_counts() {
    let store = Watched::new();
    // Both are sent before the first is answered.
    let upstream = Upstream::refusing(&[(0, 3), (1, 1)]);
    let limiter = store.limiter(Limit::token_bucket(2, per_second(10)));
    let [mut one, mut other] = [(); 2].map(|()| obedient(&limiter, &upstream));
    ServiceExt::<()>::ready(&mut one).await.unwrap();
    ServiceExt::<()>::ready(&mut other).await.unwrap();
    one.call(()).await.unwrap();
    other.call(()).await.unwrap();
    send(&mut one).await;
    assert_eq!(upstream.arrived(), after([0, 0, 3_000]));
}

#[tokio::test(start_paused = true)]
async fn an_announcement_never_lets_anybody_go_before_the_limit_does() {
    let sent = arrivals(Limit::gcra(1, MINUTE), 3, &[(0, 5), (1, 0)]).await;
    assert_eq!(sent, after([0, 60_000, 120_000]));
}

#[tokio::test(start_paused = true)]
async fn a_hold_lasts_a_minute_at_most_unless_another_time_is_said() {
    let limit = Limit::gcra(10, SECOND);
    let year = 366 * 86_400;
    assert_eq!(arrivals(limit, 2, &[(0, year)]).await, after([0, 60_000]));
    assert_eq!(
        arrivals(limit, 2, &[(0, u64::MAX)]).await,
        after([0, 60_000])
    );
    for longest in [5 * SECOND, 300 * SECOND] {
        let upstream = Upstream::refusing(&[(0, year)]);
        let feedback = Feedback::http().max_hold(longest);
        let layer = layer(&Watched::new().limiter(limit)).feedback(feedback);
        send_all(layer.layer(upstream.clone()), 2).await;
        assert_eq!(upstream.arrived()[1], longest);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_uses_up_nothing_of_the_further_rates() {
    let limit = Limit::gcra(10, SECOND).and(20, DAY);
    let sent = arrivals(limit, 8, &[(0, 2)]).await;
    assert_eq!(sent[1..], after((0..7).map(|nth| 2_000 + nth * 100)));
}

#[tokio::test(start_paused = true)]
async fn dear_requests_are_held_until_the_instant_and_keep_their_pace() {
    for (cost, pause) in [(3, 300), (9, 900)] {
        let upstream = Upstream::refusing(&[(0, 2)]);
        let limiter = Watched::new().limiter(Limit::token_bucket(4, per_second(10)));
        let layer = layer(&limiter).cost(cost).feedback(Feedback::http());
        send_all(layer.layer(upstream.clone()), 4).await;
        let expected = [0, 2_000, 2_000 + pause, 2_000 + 2 * pause];
        assert_eq!(upstream.arrived(), after(expected), "{cost}");
    }
}

#[tokio::test(start_paused = true)]
async fn callers_with_a_longest_wait_are_held_as_well() {
    let upstream = Upstream::refusing(&[(0, 2)]);
    let limiter = Watched::new().limiter(Limit::token_bucket(4, per_second(10)));
    let layer = layer(&limiter).max_wait(ms(200)).feedback(Feedback::http());
    let service = layer.layer(upstream.clone());
    join_all((0..10).map(|_| send_all(service.clone(), 1))).await;
    let arrived = upstream.arrived();
    let early = arrived.iter().filter(|at| **at < 2 * SECOND).count();
    // Those were sent before the answer to the first.
    assert!(
        arrived[..early].iter().all(Duration::is_zero),
        "{arrived:?}"
    );
    let late = &arrived[early..];
    assert!(
        late.is_sorted_by(|one, next| *next - *one >= ms(100)),
        "{arrived:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn other_keys_are_not_held_nor_is_anything_without_feedback() {
    let limiter = Watched::new().limiter(Limit::token_bucket(9, per_second(10)));
    let upstream = Upstream::refusing(&[(0, 2)]);
    let red = layer(&limiter).key("red").feedback(Feedback::http());
    let blue = layer(&limiter).key("blue").feedback(Feedback::http());
    send_all(red.layer(upstream.clone()), 1).await;
    send_all(blue.layer(upstream.clone()), 1).await;
    assert_eq!(upstream.arrived(), after([0, 0]));

    let upstream = Upstream::refusing(&[(0, 2)]);
    let mut deaf = layer(&limiter).layer(upstream.clone());
    for _ in 0..2 {
        ServiceExt::<()>::ready(&mut deaf).await.unwrap();
        deaf.call(()).await.unwrap();
    }
    assert_eq!(upstream.arrived(), after([0, 0]));
}

#[tokio::test(start_paused = true)]
async fn a_reset_of_the_key_ends_a_hold() {
    let upstream = Upstream::refusing(&[(0, 60)]);
    let limiter = Watched::new().limiter(Limit::gcra(10, SECOND));
    let mut service = obedient(&limiter, &upstream);
    send(&mut service).await;
    sleep(SECOND).await;
    let reset = limiter.reset("partner", Key::everybody()).await.unwrap();
    assert!(reset.is_allowed());
    send(&mut service).await;
    assert_eq!(upstream.arrived(), after([0, 1_000]));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_is_off_or_in_shadow_holds_nobody() {
    for mode in [Mode::Off, Mode::Shadow] {
        let policy = Policy::new("partner", Limit::gcra(10, SECOND)).mode(mode);
        let upstream = Upstream::refusing(&[(0, 60)]);
        send_all(obedient(&Watched::new().limiter_of(policy), &upstream), 2).await;
        assert_eq!(upstream.arrived(), after([0, 0]), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn feedback_takes_one_trip_more_for_each_request() {
    let store = Watched::new();
    let upstream = Upstream::refusing(&[]);
    let service = obedient(&store.limiter(Limit::gcra(10, SECOND)), &upstream);
    join_all([send_all(service.clone(), 5), send_all(service, 5)]).await;
    assert_eq!(store.asked().len(), 20);
}

/// Its clock is the real one.
#[tokio::test]
async fn a_local_share_holds_its_process() {
    let policy = Policy::new("partner", Limit::gcra(10, SECOND));
    let policy = policy.on_store_failure(FailureMode::Local { share: 1.0 });
    let upstream = Upstream::refusing(&[(0, 1)]);
    let store = Watched::failing(1_000);
    send_all(obedient(&store.limiter_of(policy), &upstream), 2).await;
    assert!(upstream.arrived()[1] > ms(990), "{:?}", upstream.arrived());
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_fails_closed_sends_nothing_that_may_be_held() {
    let policy = Policy::new("partner", Limit::gcra(10, SECOND).burst(1));
    let policy = policy.on_store_failure(FailureMode::Deny);
    let store = Watched::new();
    let upstream = Upstream::refusing(&[]);
    let mut service = obedient(&store.limiter_of(policy), &upstream);
    send(&mut service).await;
    // The permits are asked for now, and the store fails when their time has come.
    let later = async {
        sleep(ms(50)).await;
        store.fail_next(2);
    };
    tokio::join!(send(&mut service), later);
    assert_eq!(upstream.arrived(), after([0, 2_100]));
}

/// Takes a round trip for each question.
struct Far(Watched);

impl Store for Far {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let answer = self.0.ask(checks);
        Answer::Pending(Box::pin(async {
            yield_now().await;
            answered(answer).await
        }))
    }
}

/// A limiter over a store near by, and one over a store far away.
fn near_and_far() -> [(Watched, Limiter); 2] {
    let policy = || [Policy::new("partner", Limit::gcra(10, SECOND))];
    let (near, far) = (Watched::new(), Watched::new());
    let of_far = Limiter::new(Far(far.clone()), policy()).unwrap();
    let of_near = Limiter::new(near.clone(), policy()).unwrap();
    [(near, of_near), (far, of_far)]
}

/// Sends a request that begins a hold, while the store fails this often.
async fn send_while_failing(service: &mut Obedient, store: &Watched, failures: u32) {
    ServiceExt::<()>::ready(service).await.unwrap();
    store.fail_next(failures);
    service.call(()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_failed_is_kept_once_the_store_answers() {
    for (store, limiter) in near_and_far() {
        let upstream = Upstream::refusing(&[(0, 10)]);
        let mut service = obedient(&limiter, &upstream);
        send_while_failing(&mut service, &store, 2).await;
        sleep(ms(2_500)).await;
        let mut others = vec![service; 3];
        join_all(others.iter_mut().map(send)).await;
        assert_eq!(upstream.arrived(), after([0, 10_000, 10_100, 10_200]));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_fails_is_repeated_until_its_end_and_once_done() {
    for (failures, repeated) in [
        (1_000, &[1_000, 2_000][..]),
        (2, &[1_000, 2_000]),
        (1, &[1_000]),
    ] {
        for (store, limiter) in near_and_far() {
            let upstream = Upstream::refusing(&[(0, 3)]);
            let mut service = obedient(&limiter, &upstream);
            send_while_failing(&mut service, &store, failures).await;
            sleep(MINUTE).await;
            let asked = store.asked();
            let after_it: Vec<_> = asked[3..].iter().map(|at| *at - asked[2]).collect();
            assert_eq!(after_it, after(repeated.iter().copied()), "{failures}");
        }
    }
}

/// Without a limit an upstream may refuse thousands of requests while the store fails.
#[tokio::test(start_paused = true)]
async fn of_holds_that_failed_the_one_that_ends_last_is_repeated() {
    for refusals in [[(0, 9), (1, 10), (2, 12)], [(0, 12), (1, 9), (2, 10)]] {
        let store = Watched::new();
        let limiter = store.limiter(Limit::gcra(10, SECOND));
        let upstream = Upstream::refusing(&refusals);
        let mut services = vec![obedient(&limiter, &upstream); 3];
        for service in &mut services {
            ServiceExt::<()>::ready(service).await.unwrap();
        }
        store.fail_next(6);
        join_all(services.iter_mut().map(|service| service.call(()))).await;
        // Each has asked twice before it was sent.
        let before = 6 + 3;
        sleep(ms(6_500)).await;
        assert_eq!(
            store.asked()[before..],
            after([1, 2, 3, 4].map(|secs| secs * 1_000))
        );
        send(&mut services[0]).await;
        assert_eq!(upstream.arrived()[3], 12 * SECOND);
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_reports_a_failed_hold_and_does_not_wait_for_it() {
    let [_, (store, limiter)] = near_and_far();
    let upstream = Upstream::refusing(&[(0, 10)]);
    send_while_failing(&mut obedient(&limiter, &upstream), &store, 2).await;
    let start = Instant::now();
    assert!(!limiter.flush().await);
    assert!(limiter.flush().await);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_failed_hold_is_dropped_with_a_policy_that_turns_off() {
    let store = Watched::new();
    let limiter = store.limiter(Limit::gcra(10, SECOND));
    let upstream = Upstream::refusing(&[(0, 10)]);
    send_while_failing(&mut obedient(&limiter, &upstream), &store, 1).await;
    limiter.set_mode("partner", Mode::Off).unwrap();
    sleep(MINUTE).await;
    assert_eq!(store.asked().len(), 3);
}

/// As reqwest has one.
struct Foreign {
    status: StatusCode,
    headers: HeaderMap,
    extensions: Extensions,
}

#[tokio::test(start_paused = true)]
async fn responses_of_any_type_and_dialects_of_any_kind_can_be_read() {
    let start = Instant::now();
    let partner = tower::service_fn(async |_: ()| {
        let mut headers = HeaderMap::new();
        headers.insert("x-backoff-ms", 700.into());
        Ok::<_, Infallible>(Foreign {
            status: StatusCode::IM_A_TEAPOT,
            headers,
            extensions: Extensions::new(),
        })
    });
    let feedback = Feedback::by(|response| {
        let told = response.headers.get("x-backoff-ms")?.to_str().ok()?;
        (response.status == 418).then_some(ms(told.parse().ok()?))
    });
    let feedback = feedback.head(|response: &Foreign| {
        ResponseHead::from_parts(response.status, &response.headers, &response.extensions)
    });
    let limiter = Watched::new().limiter(Limit::gcra(10, SECOND));
    let mut service = layer(&limiter).feedback(feedback).layer(partner);
    for nth in 0..3 {
        service.ready().await.unwrap().call(()).await.unwrap();
        assert_eq!(start.elapsed(), ms(700 * nth));
    }
}
