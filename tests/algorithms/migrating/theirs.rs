//! The rules of other limiters, as their sources have them: whether a request at a millisecond since
//! the epoch passes.

use std::collections::{HashMap, VecDeque};

use super::Rule;

/// `excess` of ngx_http_limit_req_module.c in thousandths of a request, and the delay in
/// milliseconds of a request that passes. `rate` is in requests a second.
pub(super) fn nginx(rate: u64, burst: u64, delay: u64) -> impl FnMut(u64) -> Option<u64> {
    let mut node: Option<(u64, u64)> = None;
    move |now| {
        let excess = match node {
            Some((excess, last)) => (excess + 1_000).saturating_sub(rate * (now - last)),
            None => 0,
        };
        if excess > burst * 1_000 {
            return None;
        }
        node = Some((excess, now));
        Some(excess.saturating_sub(delay * 1_000) / rate)
    }
}

/// governor, Redis Cell and the layers around them: one request every `interval_ms`.
pub(super) fn gcra(interval_ms: u64, burst: u64) -> Rule {
    let mut arrival = 0;
    Box::new(move |now| {
        let passes = arrival <= now + (burst - 1) * interval_ms;
        if passes {
            arrival = arrival.max(now) + interval_ms;
        }
        passes
    })
}

/// request_rate_limiter.lua of Spring Cloud Gateway, and Envoy's local filter: tokens in
/// thousandths, `rate` of them a second.
pub(super) fn token_bucket(capacity: u64, rate: u64, cost: u64) -> Rule {
    let (mut tokens, mut filled_at) = (capacity * 1_000, 0);
    Box::new(move |now| {
        tokens = (tokens + rate * (now - filled_at)).min(capacity * 1_000);
        filled_at = now;
        let passes = tokens >= cost * 1_000;
        if passes {
            tokens -= cost * 1_000;
        }
        passes
    })
}

/// express-rate-limit, actix-limitation, flask-limiter and Laravel: a counter that the first
/// request starts, and that counts denied requests, too.
pub(super) fn window_from_first_request(limit: u64, window_ms: u64) -> Rule {
    let (mut count, mut end) = (0, 0);
    Box::new(move |now| {
        if end <= now {
            (count, end) = (0, now + window_ms);
        }
        count += 1;
        count <= limit
    })
}

/// Envoy's rate limit service: a counter named after the window on the clock, which counts denied
/// requests, too.
pub(super) fn window_on_the_clock(limit: u64, window_ms: u64) -> Rule {
    let mut counts = HashMap::new();
    Box::new(move |now| {
        let count = counts.entry(now / window_ms).or_insert(0);
        *count += 1;
        *count <= limit
    })
}

/// Kong with the policy `local`: such counters for several windows, which count what passes.
pub(super) fn windows_on_the_clock<const N: usize>(limits: [(u64, u64); N]) -> Rule {
    let mut counts = HashMap::new();
    Box::new(move |now| {
        let keys = limits.map(|(_, window_ms)| (window_ms, now / window_ms));
        let mut each = keys.iter().zip(limits);
        let passes = each.all(|(key, (limit, _))| *counts.entry(*key).or_insert(0) < limit);
        if passes {
            for key in keys {
                *counts.entry(key).or_insert(0) += 1;
            }
        }
        passes
    })
}

/// `SimpleRateThrottle` of Django REST framework.
pub(super) fn log(limit: usize, window_ms: u64) -> Rule {
    let mut history = VecDeque::new();
    Box::new(move |now| {
        while history
            .front()
            .is_some_and(|first| first + window_ms <= now)
        {
            history.pop_front();
        }
        let passes = history.len() < limit;
        if passes {
            history.push_back(now);
        }
        passes
    })
}

/// `sliding-window-counter` of flask-limiter: the share of the last window is rounded down.
pub(super) fn two_counters(limit: u64, window_ms: u64) -> Rule {
    let mut counts = HashMap::new();
    Box::new(move |now| {
        let window = now / window_ms;
        let before = counts.get(&(window - 1)).copied().unwrap_or(0);
        let share = before * (window_ms - now % window_ms) / window_ms;
        let count = counts.entry(window).or_insert(0);
        let passes = share + *count < limit;
        *count += u64::from(passes);
        passes
    })
}

/// `SlidingWindowRateLimiter` of .NET: what was taken in a segment is back when the window has moved
/// on by its number of segments.
pub(super) fn segments(limit: u64, window_ms: u64, segments: u64) -> Rule {
    let segment_ms = window_ms / segments;
    let mut taken = VecDeque::new();
    Box::new(move |now| {
        let segment = now / segment_ms;
        taken.retain(|then| then + segments > segment);
        let passes = (taken.len() as u64) < limit;
        if passes {
            taken.push_back(segment);
        }
        passes
    })
}
