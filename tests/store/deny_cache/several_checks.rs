//! Several checks in one question.

use std::convert::Infallible;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Empty;
use tower::{Layer as _, ServiceExt as _, service_fn};
use tower_throttle::store::Decisions;
use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{
    DAY, Decision, HOUR, Header, Limit, Limiter, MINUTE, Outcome, Penalty, Policy, RateLimitLayer,
    Rejection, Route, SECOND,
};

use super::{Bench, MICROSECOND};
use support::bench::{answer, ask};

#[tokio::test]
async fn a_penalty_counts_denials_and_its_ban_is_remembered() {
    let bench = Bench::new();
    let login = Algorithm::try_from(&Limit::sliding_log(1, SECOND)).unwrap();
    let penalty = Algorithm::try_from(&Penalty::after(10, HOUR, MINUTE)).unwrap();
    let take = Action::acquire(1);
    let login = || {
        answer(bench.ask(&[
            ("login", login, "eve", take),
            ("login", penalty, "eve", take),
        ]))
    };
    let banned = |decisions: &Decisions| decisions[1].outcome() == Outcome::Banned;
    assert!(login().await.all_allow());
    for _ in 0..10 {
        let denied = login().await;
        assert!(!denied.all_allow() && !banned(&denied));
    }
    assert!(banned(&login().await));
    let hammering = async {
        for _ in 0..100 {
            assert!(banned(&login().await));
        }
    };
    assert_eq!(bench.trips(hammering).await, 0);
    // Longer than the denial that caused it, which is then asked about once more.
    bench.clock.advance(MINUTE - MICROSECOND);
    let last = async {
        for _ in 0..100 {
            let last = login().await;
            assert_eq!(last[1].retry_after(), Some(MICROSECOND));
        }
    };
    assert_eq!(bench.trips(last).await, 1);
    bench.clock.advance(MICROSECOND);
    assert!(login().await.all_allow());
}

#[tokio::test]
async fn a_ban_lifted_elsewhere_is_forgotten_once_the_store_says_so() {
    let bench = Bench::remembering(2 * SECOND);
    let login = Algorithm::try_from(&Limit::sliding_log(1, HOUR)).unwrap();
    let penalty = Algorithm::try_from(&Penalty::after(10, HOUR, HOUR)).unwrap();
    let take = Action::acquire(1);
    let is_banned = async || {
        let asked = [
            ("login", login, "eve", take),
            ("login", penalty, "eve", take),
        ];
        answer(bench.ask(&asked)).await[1].outcome() == Outcome::Banned
    };
    while !is_banned().await {}
    let lifted = [("login", penalty, "eve", Action::Reset)];
    answer(ask(&bench.trips, &lifted)).await;
    assert!(is_banned().await, "it is still remembered");
    bench.clock.advance(SECOND);
    for _denial_that_is_to_be_heard_of in 0..10 {
        assert!(!is_banned().await);
    }
}

/// Under a sliding limit, a denial is known for its own cost and larger ones.
#[tokio::test]
async fn the_store_is_asked_rarely_how_long_it_denies_under_a_ban() {
    let bench = Bench::remembering(2 * SECOND);
    let limit = Algorithm::try_from(&Limit::sliding_log(5, HOUR)).unwrap();
    let penalty = Algorithm::try_from(&Penalty::after(1, MINUTE, MINUTE)).unwrap();
    let ask = async |cost| {
        let asked = [
            ("login", limit, "eve", Action::acquire(cost)),
            ("login", penalty, "eve", Action::acquire(1)),
        ];
        answer(bench.ask(&asked)).await[0].retry_after()
    };
    assert_eq!(ask(5).await, None);
    for _brought_then_in_force in 0..2 {
        assert_eq!(ask(5).await, Some(HOUR));
    }
    let ban_alone = None;
    for (cost, trips, told) in [
        (5, 0, Some(HOUR)),
        (4, 1, Some(HOUR)),
        (3, 0, ban_alone),
        (4, 0, Some(HOUR)),
    ] {
        let asked = bench.trips(async { assert_eq!(ask(cost).await, told, "{cost}") });
        assert_eq!(asked.await, trips, "{cost}");
    }
    bench.clock.advance(SECOND - MICROSECOND);
    let too_soon = async { assert_eq!(ask(2).await, ban_alone) };
    assert_eq!(bench.trips(too_soon).await, 0);
    bench.clock.advance(MICROSECOND);
    let at_last = async { assert_eq!(ask(2).await, Some(HOUR - SECOND)) };
    assert_eq!(bench.trips(at_last).await, 1);
}

