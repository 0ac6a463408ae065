//! A penalty box: a subject that is denied too often is banned.

use tower_throttle::{DAY, Decision, HOUR, Limit, Limiter, MINUTE, Outcome, Penalty, Policy};

mod layer;
mod limiter;

/// One permit a day; three denials within a minute cause a ban of an hour.
fn strict() -> Policy {
    Policy::new("login", Limit::fixed_window(1, DAY)).penalty(Penalty::after(3, MINUTE, HOUR))
}

async fn check(limiter: &Limiter) -> Decision {
    limiter.check("login", "alice").await.unwrap()
}

/// Uses the only permit, and is denied until the ban. Returns that denial.
async fn ban(limiter: &Limiter) -> Decision {
    assert!(check(limiter).await.is_allowed());
    for _ in 0..2 {
        assert_eq!(check(limiter).await.outcome(), Outcome::Denied);
    }
    let banned = check(limiter).await;
    assert_eq!(banned.outcome(), Outcome::Banned);
    banned
}
