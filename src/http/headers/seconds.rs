//! What headers say of a decision in whole seconds.

use crate::decision::Decision;

/// The whole seconds for `Retry-After`; `None` when waiting does not help or is not needed.
///
/// Rounded up, at least 1. The `t` of the same policy is never after it, so that the two do not contradict
/// each other.
pub(in crate::http) fn retry_after_secs(decision: &Decision) -> Option<u64> {
    decision.retry_after()?;
    let wait = match counts_in_time(decision) {
        true => decision.retry_after,
        // Else until a lease lapses, which is not what anybody waits for: requests end before. A ban does not.
        false => decision.ban,
    };
    Some(wait.ceil_secs().max(1))
}

/// Whether permits come back with time, not with the end of those who hold them.
pub(in crate::http) fn counts_in_time(decision: &Decision) -> bool {
    !decision.window.is_zero()
}

/// `w`: the window in whole seconds, rounded up; at least 1, as no window is empty.
pub(super) fn window_secs(decision: &Decision) -> u64 {
    decision.window.ceil_secs()
}

/// `t`: how long the remaining permits have to last, or until there are enough for who was denied.
pub(super) fn renewal_secs(decision: &Decision) -> u64 {
    let secs = if decision.renews_whole || decision.remaining == 0 {
        decision.renews_after.ceil_secs()
    } else {
        // From the announced window, not the exact one: r/t must not promise more than q/w.
        let spread = u64::from(decision.remaining).saturating_mul(window_secs(decision));
        let spread = spread.div_ceil(decision.limit.max(1).into());
        match decision.retry_after() {
            // Who asked for more than remains is to come back by then, and not when all of it would be spent.
            Some(_) => spread.min(decision.retry_after.ceil_secs()),
            None => spread,
        }
    };
    secs.max(1)
}