#[tokio::test]
async fn a_ban_of_a_concurrency_limit_tells_its_own_wait_from_memory() {
    let bench = Bench::new();
    let limit = Limit::concurrency(1).lease(HOUR);
    let policy = Policy::new("exports", limit).penalty(Penalty::after(1, MINUTE, MINUTE));
    let limiter = Limiter::new(bench.cache.clone(), [policy]).unwrap();
    let admit = || limiter.admit("exports", "eve");
    let _held = admit().await.unwrap();
    for told in [HOUR, HOUR, MINUTE] {
        assert_eq!(admit().await.unwrap_err().retry_after(), Some(told));
    }
    assert_eq!(bench.cache.hits(), 1);
}

/// After the clock stepped back to before the end of the first ban, the second one is still in
/// force.
#[tokio::test]
async fn a_ban_is_not_confused_with_the_one_before() {
    let bench = Bench::new();
    let login = Algorithm::try_from(&Limit::fixed_window(1, DAY)).unwrap();
    let penalty = Penalty::after(1, HOUR, MINUTE).doubling_up_to(HOUR);
    let penalty = Algorithm::try_from(&penalty).unwrap();
    let ban = async || {
        let take = Action::acquire(1);
        let asked = [
            ("login", login, "eve", take),
            ("login", penalty, "eve", take),
        ];
        answer(bench.ask(&asked)).await[1].banned_for()
    };
    assert_eq!(ban().await, None);
    for _brought_then_in_force in 0..2 {
        assert_eq!(ban().await, Some(MINUTE));
    }
    bench.clock.advance(MINUTE);
    assert_eq!(ban().await, Some(2 * MINUTE), "this denial brings the next");
    bench.clock.step_back(SECOND);
    assert_eq!(ban().await, Some(2 * MINUTE + SECOND));
}

#[tokio::test]
async fn a_cost_that_never_fits_outranks_a_remembered_denial() {
    let bench = Bench::new();
    let [narrow, wide] = [1, 5].map(|limit| Algorithm::try_from(&Limit::gcra(limit, DAY)).unwrap());
    let both = |user, cost| {
        let (one, other) = (Action::acquire(1), Action::acquire(cost));
        answer(bench.ask(&[
            ("narrow", narrow, "alice", one),
            ("wide", wide, user, other),
        ]))
    };
    assert!(both("alice", 1).await.all_allow());
    assert_eq!(both("alice", 1).await.denied_by(), Some(0));
    for (user, outcome) in [
        ("alice", Outcome::NeverFits),
        ("bob", Outcome::NeverFits),
        // Only now and then, or naming another subject each time would get around the denial.
        ("carol", Outcome::NotAsked),
    ] {
        let never = both(user, 6).await;
        assert_eq!(never[1].outcome(), outcome);
        let denied_by = usize::from(outcome == Outcome::NeverFits);
        assert_eq!(never.denied_by(), Some(denied_by));
    }
    assert_eq!(bench.cache.hits(), 2);
}

