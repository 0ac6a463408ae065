use tokio::time::Instant;

use super::*;
use crate::decision::Decisions;
use crate::error::StoreErrorKind;
use crate::limit::{Limit, MOST_PERMITS};
use crate::policy::Policy;
use crate::request::RequestHead;
use crate::store::{Answer, Check};
use crate::task::RENEWALS_IN_A_LIFE;
use crate::time::{HOUR, MINUTE, SECOND};

struct Silent;

impl Store for Silent {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Ready(Ok(Decisions::default()))
    }
}

fn refusal(policies: impl IntoIterator<Item = Policy>) -> String {
    Limiter::new(Silent, policies).unwrap_err().to_string()
}

fn named(name: &str) -> Policy {
    Policy::new(name, Limit::gcra(100, MINUTE).burst(20))
}

#[test]
fn a_cost_that_is_nothing_or_never_fits_is_refused() {
    assert_eq!(
        refusal([named("api").cost(0)]),
        "policy \"api\": cost: got 0, expected 1 to 999999999999999"
    );
    assert_eq!(
        refusal([named("api").cost(21)]),
        "policy \"api\": cost: got 21, expected at most the limit, or its burst or capacity: more \
         is never available at once"
    );
    assert!(Limiter::new(Silent, [named("api").cost(20)]).is_ok());
}

#[test]
fn a_lease_that_may_lapse_before_its_first_renewal_is_answered_is_refused() {
    let (ms, us) = (Duration::from_millis(1), Duration::from_micros(1));
    let shortest = RENEWALS_IN_A_LIFE * DEFAULT_TIMEOUT;
    for (timeout, lease, fine) in [
        (DEFAULT_TIMEOUT, ms, false),
        (DEFAULT_TIMEOUT, shortest - us, false),
        (DEFAULT_TIMEOUT, shortest, true),
        // However long a caller would wait, that is not how long it takes.
        (MINUTE, shortest - us, false),
        (MINUTE, shortest, true),
        (4 * ms, 12 * ms - us, false),
        (4 * ms, 12 * ms, true),
    ] {
        let places = |limit| Policy::new("places", limit);
        let limit = Limit::concurrency(5).lease(lease);
        let limiter = Limiter::builder(Silent, [places(limit)]).timeout(timeout);
        let built = limiter.build();
        assert_eq!(built.is_ok(), fine, "{timeout:?}, {lease:?}");
        let limiter = Limiter::builder(Silent, [])
            .timeout(timeout)
            .build()
            .unwrap();
        let replaced = limiter.replace([places(limit)]);
        assert_eq!(replaced.is_ok(), fine, "{timeout:?}, {lease:?}");
    }
    let refused = refusal([Policy::new("places", Limit::concurrency(5).lease(ms))]);
    assert!(
        refused.starts_with("policy \"places\": lease: got \"1 ms\": expected at least 150 ms"),
        "{refused}"
    );
}

#[test]
fn a_log_too_long_for_a_key_is_refused_unless_its_costs_vary() {
    let million = 1_000_000;
    let log = |limit| Policy::new("log", Limit::sliding_log(limit, SECOND));
    let read = |_: &RequestHead<'_>| 1_000;
    for (policy, fine) in [
        (log(million), true),
        (log(million + 1), false),
        (log(MOST_PERMITS), false),
        (log(7 * million).cost(7), true),
        (log(7 * million + 1).cost(7), false),
        (log(MOST_PERMITS).cost_by(read), true),
        (log(MOST_PERMITS).settle(|_| 1_000), true),
        // Each counts as one, or not at all.
        (log(MOST_PERMITS).count_if(|_| true), false),
    ] {
        let described = format!("{policy:?}");
        let built = Limiter::new(Silent, [policy]);
        assert_eq!(built.is_ok(), fine, "{described}");
    }
    let two_rates = Limit::sliding_log(10, SECOND).and(2 * million, HOUR);
    let refused = refusal([Policy::new("log", two_rates)]);
    let named =
        refused.starts_with("policy \"log\": limit: got \"a sliding log of 2000000 permits\"");
    assert!(named && refused.contains("a sliding window"), "{refused}");
    assert!(
        Limiter::new(
            Silent,
            [Policy::new(
                "window",
                Limit::sliding_window(MOST_PERMITS, SECOND)
            )]
        )
        .is_ok()
    );
}

