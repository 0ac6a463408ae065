//! `ThrottleLayer`: a service that is ready when the whole fleet may send the next request.

#[path = "../support/mod.rs"]
mod support;

mod bans;
mod giving_up;
mod outage;
mod replaced;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{Ready, join_all, ready};
use futures_util::poll;
use support::redis::Server;
use support::virtual_time::{self, ms};
use tokio::time::{Instant, timeout};
use tower::limit::ConcurrencyLimit;
use tower::load_shed::LoadShed;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_throttle::{
    Answer, Check, CheckError, FailureMode, HOUR, Key, Limit, Limiter, MINUTE, MemoryStore, Mode,
    Penalty, Policy, SECOND, Store, StoreError, StoreErrorKind, Throttle, ThrottleLayer,
    per_second,
};

/// Counts on tokio's clock, tells when it was asked, and fails as often as it was told to.
#[derive(Clone)]
struct Watched(Arc<Shared>);

struct Shared {
    store: MemoryStore,
    start: Instant,
    asked: Mutex<Vec<Duration>>,
    failures: AtomicU32,
}

impl Watched {
    fn new() -> Self {
        Self::failing(0)
    }

    fn failing(failures: u32) -> Self {
        Self(Arc::new(Shared {
            store: virtual_time::store(),
            start: Instant::now(),
            asked: Mutex::default(),
            failures: failures.into(),
        }))
    }

    /// When it was asked.
    fn asked(&self) -> Vec<Duration> {
        self.0.asked.lock().unwrap().clone()
    }

    fn limiter(&self, limit: Limit) -> Limiter {
        self.limiter_of(Policy::new("partner", limit))
    }

    fn limiter_of(&self, policy: Policy) -> Limiter {
        Limiter::new(self.clone(), [policy]).unwrap()
    }
}

impl Store for Watched {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        self.0.asked.lock().unwrap().push(self.0.start.elapsed());
        let down = |left: u32| left.checked_sub(1);
        let failures = &self.0.failures;
        match failures.fetch_update(Ordering::SeqCst, Ordering::SeqCst, down) {
            Ok(_) => Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable))),
            Err(_) => self.0.store.ask(checks),
        }
    }
}

/// Answers any request with when it was called.
#[derive(Clone, Debug)]
struct Partner(Instant);

impl Partner {
    fn new() -> Self {
        Self(Instant::now())
    }
}

impl<R> Service<R> for Partner {
    type Response = Duration;
    type Error = Infallible;
    type Future = Ready<Result<Duration, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        ready(Ok(self.0.elapsed()))
    }
}

fn layer(limiter: &Limiter) -> ThrottleLayer {
    ThrottleLayer::new(limiter.clone(), "partner").unwrap()
}

/// A service under this limit and the store behind it.
fn throttled(limit: Limit) -> (Throttle<Partner>, Watched) {
    let store = Watched::new();
    (layer(&store.limiter(limit)).layer(Partner::new()), store)
}

/// When a request is sent.
async fn send(service: &mut Throttle<Partner>) -> Duration {
    ServiceExt::<()>::ready(service).await.unwrap();
    service.call(()).await.unwrap()
}

/// When so many requests are sent, one after the other.
async fn send_all(mut service: Throttle<Partner>, requests: usize) -> Vec<Duration> {
    let mut sent = Vec::new();
    for _ in 0..requests {
        sent.push(send(&mut service).await);
    }
    sent
}

/// Asks once whether it is ready.
fn is_ready(service: &mut Throttle<Partner>) -> bool {
    let cx = &mut Context::from_waker(Waker::noop());
    Service::<()>::poll_ready(service, cx).is_ready()
}

fn after(milliseconds: impl IntoIterator<Item = u64>) -> Vec<Duration> {
    milliseconds.into_iter().map(ms).collect()
}

