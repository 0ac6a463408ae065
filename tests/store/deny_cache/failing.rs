//! Remembered denials come before the failure modes.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Answer, Check, DenyCache, PolicyId, Store};
use tower_throttle::{
    BreakerState, DAY, FailureMode, Header, Key, Limit, Limiter, Outcome, Penalty, Policy,
    RateLimitLayer, StoreErrorKind, Subject,
};

use super::{Bench, Trips};
use support::bench::{answer, ask};
use support::redis::Server;

const MODES: [FailureMode; 3] = [
    FailureMode::Allow,
    FailureMode::Deny,
    FailureMode::Local { share: 0.5 },
];

fn two_a_day(mode: FailureMode) -> Policy {
    Policy::new("api", Limit::gcra(2, DAY)).on_store_failure(mode)
}

async fn outcome(limiter: &Limiter, subject: &str) -> Outcome {
    limiter.check("api", subject).await.unwrap().outcome()
}

/// Until it is known that there are no more.
async fn use_up(limiter: &Limiter, subject: &str) {
    let outcomes = [
        outcome(limiter, subject).await,
        outcome(limiter, subject).await,
        outcome(limiter, subject).await,
    ];
    let expected = [Outcome::Allowed, Outcome::Allowed, Outcome::Denied];
    assert_eq!(outcomes, expected);
}

async fn open(limiter: &Limiter) {
    for _ in 0..5 {
        let _ = limiter.peek("api", "nobody").await.unwrap();
    }
    assert_eq!(limiter.breaker_state(), BreakerState::Open);
}

#[tokio::test(start_paused = true)]
async fn remembered_denials_hold_while_the_breaker_is_open() {
    for mode in MODES {
        let Bench { cache, trips, .. } = Bench::new();
        let limiter = Limiter::new(cache, [two_a_day(mode)]).unwrap();
        use_up(&limiter, "alice").await;
        trips.fails.store(true, Ordering::SeqCst);
        open(&limiter).await;
        let asked = trips.asked.load(Ordering::SeqCst);
        let decision = limiter.check("api", "alice").await.unwrap();
        assert_eq!(decision.outcome(), Outcome::Denied, "{mode:?}");
        assert!(decision.is_remembered() && !decision.is_local(), "{mode:?}");
        assert_eq!(decision.retry_after(), Some(DAY / 2), "{mode:?}");
        let of_another = limiter.check("api", "bob").await.unwrap();
        let why = of_another.store_failure();
        assert_eq!(why, Some(StoreErrorKind::BreakerOpen), "{mode:?}");
        assert_eq!(trips.asked.load(Ordering::SeqCst), asked);
    }
}

/// Otherwise such a cost would let a denied client pass for as long as the store is gone.
#[tokio::test]
async fn remembered_denials_hold_beside_a_cost_that_never_fits() {
    let Bench { cache, .. } = Bench::new();
    let narrow = Algorithm::try_from(&Limit::gcra(1, DAY)).unwrap();
    let take = ("client", narrow, "eve", Action::acquire(1));
    assert!(answer(ask(&cache, &[take])).await.all_allow());
    assert!(!answer(ask(&cache, &[take])).await.all_allow());
    let [client, user] = ["client", "user"].map(PolicyId::new);
    let subject = |name: &str| Subject::from(&Key::from(name));
    let known = cache.remembered(&[
        Check::new(&client, subject("eve"), narrow, Action::acquire(1)),
        Check::new(&user, subject("made up"), narrow, Action::acquire(2)),
    ]);
    assert_eq!(known.and_then(|known| known.denied_by()), Some(0));
}

