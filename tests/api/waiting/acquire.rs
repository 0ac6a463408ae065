//! `acquire` and `try_acquire`.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::poll;
use http::{Request, Response};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, service_fn};
use tower_throttle::store::Action;
use tower_throttle::store::{Answer, Check, Store};
use tower_throttle::{
    CheckError, DAY, DecisionEvent, FailureMode, HOUR, Key, Limit, Limiter, MINUTE, MemoryStore,
    Mode, Outcome, Policy, RateLimitLayer, RedisStore, Rules, SECOND, StoreError, StoreErrorKind,
    per_hour, per_second,
};

use support::asked::decision;
use support::redis::Server;
use support::virtual_time::{self, ms, timed};

/// One a second, and none stored.
async fn one_a_second() -> Limiter {
    let limiter = idle_one_a_second();
    assert!(limiter.check("api", "us").await.unwrap().is_allowed());
    limiter
}

/// One a second, and one stored.
fn idle_one_a_second() -> Limiter {
    limiter(Limit::token_bucket(1, per_second(1)))
}

fn limiter(limit: Limit) -> Limiter {
    Limiter::new(virtual_time::store(), [Policy::new("api", limit)]).unwrap()
}

/// How long it takes to acquire this many.
async fn waited(limiter: &Limiter, cost: u64) -> Duration {
    let (acquired, waited) = timed(limiter.acquire("api", "us", cost)).await;
    assert!(acquired.is_ok());
    let told = decision(&acquired).delay();
    assert_eq!(told, waited, "what was told is what was waited");
    waited
}