#[tokio::test(start_paused = true)]
async fn it_is_ready_as_often_as_the_limit_allows() {
    for limit in [
        Limit::gcra(10, SECOND).burst(3),
        Limit::token_bucket(3, per_second(10)),
        Limit::leaky_bucket(3, per_second(10)).without_delay(),
    ] {
        let (service, _) = throttled(limit);
        let sent = send_all(service, 6).await;
        assert_eq!(sent, after([0, 0, 0, 100, 200, 300]), "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn under_a_queue_it_is_ready_at_an_even_pace() {
    let (service, store) = throttled(Limit::leaky_bucket(1, per_second(10)));
    let sent = send_all(service, 4).await;
    assert_eq!(sent, after([0, 100, 200, 300]));
    assert_eq!(store.asked().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn clones_and_services_of_one_layer_share_the_limit() {
    let layer = layer(&Watched::new().limiter(Limit::gcra(10, SECOND).burst(1)));
    let first = layer.layer(Partner::new());
    let clone = first.clone();
    let second = layer.clone().layer(Partner::new());
    assert_eq!(
        sent_by([first, clone, second]).await,
        after((0..12).map(|n| n * 100))
    );
}

#[tokio::test(start_paused = true)]
async fn limiters_over_one_store_share_the_limit() {
    let store = Watched::new();
    let limit = Limit::gcra(10, SECOND).burst(2);
    let fleet = (0..3).map(|_| layer(&store.limiter(limit)).layer(Partner::new()));
    let expected = [0].into_iter().chain((0..11).map(|n| n * 100));
    assert_eq!(sent_by(fleet).await, after(expected));
}

/// When the requests of a fleet, four by each service, are sent.
async fn sent_by(fleet: impl IntoIterator<Item = Throttle<Partner>>) -> Vec<Duration> {
    let fleet = fleet.into_iter().map(|service| send_all(service, 4));
    let mut sent = join_all(fleet).await.concat();
    sent.sort_unstable();
    sent
}

#[tokio::test(start_paused = true)]
async fn senders_go_on_in_the_order_in_which_they_came() {
    let (mut first, _) = throttled(Limit::gcra(1, SECOND));
    let mut others = [first.clone(), first.clone(), first.clone()];
    assert_eq!(send(&mut first).await, ms(0));
    let sent = join_all(others.iter_mut().map(send)).await;
    assert_eq!(sent, after([1_000, 2_000, 3_000]));
}

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
async fn each_grant_takes_one_trip_however_long_it_is_waited_for() {
    let (service, store) = throttled(Limit::gcra(1, HOUR).burst(2));
    let sent = join_all([send_all(service.clone(), 5), send_all(service, 5)]).await;
    assert_eq!(sent.concat().into_iter().max(), Some(8 * HOUR));
    assert_eq!(store.asked().len(), 10);
}

#[tokio::test]
async fn a_grant_is_one_script_call_in_redis_or_shares_one() {
    let server = Server::start();
    let policy = Policy::new("partner", Limit::gcra(1_000, SECOND).burst(1));
    let limiter = Limiter::builder(server.store().await).policy(policy);
    let limiter = limiter.timeout(60 * SECOND).build().unwrap();
    let service = layer(&limiter).layer(Partner::new());
    let asked = server.calls("evalsha");
    let sent = join_all((0..4).map(|_| send_all(service.clone(), 10))).await;
    assert_eq!(sent.concat().len(), 40);
    // Each of them waits for one grant after the other.
    let calls = server.calls("evalsha") - asked;
    assert!((10..=40).contains(&calls), "{calls}");
}

#[tokio::test(start_paused = true)]
async fn being_asked_again_whether_it_is_ready_takes_nothing() {
    let (mut service, store) = throttled(Limit::gcra(1, SECOND).burst(2));
    for _ in 0..5 {
        assert!(is_ready(&mut service));
    }
    assert_eq!(store.asked().len(), 1);
    assert_eq!(send_all(service, 3).await, after([0, 0, 1_000]));
}

#[tokio::test(start_paused = true)]
async fn a_clone_has_no_permit_of_its_own() {
    let (mut service, _) = throttled(Limit::gcra(1, SECOND));
    assert!(is_ready(&mut service));
    let mut clone = service.clone();
    assert!(!is_ready(&mut clone));
    assert_eq!(send(&mut service).await, ms(0));
    assert_eq!(send(&mut clone).await, ms(1_000));
}

#[tokio::test(start_paused = true)]
#[should_panic = "poll_ready must be called first"]
async fn a_call_without_a_permit_panics_and_sends_nothing() {
    let limiter = Watched::new().limiter(Limit::gcra(1, SECOND));
    let inner = service_fn(async |()| -> Result<(), Infallible> { unreachable!("it was sent") });
    let _response = layer(&limiter).layer(inner).call(());
}

#[tokio::test(start_paused = true)]
#[should_panic = "poll_ready must be called first"]
async fn a_permit_is_good_for_one_call() {
    let (mut service, _) = throttled(Limit::gcra(1, SECOND).burst(2));
    assert_eq!(send(&mut service).await, ms(0));
    let _response = service.call(());
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_dropped_before_the_call_gives_its_permit_back() {
    let (mut service, _) = throttled(Limit::gcra(1, HOUR));
    let mut clone = service.clone();
    assert!(is_ready(&mut clone));
    drop(clone);
    assert_eq!(send(&mut service).await, ms(0));
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_dropped_while_it_waits_gives_its_permit_back() {
    let (mut service, _) = throttled(Limit::gcra(1, SECOND));
    assert_eq!(send(&mut service).await, ms(0));
    let mut clone = service.clone();
    assert!(!is_ready(&mut clone));
    drop(clone);
    assert_eq!(send(&mut service).await, ms(1_000));
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_others_have_queued_behind_is_not_given_to_another_beside_them() {
    let (mut service, _) = throttled(Limit::gcra(1, SECOND));
    let (mut gone, mut behind) = (service.clone(), service.clone());
    assert!(is_ready(&mut gone));
    assert!(!is_ready(&mut behind));
    drop(gone);
    let both = tokio::join!(send(&mut behind), send(&mut service));
    assert_eq!(both, (ms(1_000), ms(2_000)), "never two at once");
}

#[tokio::test(start_paused = true)]
async fn a_sender_who_gives_up_leaves_the_wait_to_the_next_one() {
    let (mut service, store) = throttled(Limit::gcra(1, SECOND));
    assert_eq!(send(&mut service).await, ms(0));
    assert!(timeout(ms(400), send(&mut service)).await.is_err());
    assert_eq!(send(&mut service).await, ms(1_000));
    assert_eq!(store.asked().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn costs_are_those_of_the_policy_unless_the_layer_says_otherwise() {
    let policy = Policy::new("partner", Limit::gcra(10, SECOND)).cost(5);
    let limiter = Watched::new().limiter_of(policy);
    for (layer, expected) in [
        (layer(&limiter), [0, 0, 500]),
        (layer(&limiter).cost(10), [0, 1_000, 2_000]),
        // More than there ever is at once: the next one waits for the rest.
        (layer(&limiter).cost(20), [0, 1_000, 3_000]),
        // Nothing is sent for nothing.
        (layer(&limiter).cost(0), [0, 0, 0]),
    ] {
        let service = layer.layer(Partner::new());
        assert_eq!(send_all(service, 3).await, after(expected));
        let _ = limiter.reset("partner", Key::everybody()).await.unwrap();
    }
    let mut for_nothing = layer(&limiter).cost(0).layer(Partner::new());
    send(&mut for_nothing).await;
    let left = limiter.peek("partner", Key::everybody()).await.unwrap();
    assert_eq!(left.remaining(), 9);
}

/// Nobody slows down for it meanwhile: were all counted that are sent, the next one would wait for
/// them for hours.
#[tokio::test(start_paused = true)]
async fn in_shadow_nobody_waits_nor_do_those_who_come_when_it_is_enforced_for_what_was_sent() {
    for (limit, cost, wait) in [
        (Limit::gcra(1, SECOND).burst(3), 1, 1_000),
        // More than there ever is at once.
        (Limit::gcra(1, SECOND).burst(3), 5, 2_000),
        (Limit::leaky_bucket(3, per_second(1)), 1, 1_000),
    ] {
        let penalty = Penalty::after(1, MINUTE, HOUR);
        let policy = Policy::new("partner", limit).penalty(penalty);
        let limiter = Watched::new().limiter_of(policy.mode(Mode::Shadow));
        let mut service = layer(&limiter).cost(cost).layer(Partner::new());
        assert_eq!(send_all(service.clone(), 10_000).await, [ms(0); 10_000]);
        limiter.set_mode("partner", Mode::Enforce).unwrap();
        assert_eq!(send(&mut service).await, ms(wait), "{limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn services_of_different_keys_do_not_wait_for_each_other() {
    let limiter = Watched::new().limiter(Limit::gcra(1, SECOND));
    let of = |account: &str| layer(&limiter).key(account).layer(Partner::new());
    let sent = join_all([send_all(of("blue"), 2), send_all(of("red"), 2)]).await;
    assert_eq!(sent, [after([0, 1_000]), after([0, 1_000])]);
    assert!(is_allowed(&limiter).await);
}

/// By the other way to ask.
async fn is_allowed(limiter: &Limiter) -> bool {
    let decision = limiter.check("partner", Key::everybody()).await;
    decision.unwrap().is_allowed()
}

#[tokio::test(start_paused = true)]
async fn other_ways_to_ask_the_limiter_count_against_the_same_limit() {
    let store = Watched::new();
    let limiter = store.limiter(Limit::gcra(1, SECOND).burst(2));
    assert!(is_allowed(&limiter).await);
    let service = layer(&limiter).layer(Partner::new());
    assert_eq!(send_all(service, 2).await, after([0, 1_000]));
    assert!(!is_allowed(&limiter).await);
}

#[tokio::test(start_paused = true)]
async fn over_a_failing_store_it_is_ready_at_once_unless_the_policy_says_otherwise() {
    let store = Watched::failing(5);
    let service = layer(&store.limiter(Limit::gcra(1, SECOND))).layer(Partner::new());
    // Five that nobody counts, and one that is counted.
    assert_eq!(send_all(service, 7).await, after([0, 0, 0, 0, 0, 0, 1_000]));
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_fails_closed_is_asked_again_every_second_until_it_counts() {
    let store = Watched::failing(3);
    let policy = Policy::new("partner", Limit::gcra(1, MINUTE));
    let limiter = store.limiter_of(policy.on_store_failure(FailureMode::Deny));
    let mut service = layer(&limiter).layer(Partner::new());
    assert_eq!(send(&mut service).await, ms(3_000));
    assert_eq!(store.asked(), after([0, 1_000, 2_000, 3_000]));
}

/// Ready when it is told to be, and fails when it is told to.
#[derive(Clone)]
struct Moody(Arc<Mutex<Poll<Result<(), &'static str>>>>);

impl Service<()> for Moody {
    type Response = ();
    type Error = &'static str;
    type Future = Ready<Result<(), &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        *self.0.lock().unwrap()
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Err("ill"))
    }
}

#[tokio::test(start_paused = true)]
async fn no_permit_is_taken_for_an_inner_service_that_is_not_ready() {
    let store = Watched::new();
    let mood = Arc::new(Mutex::new(Poll::Pending));
    let mut service = layer(&store.limiter(Limit::gcra(1, SECOND))).layer(Moody(mood.clone()));
    assert!(poll!(service.ready()).is_pending());
    assert_eq!(store.asked(), []);
    *mood.lock().unwrap() = Poll::Ready(Ok(()));
    assert!(poll!(service.ready()).is_ready());
    assert_eq!(store.asked().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_inner_service_pass_unchanged() {
    let store = Watched::new();
    let mood = Arc::new(Mutex::new(Poll::Ready(Err("not today"))));
    let mut service = layer(&store.limiter(Limit::gcra(1, SECOND))).layer(Moody(mood.clone()));
    assert_eq!(service.ready().await.err(), Some("not today"));
    *mood.lock().unwrap() = Poll::Ready(Ok(()));
    assert_eq!(service.ready().await.unwrap().call(()).await, Err("ill"));
}

#[tokio::test(start_paused = true)]
async fn an_inner_service_that_breaks_down_meanwhile_is_not_sent_anything() {
    let store = Watched::new();
    let limiter = store.limiter(Limit::gcra(1, SECOND));
    let mood = Arc::new(Mutex::new(Poll::Ready(Ok(()))));
    let mut service = layer(&limiter).layer(Moody(mood.clone()));
    let _ = limiter.check("partner", Key::everybody()).await.unwrap();
    assert!(poll!(service.ready()).is_pending());
    *mood.lock().unwrap() = Poll::Ready(Err("gone"));
    assert_eq!(service.ready().await.err(), Some("gone"));
    drop(service);
    let left = limiter.peek("partner", Key::everybody()).await.unwrap();
    assert_eq!(left.reset_after(), SECOND, "its permit is given back");
}

/// Whether somebody gets through without the limit while three wait for their permits.
async fn others_get_through<S>(throttled: S, inner: ConcurrencyLimit<Partner>) -> bool
where
    S: Service<(), Response = Duration> + Clone,
{
    let mut waiting = [(); 3].map(|()| Box::pin(throttled.clone().ready_oneshot()));
    for each in &mut waiting {
        assert!(poll!(each).is_pending());
    }
    poll!(pin!(ServiceExt::<()>::ready_oneshot(inner))).is_ready()
}

#[tokio::test(start_paused = true)]
async fn who_waits_keeps_a_place_of_the_inner_service_unless_a_limit_outside_is_full() {
    let inner = ConcurrencyLimit::new(Partner::new(), 3);
    let limiter = Watched::new().limiter(Limit::gcra(1, HOUR));
    let throttled = layer(&limiter).layer(inner.clone());
    throttled.clone().oneshot(()).await.unwrap();
    assert!(!others_get_through(throttled.clone(), inner.clone()).await);
    let bounded = ConcurrencyLimit::new(throttled, 2);
    assert!(others_get_through(bounded, inner).await);
}

/// It judges by the first look, and a store that takes a trip has not answered by then.
#[tokio::test]
async fn a_load_shed_directly_outside_sheds_all_over_redis_however_idle_the_limit_is() {
    let server = Server::start();
    let in_redis =
        Limiter::builder(server.store().await).policy(Policy::new("partner", Limit::gcra(1, HOUR)));
    let in_redis = in_redis.timeout(MINUTE).build().unwrap();
    let in_memory = Watched::new().limiter(Limit::gcra(1, HOUR));
    for (limiter, expected) in [(in_redis, [false; 3]), (in_memory, [true, false, false])] {
        let service = LoadShed::new(layer(&limiter).layer(Partner::new()));
        let mut sent = Vec::new();
        for _ in 0..expected.len() {
            sent.push(service.clone().oneshot(()).await.is_ok());
        }
        assert_eq!(sent, expected);
    }
}

#[tokio::test]
async fn what_cannot_be_throttled_is_refused_at_once() {
    let policies = [Policy::new("window", Limit::fixed_window(1, SECOND))];
    let limiter = Limiter::new(MemoryStore::new(), policies).unwrap();
    let refused = |policy: &str| ThrottleLayer::new(limiter.clone(), policy).unwrap_err();
    let name = "window".to_owned();
    assert_eq!(refused("window"), CheckError::CannotWait { name });
    let name = "windov".to_owned();
    assert_eq!(refused("windov"), CheckError::UnknownPolicy { name });
}

/// Layer and service can be named, with no parameter for key, store or policy.
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
}
