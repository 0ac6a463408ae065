//! What ends a remembered denial before its time.

use futures_util::FutureExt as _;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Answer, Check, DenyCache, Store};
use tower_throttle::{DAY, FailureMode, Limit, MINUTE, SECOND};

use super::{Bench, ask, limits};
use support::bench::answer;

#[tokio::test]
async fn permits_given_back_here_are_available_at_once() {
    let credit = Action::Credit {
        permits: 1,
        taken_at: None,
    };
    for limit in limits() {
        for action in [credit, Action::Reset] {
            let bench = Bench::new();
            bench.drain(limit).await;
            assert!(!bench.take(limit, 1).await.is_allowed());
            assert_eq!(bench.cache.hits(), 1, "{limit:?}");
            let _ = bench.act(limit, action).await;
            assert!(bench.take(limit, 1).await.is_allowed(), "{limit:?}");
        }
    }
}

/// Nobody waits for the answer when a request is dropped.
#[tokio::test]
async fn permits_given_back_are_available_without_the_answer() {
    for limit in limits() {
        let bench = Bench::new();
        bench.drain(limit).await;
        drop(bench.begin(limit, Action::Reset));
        assert!(bench.take(limit, 1).await.is_allowed(), "{limit:?}");
    }
}

#[tokio::test]
async fn a_denial_that_arrives_after_permits_came_back_is_forgotten() {
    for limit in limits() {
        for reset_first in [false, true] {
            let bench = Bench::new();
            while bench.take(limit, 1).await.remaining() > 0 {}
            let denied = bench.begin(limit, Action::acquire(1));
            let reset = bench.begin(limit, Action::Reset);
            let answers = if reset_first {
                [reset, denied]
            } else {
                [denied, reset]
            };
            for late in answers {
                answer(late).await;
            }
            assert!(bench.take(limit, 1).await.is_allowed(), "{limit:?}");
        }
    }
}

#[tokio::test]
async fn a_denial_is_forgotten_once_permits_are_being_given_back() {
    for limit in limits() {
        let bench = Bench::new();
        bench.drain(limit).await;
        let reset = bench.begin(limit, Action::Reset);
        assert!(bench.take(limit, 1).await.is_allowed(), "{limit:?}");
        answer(reset).await;
    }
}

/// The answer to a question asked after the reset but decided before it.
#[tokio::test]
async fn a_denial_that_overtakes_a_reset_is_forgotten_with_it() {
    struct Overtaken(Bench);
    impl Store for Overtaken {
        fn ask(&self, checks: &[Check<'_>]) -> Answer {
            let is_reset = checks[0].action == Action::Reset;
            if !is_reset {
                return self.0.trips.ask(checks);
            }
            // Carried out when it is awaited.
            let (store, policy) = (self.0.trips.clone(), checks[0].policy.clone());
            let (subject, algorithm) = (checks[0].subject, checks[0].algorithm);
            Answer::Pending(Box::pin(async move {
                let check = Check::new(&policy, subject, algorithm, Action::Reset)
                    .with_failure_mode(FailureMode::Deny);
                Ok(answer(store.ask(&[check])).await)
            }))
        }
    }
    let algorithm = Algorithm::try_from(&Limit::gcra(1, DAY)).unwrap();
    let cache = DenyCache::new(Overtaken(Bench::new()));
    let act = |action| ask(&cache, &[("api", algorithm, "alice", action)]);
    let take = || answer(act(Action::acquire(1))).map(|decisions| decisions.all_allow());
    assert!(take().await);
    let reset = act(Action::Reset);
    assert!(!take().await, "not reset yet");
    answer(reset).await;
    assert!(take().await);
}

#[tokio::test]
async fn permits_acquired_here_lengthen_the_wait() {
    for limit in limits() {
        let bench = Bench::new();
        let _ = bench.take(limit, 2).await;
        bench.clock.advance(SECOND);
        let before = bench.take(limit, 3).await.retry_after().unwrap();
        assert!(bench.take(limit, 1).await.is_allowed());
        let after = bench.take(limit, 3).await;
        assert_eq!(after, answer(bench.trips.ask_again(limit, 3)).await[0]);
        assert!(after.retry_after().unwrap() >= before, "{limit:?}");
    }
}

#[tokio::test]
async fn a_changed_limit_is_not_answered_by_an_old_denial() {
    for (limit, raised) in [
        (Limit::gcra(3, MINUTE), Limit::gcra(3, MINUTE).burst(4)),
        (
            Limit::fixed_window(3, MINUTE),
            Limit::fixed_window(4, MINUTE),
        ),
        (Limit::sliding_log(3, MINUTE), Limit::sliding_log(4, MINUTE)),
        (
            Limit::sliding_window(3, MINUTE),
            Limit::sliding_window(4, MINUTE),
        ),
        (
            Limit::sliding_counter(3, MINUTE),
            Limit::sliding_counter(4, MINUTE),
        ),
    ] {
        let bench = Bench::new();
        bench.drain(limit).await;
        assert!(bench.take(raised, 1).await.is_allowed(), "{limit:?}");
        assert!(!bench.take(limit, 1).await.is_allowed(), "{limit:?}");
    }
}