#[tokio::test(start_paused = true)]
async fn costs_of_1_1_2_4_8_1_at_1_a_second_wait_0_1_1_2_4_8_seconds() {
    let limiter = one_a_second().await;
    for (cost, seconds) in [(1, 0), (1, 1), (2, 1), (4, 2), (8, 4), (1, 8)] {
        assert_eq!(waited(&limiter, cost).await, seconds * SECOND, "{cost}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_cost_of_zero_waits_for_nobody() {
    for limit in [
        Limit::gcra(1, SECOND).burst(1),
        Limit::leaky_bucket(9, per_second(1)),
    ] {
        let limiter = limiter(limit);
        let all = [1, 1, 3].map(|cost| limiter.acquire("api", "us", cost));
        for mut acquired in all.map(Box::pin) {
            let _ = poll!(&mut acquired);
            assert_eq!(waited(&limiter, 0).await, ms(0), "{limit:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stored_permits_are_used_before_callers_wait() {
    let limiter = limiter(Limit::gcra(10, SECOND).burst(5));
    for milliseconds in [0, 0, 0, 0, 0, 0, 100, 100] {
        assert_eq!(waited(&limiter, 1).await, ms(milliseconds));
    }
}

#[tokio::test(start_paused = true)]
async fn one_passes_a_used_up_limit_and_those_behind_it_wait() {
    let half_an_hour = HOUR / 2;
    for limit in [
        Limit::gcra(2, HOUR),
        Limit::token_bucket(2, per_hour(2)),
        Limit::leaky_bucket(2, per_hour(2)).without_delay(),
    ] {
        for cost in [1, 1_000] {
            let limiter = limiter(limit);
            let at_once = async |cost| limiter.try_acquire("api", "us", cost, Duration::ZERO).await;
            for cost in [1, 1, cost] {
                assert!(at_once(cost).await.is_ok(), "{limit:?}");
            }
            let behind = at_once(1).await;
            assert!(behind.is_err());
            let wait = decision(&behind).delay();
            assert_eq!(wait, cost as u32 * half_an_hour, "{limit:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_lets_them_go_on_one_after_the_other() {
    for limit in [
        Limit::leaky_bucket(5, per_second(10)),
        // Acquiring waits for room as well.
        Limit::leaky_bucket(1, per_second(10)),
    ] {
        let limiter = limiter(limit);
        for milliseconds in [0, 100, 100, 100] {
            assert_eq!(waited(&limiter, 1).await, ms(milliseconds));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn callers_go_on_in_the_order_in_which_they_came() {
    let limiter = one_a_second().await;
    let start = Instant::now();
    let callers = [3, 1, 2, 1].map(|cost| {
        let limiter = &limiter;
        async move {
            let _ = limiter.acquire("api", "us", cost).await.unwrap();
            start.elapsed()
        }
    });
    let went_on = join_all(callers).await;
    assert_eq!(went_on, [0, 3, 4, 6].map(Duration::from_secs));
}

#[tokio::test(start_paused = true)]
async fn a_too_long_wait_is_denied_at_once_and_takes_nothing() {
    let limiter = one_a_second().await;
    waited(&limiter, 3).await;
    let asked = timed(limiter.try_acquire("api", "us", 1, ms(2_999))).await;
    let (denied, waited_for) = (decision(&asked.0), asked.1);
    assert_eq!(denied.outcome(), Outcome::Denied);
    assert_eq!(denied.delay(), 3 * SECOND);
    assert_eq!(denied.retry_after(), Some(ms(1)));
    assert_eq!(waited_for, Duration::ZERO);

    let asked = timed(limiter.try_acquire("api", "us", 1, ms(3_000))).await;
    assert!(asked.0.is_ok());
    assert_eq!(asked.1, 3 * SECOND, "the denial has taken nothing");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_zero_takes_what_is_there() {
    let limiter = idle_one_a_second();
    let mut allowed = 0;
    while limiter
        .try_acquire("api", "us", 1, Duration::ZERO)
        .await
        .is_ok()
    {
        allowed += 1;
    }
    // The one that is stored, and one that the next caller waits for.
    assert_eq!(allowed, 2);
}

#[tokio::test(start_paused = true)]
async fn when_limiting_is_turned_off_nobody_waits_any_more() {
    let limiter = one_a_second().await;
    let turned_off = async {
        sleep(ms(1_500)).await;
        limiter.turn_off();
    };
    let acquire = || timed(limiter.acquire("api", "us", 60));
    let (first, second, ()) = tokio::join!(acquire(), acquire(), turned_off);
    assert_eq!((first.1, second.1), (ms(0), ms(1_500)));
}

#[tokio::test(start_paused = true)]
async fn a_wait_of_more_than_ten_years_is_denied() {
    let limiter = limiter(Limit::gcra(1, 366 * DAY));
    waited(&limiter, 11).await;
    let nine = limiter.try_acquire("api", "us", 1, Duration::ZERO).await;
    assert_eq!(decision(&nine).delay(), 10 * 366 * DAY);
    let charged = limiter.charge("api", "us", 1).await.unwrap();
    assert!(charged.is_allowed());
    let denied = decision(&limiter.acquire("api", "us", 1).await);
    assert_eq!(denied.outcome(), Outcome::Denied);
    assert_eq!(denied.delay(), 11 * 366 * DAY);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_goes_away_gives_the_permits_back() {
    let limiter = one_a_second().await;
    waited(&limiter, 3).await;
    let gone = timeout(SECOND, limiter.acquire("api", "us", 50)).await;
    assert!(gone.is_err());
    // Two of the three seconds are left.
    assert_eq!(waited(&limiter, 1).await, 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn permits_stay_used_when_others_have_queued_behind() {
    let limiter = one_a_second().await;
    waited(&limiter, 3).await;
    let leaving = timeout(SECOND, limiter.acquire("api", "us", 4));
    let (gone, behind) = tokio::join!(leaving, waited(&limiter, 1));
    assert!(gone.is_err());
    assert_eq!(behind, 7 * SECOND, "as it was told when it came");
    assert_eq!(waited(&limiter, 1).await, SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_last_in_the_queue_gives_back_without_effect_on_others() {
    let limiter = one_a_second().await;
    waited(&limiter, 3).await;
    let leaving = timeout(SECOND, limiter.acquire("api", "us", 4));
    let (before, gone) = tokio::join!(waited(&limiter, 2), leaving);
    assert_eq!(before, 3 * SECOND);
    assert!(gone.is_err());
    assert_eq!(waited(&limiter, 1).await, 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn in_shadow_requests_that_would_wait_pass_uncounted() {
    let limiter = idle_one_a_second();
    limiter.set_mode("api", Mode::Shadow).unwrap();
    for expected in [(true, 0), (true, 0), (false, 1), (false, 1), (false, 1)] {
        let (acquired, waited) = timed(limiter.acquire("api", "us", 1)).await;
        assert!(acquired.is_ok());
        let acquired = decision(&acquired);
        assert_eq!((acquired.delay(), waited), (Duration::ZERO, Duration::ZERO));
        let is_counted = acquired.outcome() == Outcome::Allowed;
        let wait = acquired.retry_after().unwrap_or_default();
        assert_eq!((is_counted, wait.as_secs()), expected);
    }
    limiter.set_mode("api", Mode::Enforce).unwrap();
    assert_eq!(waited(&limiter, 1).await, SECOND);
}

#[tokio::test]
async fn a_limit_nobody_can_wait_for_is_refused_with_alternatives() {
    let limits = [
        Limit::fixed_window(1, SECOND),
        Limit::sliding_log(1, SECOND),
        Limit::sliding_window(1, SECOND),
        Limit::sliding_counter(1, SECOND),
        Limit::concurrency(1),
    ];
    for limit in limits {
        let limiter = Limiter::new(MemoryStore::new(), [Policy::new("api", limit)]).unwrap();
        let refused = limiter.acquire("api", "us", 1).await.unwrap_err();
        let expected = CheckError::CannotWait { name: "api".into() };
        assert_eq!(refused.error(), Some(&expected));
        assert_eq!(
            refused.to_string(),
            "policy \"api\": waiting needs a limit of gcra, token_bucket or leaky_bucket"
        );
        assert_eq!(limiter.peek("api", "us").await.unwrap().remaining(), 1);
    }
}

#[tokio::test]
async fn a_policy_that_does_not_exist_is_refused_by_its_name() {
    let refused = idle_one_a_second().acquire("apj", "us", 1).await;
    let refused = refused.unwrap_err();
    let expected = CheckError::UnknownPolicy { name: "apj".into() };
    assert_eq!(refused.error(), Some(&expected));
}

/// Redis, with a signal for each answer.
struct Recorded(RedisStore, Answers);

#[derive(Clone, Default)]
struct Answers(Arc<Notify>);

impl Answers {
    /// Waits until one more has come.
    async fn next(&self) {
        let answered = timeout(MINUTE, self.0.notified()).await;
        answered.expect("a question that Redis answers");
    }
}

impl Store for Recorded {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let Answers(told) = self.1.clone();
        match self.0.ask(checks) {
            Answer::Pending(answer) => Answer::Pending(Box::pin(async move {
                let answer = answer.await;
                told.notify_one();
                answer
            })),
            ready => ready,
        }
    }
}

/// One an hour over this server, of which none is stored, and its answers.
async fn one_an_hour(server: &Server) -> (Limiter, Answers) {
    let answers = Answers::default();
    let policy = Policy::new("api", Limit::gcra(1, HOUR)).on_store_failure(FailureMode::Deny);
    let limiter = Limiter::builder(Recorded(server.store().await, answers.clone()), [policy])
        .timeout(60 * SECOND)
        .build()
        .unwrap();
    for _ in 0..2 {
        let first = limiter.acquire("api", "us", 1).await;
        assert_eq!(decision(&first).delay(), Duration::ZERO);
        answers.next().await;
    }
    (limiter, answers)
}

/// How long the next one would wait, in whole hours.
async fn hours(limiter: &Limiter) -> u64 {
    let asked = limiter.try_acquire("api", "us", 1, Duration::ZERO).await;
    decision(&asked).delay().as_secs().div_ceil(3_600)
}

#[tokio::test]
async fn a_caller_who_goes_away_gives_the_permits_back_to_redis() {
    let server = Server::start();
    let (limiter, answers) = one_an_hour(&server).await;
    let mut waiting = Box::pin(limiter.acquire("api", "us", 5));
    tokio::select! {
        _ = &mut waiting => panic!("it has an hour to wait"),
        () = answers.next() => {}
    }
    assert_eq!(hours(&limiter).await, 6);
    answers.next().await;
    drop(waiting);
    answers.next().await;
    assert_eq!(hours(&limiter).await, 1);
}

#[tokio::test]
async fn a_caller_who_leaves_before_the_answer_gives_back_its_permits() {
    let server = Server::start();
    let (limiter, answers) = one_an_hour(&server).await;
    let mut asking = Box::pin(limiter.acquire("api", "us", 5));
    assert!(poll!(&mut asking).is_pending());
    drop(asking);
    // The answer to it, and the answer to giving it back.
    answers.next().await;
    answers.next().await;
    assert_eq!(hours(&limiter).await, 1);
}

/// The same in the layer, where a request may be held up.
#[tokio::test]
async fn a_request_that_leaves_before_the_answer_gives_back() {
    let server = Server::start();
    let answers = Answers::default();
    let store = Recorded(server.store().await, answers.clone());
    let policy = Policy::new("api", Limit::gcra(1, HOUR)).max_wait(24 * HOUR);
    let limiter = Limiter::builder(store, [policy.on_store_failure(FailureMode::Deny)])
        .timeout(60 * SECOND)
        .build()
        .unwrap();
    let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
    let mut service = RateLimitLayer::new(limiter.clone())
        .wrap_body()
        .layer(inner);
    let first = service.call(Request::new(())).await.unwrap();
    assert_eq!(first.status(), 200);
    answers.next().await;

    let mut asking = Box::pin(service.call(Request::new(())));
    assert!(poll!(&mut asking).is_pending());
    drop(asking);
    // The answer to it, and the answer to giving it back.
    answers.next().await;
    answers.next().await;
    let next = limiter.try_acquire("api", Key::everybody(), 1, Duration::ZERO);
    assert!(next.await.is_ok(), "nobody is before it");
}

/// Fails this many times.
struct Failing {
    store: MemoryStore,
    failures: AtomicU32,
}

impl Store for Failing {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        let one_less = |left: u32| left.checked_sub(1);
        let relaxed = Ordering::Relaxed;
        match self.failures.fetch_update(relaxed, relaxed, one_less) {
            Ok(_) => Answer::Ready(Err(StoreError::new(StoreErrorKind::Unreachable))),
            Err(_) => self.store.ask(checks),
        }
    }
}

/// One a minute: in the store, and in the share that is used while it has failed twice.
fn one_a_minute_after_two_failures() -> Limiter {
    let failing = Failing {
        store: virtual_time::store(),
        failures: 2.into(),
    };
    let local = FailureMode::Local { share: 1.0 };
    let policy = Policy::new("api", Limit::gcra(1, MINUTE)).on_store_failure(local);
    Limiter::new(failing, [policy]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_waiter_for_a_local_share_asks_anew_when_the_store_answers() {
    let limiter = one_a_minute_after_two_failures();
    let mut told = Vec::new();
    // Of two permits, the next one waits for the one that is borrowed.
    for _ in 0..3 {
        let (acquired, waited) = timed(limiter.acquire("api", "us", 2)).await;
        assert!(acquired.is_ok());
        told.push((decision(&acquired).is_local(), waited));
    }
    // The store has given none yet when it answers.
    assert_eq!(told, [(true, ms(0)), (false, SECOND), (false, MINUTE)]);
}

/// Has no room for new keys, and answers looks.
struct Full;

impl Store for Full {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match checks.iter().all(|check| check.action == Action::look()) {
            true => virtual_time::store().ask(checks),
            false => Answer::Ready(Err(StoreError::new(StoreErrorKind::Full))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn asking_anew_takes_nothing_of_the_share() {
    let local = FailureMode::Local { share: 1.0 };
    let policy = Policy::new("api", Limit::gcra(1, MINUTE)).on_store_failure(local);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = Arc::clone(&told);
    let on_decision = move |event: &DecisionEvent<'_>| {
        tell.lock().unwrap().push(event.decision.is_local());
    };
    let builder = Limiter::builder(Full, [policy]);
    let limiter = builder.on_decision(on_decision).build().unwrap();
    // The third one waits for a minute.
    for _ in 0..3 {
        assert!(limiter.acquire("api", "us", 1).await.is_ok());
    }
    // Questions that the store has not answered meanwhile are not observed.
    assert_eq!(*told.lock().unwrap(), [true; 3]);
}

#[tokio::test(start_paused = true)]
async fn asking_anew_is_by_the_policy_in_force() {
    for (name, limit, in_force) in [
        ("api", Limit::gcra(7, HOUR), 7),
        // Nobody can wait for it, but it decides.
        ("api", Limit::fixed_window(5, HOUR), 5),
        // The policy that was asked for is gone: it is decided by that to the end.
        ("other", Limit::gcra(7, HOUR), 1),
    ] {
        let limiter = one_a_minute_after_two_failures();
        let _ = limiter.acquire("api", "us", 2).await.unwrap();
        let replaced = async {
            sleep(ms(500)).await;
            let rules = Rules::new([Policy::new(name, limit)]);
            limiter.replace(rules).unwrap();
        };
        let (acquired, ()) = tokio::join!(limiter.acquire("api", "us", 1), replaced);
        assert!(acquired.is_ok());
        let acquired = decision(&acquired);
        assert!(!acquired.is_local());
        assert_eq!(acquired.limit(), in_force, "{name}: {limit:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn asking_anew_takes_no_longer_than_the_timeout_in_all() {
    for (timeout, is_allowed) in [(ms(60_500), true), (ms(60_499), false)] {
        let limiter = one_a_minute_after_two_failures();
        let _ = limiter.acquire("api", "us", 2).await.unwrap();
        let acquire = timed(limiter.try_acquire("api", "us", 2, timeout));
        let others = async {
            sleep(ms(500)).await;
            limiter.acquire("api", "us", 2).await
        };
        let ((acquired, waited), other) = tokio::join!(acquire, others);
        assert!(other.is_ok());
        assert_eq!(acquired.is_ok(), is_allowed, "{timeout:?}");
        // The other one has taken the store's permit half a second before.
        let expected = if is_allowed { ms(60_500) } else { SECOND };
        assert_eq!(waited, expected, "{timeout:?}");
    }
}
