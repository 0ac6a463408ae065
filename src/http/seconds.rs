//! What headers say of a decision in whole seconds.

use crate::decision::Decision;

/// The whole seconds for `Retry-After`; `None` if waiting does not help or is not needed.
///
/// Rounded up, at least 1. The `t` of the same policy is never later, so that the two do not
/// contradict each other.
pub(super) fn retry_after_secs(decision: &Decision) -> Option<u64> {
    decision.retry_after()?;
    let wait = match decision.counts_in_time() {
        true => decision.retry_after,
        // `retry_after` is the time until a lease lapses here, but nobody waits for that: requests
        // end earlier. A ban has to be waited out.
        false => decision.ban,
    };
    Some(wait.ceil_secs().max(1))
}

/// `w`: the window in whole seconds, rounded up; at least 1, as no window is empty.
pub(super) fn window_secs(decision: &Decision) -> u64 {
    decision.window.ceil_secs()
}

/// `t`: how long the remaining permits have to last, or how long until a denied request fits.
pub(super) fn renewal_secs(decision: &Decision) -> u64 {
    let secs = if decision.renews_whole || decision.remaining == 0 {
        decision.renews_after.ceil_secs()
    } else {
        // From the announced window, not the exact one: r/t must not promise more than q/w.
        let spread = u128::from(decision.remaining) * u128::from(window_secs(decision));
        let secs = spread.div_ceil(decision.limit.max(1).into());
        u64::try_from(secs).unwrap_or(u64::MAX)
    };
    let secs = match decision.retry_after() {
        // A client that asked for more than remains may come back then, not only when the
        // remaining permits would be spent. One that may wait is let in before there are any.
        Some(_) => secs.min(decision.retry_after.ceil_secs()),
        None => secs,
    };
    secs.max(1)
}
