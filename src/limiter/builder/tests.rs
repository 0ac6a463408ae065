use tokio::time::Instant;

use super::*;
use crate::decision::Decisions;
use crate::error::StoreErrorKind;
use crate::limit::Limit;
use crate::store::{Answer, Check};
use crate::time::{MINUTE, SECOND};

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
        "policy \"api\": cost: got 0, expected 1 to 4294967295"
    );
    assert_eq!(
        refusal([named("api").cost(21)]),
        "policy \"api\": cost: got 21, expected at most what there ever is at once: the limit, or \
         its burst or capacity"
    );
    assert!(Limiter::new(Silent, [named("api").cost(20)]).is_ok());
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

#[test]
fn a_timeout_outside_the_range_is_refused() {
    for (timeout, fine) in [
        (Duration::ZERO, false),
        (Duration::from_micros(999), false),
        (Duration::from_millis(1), true),
        (MINUTE, true),
        (MINUTE + SECOND, false),
    ] {
        let built = Limiter::builder(Silent).timeout(timeout).build();
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
    let unless_said = format!("{ms} ms unless said");
    for (page, says) in [
        (
            include_str!("../../../README.md"),
            format!("A decision may take {ms} ms, unless"),
        ),
        (
            include_str!("../../lib.rs"),
            format!("A decision has {ms} ms ("),
        ),
        (
            include_str!("../../config/mod.rs"),
            format!("1 ms to 60 s | `\"{ms}ms\"` |"),
        ),
        (
            include_str!("../../../docs/configuration.md"),
            format!("timeout = \"{ms}ms\" "),
        ),
        (include_str!("mod.rs"), unless_said.clone()),
        (include_str!("../../../docs/faults.md"), unless_said.clone()),
        (include_str!("../../../docs/operations.md"), unless_said),
    ] {
        let title = page.lines().next();
        assert!(page.contains(&says), "{title:?} does not say {says:?}");
    }
}

#[test]
fn the_debug_output_of_a_builder_has_no_secret() {
    let builder = Limiter::builder(Silent).policy(named("api"));
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
    let built = |secret: &str| Limiter::builder(Silent).key_secret(secret).build();
    assert_eq!(
        built("").unwrap_err().to_string(),
        "key_secret: got none, expected a secret of at least 1 byte"
    );
    assert!(built("s").is_ok());
}