/// A store that is not asked counts no denial for the other policy's penalty.
#[tokio::test(start_paused = true)]
async fn remembered_denials_hold_beside_a_policy_with_a_penalty() {
    for mode in MODES {
        let Bench { cache, trips, .. } = Bench::new();
        let login = Policy::new("login", Limit::gcra(2, DAY)).by(Header::new("x-user"));
        let policies = [
            two_a_day(mode).by(Header::new("x-client")),
            login.penalty(Penalty::after(100, DAY, DAY)),
        ];
        let service = service_fn(|_| async { Ok::<_, Infallible>(Response::new(String::new())) });
        let layer = RateLimitLayer::new(Limiter::new(cache, policies).unwrap()).wrap_body();
        let status_for = async |user: &str| {
            let request = Request::get("/").header("x-client", "eve");
            let request = request.header("x-user", user).body(String::new());
            let response = layer.layer(service).oneshot(request.unwrap()).await;
            response.unwrap().status().as_u16()
        };
        for (user, status) in [("a", 200), ("b", 200), ("c", 429)] {
            assert_eq!(status_for(user).await, status, "{mode:?}");
        }
        trips.fails.store(true, Ordering::SeqCst);
        for user in ["c", "d", "e", "f", "g", "h", "i"] {
            assert_eq!(status_for(user).await, 429, "{mode:?}");
        }
    }
}

/// Its question goes to the store, as one does twice within the maximum age.
#[tokio::test(start_paused = true)]
async fn a_remembered_denial_that_cannot_be_renewed_still_denies() {
    let Bench {
        cache,
        trips,
        clock,
    } = Bench::remembering(Duration::from_secs(60));
    let limiter = Limiter::new(cache, [two_a_day(FailureMode::Allow)]).unwrap();
    use_up(&limiter, "alice").await;
    trips.fails.store(true, Ordering::SeqCst);
    clock.advance(Duration::from_secs(40));
    let asked = trips.asked.load(Ordering::SeqCst);
    assert_eq!(outcome(&limiter, "alice").await, Outcome::Denied);
    assert_eq!(trips.asked.load(Ordering::SeqCst), asked + 1);
    // Nobody is denied by an entry that is too old.
    clock.advance(Duration::from_secs(20));
    let gone = Outcome::FailedOpen(StoreErrorKind::Unreachable);
    assert_eq!(outcome(&limiter, "alice").await, gone);
}

/// Does not answer takes of two permits.
struct SilentAboutTwo(Trips);

impl Store for SilentAboutTwo {
    fn ask(&self, checks: &[Check<'_>]) -> Answer {
        match checks[0].action {
            Action::Acquire(take) if take.cost == 2 => Answer::Pending(Box::pin(pending())),
            _ => self.0.ask(checks),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_without_answer_is_denied_by_what_others_learned() {
    for mode in MODES {
        let Bench { trips, clock, .. } = Bench::new();
        let cache = DenyCache::new(SilentAboutTwo(trips));
        let cache = cache.max_age(DAY).clock_for_tests(clock);
        let limiter = Limiter::new(cache, [two_a_day(mode)]).unwrap();
        let mut late = Box::pin(limiter.check_cost("api", "alice", 2));
        assert!(futures_util::poll!(&mut late).is_pending());
        use_up(&limiter, "alice").await;
        let decision = late.await.unwrap();
        assert_eq!(decision.outcome(), Outcome::Denied, "{mode:?}");
        assert_eq!(decision.retry_after(), Some(DAY), "{mode:?}");
        let unknown = limiter.check_cost("api", "bob", 2).await.unwrap();
        assert_eq!(unknown.store_failure(), Some(StoreErrorKind::TimedOut));
    }
}

#[tokio::test]
async fn remembered_denials_outlast_a_redis_that_is_gone() {
    let mut server = Server::start();
    let store = server.store().await.deny_cache_max_age(DAY);
    let without_memory = store.clone().without_deny_cache();
    let over = |store| Limiter::new(store, [two_a_day(FailureMode::Allow)]).unwrap();
    let (limiter, without_memory) = (over(store), over(without_memory));
    use_up(&limiter, "alice").await;
    server.kill();
    while limiter.breaker_state() != BreakerState::Open {
        let _ = limiter.peek("api", "nobody").await.unwrap();
    }
    assert_eq!(outcome(&limiter, "alice").await, Outcome::Denied);
    let outcomes = [
        outcome(&limiter, "bob").await,
        outcome(&without_memory, "alice").await,
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Outcome::FailedOpen(_)), "{outcome:?}");
    }
}