#[tokio::test]
async fn policies_beside_the_one_that_denies_keep_their_decisions() {
    let bench = Bench::new();
    let algorithm = |limit: &Limit| Algorithm::try_from(limit).unwrap();
    let narrow = algorithm(&Limit::gcra(1, MINUTE));
    let wide = algorithm(&Limit::sliding_log(60, MINUTE));
    let take = Action::acquire(1);
    let both = |key| {
        let asked = [("narrow", narrow, "alice", take), ("wide", wide, key, take)];
        answer(bench.ask(&asked))
    };
    assert!(both("us").await.all_allow());
    assert_eq!(both("us").await[1].remaining(), 59);
    bench.clock.advance(SECOND);
    let known = both("us").await;
    assert_eq!(known[1].remaining(), 59);
    assert_eq!(known[1].reset_after(), MINUTE - SECOND);
    let unknown = both("them").await;
    assert_eq!(unknown[0], known[0]);
    assert_eq!(unknown[1].outcome(), Outcome::NotAsked);
    assert!(unknown.iter().all(Decision::is_remembered));
    assert_eq!(unknown.denied_by(), Some(0));
    assert_eq!(bench.cache.hits(), 2);
}

async fn served(_: Request<()>) -> Result<Response<Empty<Bytes>>, Infallible> {
    Ok(Response::new(Empty::new()))
}

#[tokio::test]
async fn a_denial_from_memory_tells_of_those_policies_that_are_known() {
    let bench = Bench::new();
    let policies = [
        Policy::new("client", Limit::gcra(1, MINUTE)).by(Header::new("x-client")),
        Policy::new("user", Limit::gcra(60, MINUTE)).by(Header::new("x-user")),
    ];
    let limiter = Limiter::new(bench.cache.clone(), policies).unwrap();
    let layer = RateLimitLayer::new(limiter).wrap_body();
    let get = async |user: &str| {
        let request = Request::get("/")
            .header("x-client", "eve")
            .header("x-user", user);
        let request = request.body(()).unwrap();
        let response = layer
            .layer(service_fn(served))
            .oneshot(request)
            .await
            .unwrap();
        let header = |name| {
            let values = response.headers().get_all(name).iter();
            values
                .map(|value| value.to_str().unwrap().to_owned())
                .next()
        };
        (
            response.status().as_u16(),
            header("ratelimit"),
            header("retry-after"),
        )
    };
    assert_eq!(get("one").await.0, 200);
    let (both, only) = (
        "\"client\";r=0;t=60, \"user\";r=59;t=59",
        "\"client\";r=0;t=60",
    );
    for (user, told) in [("one", both), ("one", both), ("two", only)] {
        let expected = (429, Some(told.to_owned()), Some("60".to_owned()));
        assert_eq!(get(user).await, expected, "{user}");
    }
    assert_eq!(bench.cache.hits(), 2);
}

#[tokio::test]
async fn a_rejection_tells_of_unasked_policies_that_may_deny_longer() {
    let bench = Bench::new();
    let policies = [
        Policy::new("client", Limit::fixed_window(2, SECOND)),
        Policy::new("login", Limit::sliding_log(1, HOUR)).on(Route::get("/login")),
    ];
    let limiter = Limiter::new(bench.cache.clone(), policies).unwrap();
    let layer = RateLimitLayer::new(limiter).wrap_body();
    let rejection = async |path| {
        let request = Request::get(path).body(()).unwrap();
        let response = layer.layer(service_fn(served)).oneshot(request).await;
        response.unwrap().extensions().get::<Rejection>().cloned()
    };
    assert_eq!(rejection("/login").await, None);
    assert_eq!(rejection("/").await, None);
    for (path, expected) in [("/", false), ("/login", true), ("/", false)] {
        let denied = rejection(path).await.unwrap();
        assert_eq!(denied.policies(), ["client"]);
        assert_eq!(denied.retry_after_secs(), Some(1));
        assert_eq!(denied.has_unasked_policies(), expected, "{path}");
    }
    bench.clock.advance(SECOND);
    let denied = rejection("/login").await.unwrap();
    assert_eq!(denied.policies(), ["login"]);
    assert_eq!(denied.retry_after_secs(), Some(3_599));
    assert!(!denied.has_unasked_policies());
}
