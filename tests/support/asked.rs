//! What a limiter has decided about a permit.

use tower_throttle::{Decision, Denied, Permit};

/// The decision of the only policy that was asked, whether it admits or denies.
pub fn decision(asked: &Result<Permit, Denied>) -> Decision {
    let verdict = match asked {
        Ok(permit) => Some(permit.verdict()),
        Err(denied) => denied.verdict(),
    };
    let Some(verdict) = verdict else {
        panic!("nothing was decided: {asked:?}");
    };
    let decisions: Vec<_> = verdict.iter().map(|(_, decision)| *decision).collect();
    let [decision] = decisions[..] else {
        panic!("not one policy: {verdict:?}");
    };
    decision
}
