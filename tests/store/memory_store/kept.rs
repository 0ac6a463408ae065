//! Which keys are never evicted, and until when: only as long as their subjects would be denied,
//! whatever was announced before.

use std::convert::Infallible;

use futures_util::FutureExt as _;
use http::{Request, Response};
use tower::{Layer, ServiceExt, service_fn};
use tower_throttle::{
    DAY, Decision, Header, Key, Limit, Limiter, MINUTE, Outcome, Policy, RateLimitLayer,
    ResponseHead, StoreErrorKind,
};

use super::asking::{Asked, ask};
use super::{CAPACITY, FLOOD, Setup};

/// More than there is room for.
const MANY: u64 = 2 * CAPACITY as u64;
const FULL: Outcome = Outcome::FailedOpen(StoreErrorKind::Full);
const DAILY: Limit = Limit::fixed_window(1_000, DAY);

/// The same store under another limit.
fn under(setup: &Setup, limit: Limit) -> impl Fn(u64) -> Decision {
    let limiter = Limiter::new(setup.store.clone(), [Policy::new("api", limit)]).unwrap();
    move |key| {
        let answer = limiter.check("api", key).now_or_never();
        answer.expect("a memory store answers at once").unwrap()
    }
}

fn credit(setup: &Setup, key: u64, permits: u64) -> Decision {
    let answer = setup.limiter.credit("api", key, permits).now_or_never();
    answer.expect("a memory store answers at once").unwrap()
}

/// Two a day, and a store full of denied subjects, which are returned.
fn full() -> (Setup, Vec<u64>) {
    let setup = Setup::new(Limit::fixed_window(2, DAY));
    let is_denied = |key: &u64| {
        let outcomes = [(); 3].map(|()| setup.check(*key).outcome());
        outcomes[2] == Outcome::Denied
    };
    let known: Vec<u64> = (0..FLOOD).filter(is_denied).collect();
    assert_eq!(known.len(), CAPACITY);
    assert_eq!(setup.check(FLOOD).outcome(), FULL);
    (setup, known)
}

#[test]
fn settled_requests_make_room_for_newcomers() {
    let several = DAILY.and(5_000, 7 * DAY);
    for (limit, cost, settled) in [(DAILY, 600, 3), (several, 600, 3), (DAILY, 3, 600)] {
        let policy = Policy::new("rows", limit).by(Header::new("x-user"));
        let settle = move |_: &ResponseHead<'_>| settled;
        let setup = Setup::with_policies([policy.cost(cost).settle(settle)]);
        let inner = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(())));
        let service = RateLimitLayer::new(setup.limiter.clone())
            .wrap_body()
            .layer(inner);
        for user in (0..MANY).map(|user| user.to_string()) {
            let request = Request::builder().header("x-user", &user);
            let request = request.body(()).unwrap();
            let answer = service.clone().oneshot(request).now_or_never();
            answer.expect("an answer at once").unwrap();
            let key = Key::header("x-user", user.as_bytes());
            let left = setup.check_cost("rows", key, 0).remaining();
            assert_eq!(left, 1_000 - settled, "user {user}, who took {cost}");
        }
    }
}

#[test]
fn a_key_that_was_given_back_enough_makes_room_for_newcomers() {
    let setup = Setup::new(DAILY);
    for key in 0..MANY {
        let taken = setup.check_cost("api", key, 600);
        assert_eq!(taken.outcome(), Outcome::Allowed, "{key}");
        let _ = credit(&setup, key, 200);
    }
}

#[test]
fn a_key_that_was_not_given_back_enough_stays() {
    let setup = Setup::with_policies([
        Policy::new("api", DAILY),
        Policy::new("other", Limit::gcra(100, MINUTE)),
    ]);
    let _ = setup.check_cost("api", 0, 600);
    assert_eq!(credit(&setup, 0, 199).remaining(), 599);
    for key in 0..FLOOD {
        let _ = setup.check_cost("other", key, 1);
    }
    let again = setup.check_cost("api", 0, 600);
    assert_eq!(again.outcome(), Outcome::Denied);
}

/// Otherwise its places would be given once more while they are held.
#[test]
fn a_key_of_which_places_are_held_stays() {
    let setup = Setup::with_policies([
        Policy::new("places", Limit::concurrency(2)),
        Policy::new("api", Limit::gcra(100, MINUTE)),
    ]);
    let admit = || {
        let answer = setup.limiter.admit("places", "alice").now_or_never();
        answer.expect("a memory store answers at once")
    };
    // One place is free, so nobody is denied.
    let first = admit();
    setup.flood(0..FLOOD);
    let second = admit();
    assert!(first.is_ok() && second.is_ok());
    assert!(admit().is_err());
    drop((first, second));
    assert!(admit().is_ok());
}

#[test]
fn a_key_that_is_allowed_under_a_raised_limit_can_be_evicted() {
    let (setup, known) = full();
    let raised = under(&setup, DAILY);
    assert_eq!(raised(FLOOD).outcome(), FULL);
    for key in known {
        assert_eq!(raised(key).remaining(), 997);
    }
    for newcomer in FLOOD..FLOOD + MANY {
        assert_eq!(raised(newcomer).outcome(), Outcome::Allowed);
    }
}

#[test]
fn keys_that_are_allowed_together_can_be_evicted() {
    let (setup, known) = full();
    let asked = |key: u64| Asked::new("api", DAILY, key, 1);
    for two in known.chunks(2) {
        let two = [asked(two[0]), asked(two[1])];
        let decisions = ask(&setup.store, &[two[0].check(), two[1].check()]).unwrap();
        assert!(decisions.iter().all(|decision| decision.remaining() == 997));
    }
    for newcomer in FLOOD..FLOOD + MANY {
        let decisions = ask(&setup.store, &[asked(newcomer).check()]);
        assert!(decisions.unwrap().all_allow());
    }
}

#[test]
fn a_key_with_a_shorter_denial_is_kept_no_longer_than_that() {
    let (setup, known) = full();
    let shortened = under(&setup, Limit::fixed_window(2, MINUTE));
    for key in known {
        assert_eq!(shortened(key).retry_after(), Some(MINUTE));
    }
    assert_eq!(shortened(FLOOD).outcome(), FULL);
    setup.clock.advance(MINUTE);
    for newcomer in FLOOD..FLOOD + MANY {
        assert_eq!(shortened(newcomer).outcome(), Outcome::Allowed);
    }
}
