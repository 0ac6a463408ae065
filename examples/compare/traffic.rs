//! The traffic that every algorithm gets, in milliseconds from the start.

use std::time::Duration;

/// The duration of the traffic.
pub(crate) const LENGTH: Duration = Duration::from_secs(6);

/// The captions above the traffic, and their places.
pub(crate) const CAPTIONS: [(Duration, &str); 4] = [
    (Duration::from_millis(500), "5 a second"),
    (Duration::from_millis(2_000), "12, then 12"),
    (Duration::from_millis(3_600), "40 a second"),
    (Duration::from_millis(5_300), "nothing"),
];

struct Phase {
    from_ms: u64,
    every_ms: u64,
    requests: u64,
}

const fn phase(from_ms: u64, every_ms: u64, requests: u64) -> Phase {
    Phase {
        from_ms,
        every_ms,
        requests,
    }
}

const PHASES: [Phase; 4] = [
    // Below the limit.
    phase(25, 200, 5),
    // A burst on each side of a window's boundary, both larger than the limit of a window.
    phase(1_854, 8, 12),
    phase(2_054, 8, 12),
    // A client that keeps retrying while it is denied.
    phase(2_612, 25, 80),
];

/// The arrivals in ascending order.
pub(crate) fn offered() -> Vec<Duration> {
    let instants = PHASES.iter().flat_map(|phase| {
        let instant = |number| phase.from_ms + number * phase.every_ms;
        (0..phase.requests).map(instant)
    });
    instants.map(Duration::from_millis).collect()
}
