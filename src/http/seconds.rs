//! The whole seconds of a decision in headers.

use crate::decision::Decision;

/// The whole seconds for `Retry-After`; `None` if waiting does not help or is not needed.
///
/// Rounded up, at least 1. The `t` of the same policy is never later, so that the two do not
/// contradict each other.
pub(super) fn retry_after_secs(decision: &Decision) -> Option<u64> {
    decision.retry_after()?;
    let wait = match decision.counts_in_time() {
        true => decision.retry_after,
        // Under a concurrency limit `retry_after` is the time until a lease would expire, but
        // requests end earlier. Only a ban has to be waited out.
        false => decision.ban,
    };
    Some(wait.ceil_secs().max(1))
}

/// `w`: the window in whole seconds, rounded up.
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
        // A client whose cost exceeds what remains may come back at that time, not only when the
        // remaining permits would be spent. A request that may wait is admitted before permits are
        // available.
        Some(_) => secs.min(decision.retry_after.ceil_secs()),
        None => secs,
    };
    secs.max(1)
}