#[test]
fn names_that_are_used_twice_or_cannot_stand_in_a_header_are_refused() {
    assert!(
        refusal([named("a"), named("b"), named("a")]).contains("\"a\": the name is used twice")
    );
    for name in ["", "a\nb", "ä", &"x".repeat(65)] {
        assert!(refusal([named(name)]).contains("name: got"), "{name:?}");
    }
}

/// In Redis their states would be one.
#[cfg(feature = "redis")]
#[test]
fn policies_of_a_group_that_redis_cannot_tell_apart_are_refused() {
    let mut known = std::collections::HashMap::new();
    let (one, other) = (0_u64..)
        .find_map(|number| {
            let policy = crate::store::PolicyId::new(&format!("p{number}")).in_group("client");
            let mut ids = policy.record_ids().unwrap().iter();
            ids.find_map(|id| known.insert(*id, number))
                .map(|other| (other, number))
        })
        .unwrap();
    let [one, other] = [one, other].map(|number| format!("p{number}"));
    let refused = refusal([&one, &other].map(|name| named(name).group("client")));
    for said in [&one, &other, "client", "rename one of them"] {
        assert!(refused.contains(said), "{refused}");
    }
    let apart = [named(&one).group("a"), named(&other).group("b")];
    assert!(Limiter::new(Silent, apart).is_ok());
}

#[test]
fn a_timeout_outside_the_range_is_refused() {
    for (timeout, fine) in [
        (Duration::ZERO, false),
        (Duration::from_micros(999), false),
        (Duration::from_millis(1), true),
        (MINUTE, true),
        (MINUTE + SECOND, false),
    ] {
        let built = Limiter::builder(Silent, []).timeout(timeout).build();
        assert_eq!(built.is_ok(), fine, "{timeout:?}");
    }
}

/// Never answers.
struct Hanging;

impl Store for Hanging {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Pending(Box::pin(std::future::pending()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_decision_has_50_ms_by_default() {
    let limiter = Limiter::new(Hanging, [named("api")]).unwrap();
    let asked = Instant::now();
    let decision = limiter.check("api", "alice").await.unwrap();
    assert_eq!(decision.store_failure(), Some(StoreErrorKind::TimedOut));
    assert_eq!(asked.elapsed(), Duration::from_millis(50));
}

#[test]
fn the_documentation_names_the_default_timeout() {
    let ms = DEFAULT_TIMEOUT.as_millis();
    let in_prose = format!(" {ms} ms");
    for (page, says) in [
        (include_str!("../../../README.md"), &in_prose),
        (include_str!("mod.rs"), &in_prose),
        (include_str!("../../../docs/failure-modes.md"), &in_prose),
        (include_str!("../../../docs/redis.md"), &in_prose),
        (include_str!("../../../docs/operations.md"), &in_prose),
        (
            include_str!("../../../docs/configuration.md"),
            &format!("timeout = \"{ms}ms\" "),
        ),
    ] {
        let title = page.lines().next();
        assert!(page.contains(says), "{title:?} does not say {says:?}");
    }
}

#[test]
fn the_debug_output_of_a_builder_has_no_secret() {
    let builder = Limiter::builder(Silent, [named("api")]);
    let shown = format!("{:?}", builder.key_secret("hunter2"));
    assert!(
        shown.contains("\"api\"") && shown.contains("timeout: 50ms"),
        "{shown}"
    );
    let bytes = format!("{:?}", b"hunter2");
    assert!(
        !shown.contains("hunter2") && !shown.contains("secret") && !shown.contains(&bytes),
        "{shown}"
    );
}

#[test]
fn a_secret_that_is_none_is_refused() {
    let built = |secret: &str| Limiter::builder(Silent, []).key_secret(secret).build();
    assert_eq!(
        built("").unwrap_err().to_string(),
        "key_secret: got none, expected a secret of at least 1 byte"
    );
    assert!(built("s").is_ok());
}
