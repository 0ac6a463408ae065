//! Other rules, put in place of those in force.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use axum::http::StatusCode;
use futures_util::FutureExt as _;
use tower_throttle::{
    AccessList, Key, Limit, Limiter, MINUTE, ManualClock, MemoryStore, Mode, Outcome, Policy,
    RateLimitLayer, Route, Rules, SECOND, ThrottleLayer, per_minute, per_second,
};

use super::{App, one_a_minute};

fn everybody(permits: u64) -> Policy {
    Policy::new("everybody", Limit::fixed_window(permits, MINUTE))
}

fn limiter(policies: impl IntoIterator<Item = Policy>) -> Limiter {
    Limiter::new(MemoryStore::new(), policies).unwrap()
}

async fn takes(limiter: &Limiter, policy: &str) -> bool {
    let decision = limiter.check(policy, Key::everybody()).await;
    decision.unwrap().is_allowed()
}

#[tokio::test]
async fn used_permits_stay_used_under_other_numbers() {
    let limiter = limiter([everybody(3)]);
    for expected in [true, true, true, false] {
        assert_eq!(takes(&limiter, "everybody").await, expected);
    }
    limiter.replace([everybody(5)]).unwrap();
    for expected in [true, true, false] {
        assert_eq!(takes(&limiter, "everybody").await, expected);
    }
    limiter.replace([everybody(2)]).unwrap();
    assert!(!takes(&limiter, "everybody").await);
}

/// Usage is kept as time: at a higher rate, the same capacity is worth less of it.
#[tokio::test]
async fn a_higher_rate_alone_makes_whoever_has_used_all_wait_longer() {
    let gcra = |permits, burst| Limit::gcra(permits, MINUTE).burst(burst);
    let bucket = |capacity, permits| Limit::token_bucket(capacity, per_minute(permits));
    let leaky =
        |capacity, permits| Limit::leaky_bucket(capacity, per_minute(permits)).without_delay();
    for (before, after, [waited, waits]) in [
        (bucket(100, 50), bucket(100, 100), [1_200, 60_600]),
        (bucket(100, 50), bucket(100, 500), [1_200, 108_120]),
        (leaky(100, 50), leaky(100, 100), [1_200, 60_600]),
        (gcra(100, 20), gcra(200, 20), [600, 6_300]),
        // By the same factor, as it is without a burst.
        (bucket(100, 50), bucket(200, 100), [1_200, 600]),
        (gcra(100, 20), gcra(200, 40), [600, 300]),
        (
            Limit::gcra(100, MINUTE),
            Limit::gcra(200, MINUTE),
            [600, 300],
        ),
        (bucket(100, 100), bucket(100, 50), [600, 0]),
    ] {
        let named = |limit| [Policy::new("api", limit)];
        let store = MemoryStore::builder().clock(ManualClock::new()).build();
        let limiter = Limiter::new(store, named(before)).unwrap();
        let asked = async || limiter.check("api", "alice").await.unwrap();
        while asked().await.is_allowed() {}
        let has_waited = asked().await.retry_after();
        limiter.replace(named(after)).unwrap();
        let found = [has_waited, asked().await.retry_after()];
        let millis = found.map(|wait| wait.unwrap_or_default().as_millis());
        assert_eq!(millis, [waited, waits], "{before:?} {after:?}");
        let _ = limiter.reset("api", "alice").await.unwrap();
        assert!(asked().await.is_allowed());
    }
}

#[tokio::test]
async fn a_layer_goes_by_the_new_rules_at_once() {
    let limiter = limiter([one_a_minute("api")]);
    let app = App::behind(&limiter).await;
    assert_eq!(app.status("alice").await, StatusCode::OK);
    assert_eq!(app.status("alice").await, StatusCode::TOO_MANY_REQUESTS);
    let rules = Rules::new([one_a_minute("api"), everybody(2)]).exempt(Route::get("/health"));
    limiter.replace(rules).unwrap();
    assert_eq!(limiter.policy_names(), ["api", "everybody"]);
    assert_eq!(app.status("alice").await, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(app.status("bob").await, StatusCode::OK);
    assert_eq!(app.get("/health", &[]).await.status(), StatusCode::OK);
    limiter.replace([]).unwrap();
    assert_eq!(app.status("alice").await, StatusCode::OK);
}

#[tokio::test]
async fn rules_that_make_no_sense_leave_the_old_ones_in_force() {
    let limiter = limiter([everybody(1)]);
    let twice = Rules::new([everybody(5), everybody(5)]);
    let error = limiter.replace(twice).unwrap_err();
    assert!(error.to_string().contains("used twice"), "{error}");
    assert!(limiter.replace([everybody(0)]).is_err());
    assert!(takes(&limiter, "everybody").await);
    assert!(!takes(&limiter, "everybody").await);
}

#[test]
fn a_mode_that_was_set_stays_until_the_policy_says_another() {
    let limiter = limiter([everybody(1)]);
    limiter.set_mode("everybody", Mode::Off).unwrap();
    let replaced_by = |policy: Policy| {
        limiter.replace([policy]).unwrap();
        limiter.mode("everybody").unwrap()
    };
    assert_eq!(replaced_by(everybody(2)), Mode::Off);
    assert_eq!(replaced_by(everybody(2).mode(Mode::Shadow)), Mode::Shadow);
    assert_eq!(replaced_by(everybody(3).mode(Mode::Shadow)), Mode::Shadow);
    assert_eq!(replaced_by(everybody(3)), Mode::Enforce);
}

#[tokio::test]
async fn the_lists_are_those_of_the_new_rules() {
    let limiter = limiter([everybody(1)]);
    let outcome = async || {
        let looked_up = limiter.check("everybody", "mallory").await;
        looked_up.unwrap().outcome()
    };
    limiter.set_denied(AccessList::new().keys(["mallory"]));
    assert_eq!(outcome().await, Outcome::Refused);
    let allowing = Rules::new([everybody(1)]).allow(AccessList::new().keys(["mallory"]));
    limiter.replace(allowing).unwrap();
    assert_eq!(outcome().await, Outcome::Unlimited);
    limiter.replace([everybody(1)]).unwrap();
    assert_eq!(outcome().await, Outcome::Allowed);
}

#[tokio::test]
async fn a_place_held_under_old_rules_is_given_back_under_new_ones() {
    let places = |places| Policy::new("places", Limit::concurrency(places));
    let limiter = limiter([everybody(10), places(1)]);
    let held = limiter.admit("places", Key::everybody()).await;
    assert!(held.is_ok());
    // At another position, with another number.
    limiter.replace([places(2)]).unwrap();
    let left = async || {
        let looked = limiter.peek("places", Key::everybody()).await;
        looked.unwrap().remaining()
    };
    assert_eq!(left().await, 1);
    drop(held);
    assert_eq!(left().await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_throttle_uses_its_named_policy_and_the_first_if_it_is_gone() {
    use tower::{Layer, Service, ServiceExt, service_fn};

    let slow = |rate| Policy::new("partner", Limit::token_bucket(1, per_second(rate)));
    let store = support::virtual_time::store();
    let limiter = Limiter::new(store, [slow(1)]).unwrap();
    let layer = ThrottleLayer::new(limiter.clone(), "partner").unwrap();
    let mut service = layer.layer(service_fn(async |()| Ok::<_, ()>(())));
    let mut sent = 0;
    let mut send_for = async |seconds: u32| {
        let until = tokio::time::Instant::now() + seconds * SECOND;
        while tokio::time::Instant::now() < until {
            service.ready().await.unwrap().call(()).await.unwrap();
            sent += 1;
        }
        std::mem::take(&mut sent)
    };
    let once_a_second = send_for(10).await;
    assert!((10..=11).contains(&once_a_second), "{once_a_second}");
    limiter.replace([slow(10)]).unwrap();
    let ten_times = send_for(10).await;
    assert!((85..=102).contains(&ten_times), "{ten_times}");
    limiter.replace([]).unwrap();
    let still = send_for(10).await;
    assert!(
        (8..=12).contains(&still),
        "{still}: by the one it was made with"
    );
}

/// Whatever is replaced meanwhile, no request passes uncounted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_is_no_moment_without_limits() {
    let limiter = limiter([everybody(50)]);
    let layer = RateLimitLayer::new(limiter.clone());
    let is_over = Arc::new(AtomicBool::new(false));
    let replaced = Arc::new(AtomicU32::new(0));
    let replacing = std::thread::spawn({
        let (limiter, is_over, replaced) = (limiter, is_over.clone(), replaced.clone());
        move || {
            while !is_over.load(Ordering::Relaxed) {
                let others = (0..replaced.load(Ordering::Relaxed) % 3).map(|other| {
                    Policy::new(format!("other {other}"), Limit::gcra(1_000_000, SECOND))
                });
                let rules = Rules::new(others.chain([everybody(50)]));
                limiter.replace(rules).unwrap();
                replaced.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let mut passed = 0;
    let mut asked = 0;
    while asked < 20_000 || replaced.load(Ordering::Relaxed) < 100 {
        use tower::{Layer, ServiceExt, service_fn};
        let service = layer.layer(service_fn(async |_: http::Request<()>| {
            Ok::<_, std::convert::Infallible>(http::Response::new(axum::body::Body::empty()))
        }));
        let response = service.oneshot(http::Request::new(())).now_or_never();
        let status = response.expect("memory answers at once").unwrap().status();
        passed += u64::from(status == StatusCode::OK);
        asked += 1;
    }
    is_over.store(true, Ordering::Relaxed);
    replacing.join().unwrap();
    assert_eq!(passed, 50);
}
