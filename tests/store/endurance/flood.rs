//! The flood, and the process's memory after a part of it and after all of it.

use std::env;
use std::ops::Range;

use tower_throttle::store::Store;
use tower_throttle::{Limiter, Policy, SECOND};

use support::memory::resident;

/// How much a process may grow for other reasons: buffers, and the allocator's layout. Where the
/// system gives large pages, one is this large.
const OTHER_REASONS: u64 = 2 << 20;

/// Ten million if that is wanted, otherwise this many.
pub(crate) fn keys(few: u64) -> u64 {
    match env::var("THROTTLE_ENDURANCE") {
        Ok(wanted) if wanted == "1" => 10_000_000,
        Ok(wanted) => panic!("THROTTLE_ENDURANCE: got {wanted:?}, expected 1 or nothing"),
        Err(_) => few,
    }
}

/// How much more memory the process had than before the flood.
pub(crate) struct Grown {
    /// After the first fifth of the keys.
    pub(crate) early: u64,
    /// After all of them.
    pub(crate) late: u64,
}

impl Grown {
    /// Sends the keys, a part of them at a time.
    pub(crate) async fn under(
        what: &str,
        keys: u64,
        mut send: impl AsyncFnMut(Range<u64>),
    ) -> Self {
        let before = resident();
        let grown = || resident().saturating_sub(before);
        send(0..keys / 5).await;
        let early = grown();
        send(keys / 5..keys).await;
        let late = grown();
        let [early_mb, late_mb] = [early, late].map(|bytes| bytes as f64 / 1e6);
        let fifth = keys / 5;
        println!("{what}: {early_mb:.1} MB after {fifth} keys, {late_mb:.1} MB after {keys}");
        Self { early, late }
    }

    /// Four fifths of the keys have left next to nothing.
    pub(crate) fn assert_flat(&self) {
        let Self { early, late } = *self;
        let most = early + early / 25 + OTHER_REASONS;
        assert!(late <= most, "{early} bytes, then {late}: it grows");
    }

    /// All of them take no more than is documented.
    pub(crate) fn assert_at_most(&self, bytes: u64) {
        let most = bytes + OTHER_REASONS;
        assert!(self.late <= most, "{} bytes of {bytes}", self.late);
    }
}

/// A limiter that waits for as long as a busy machine needs.
pub(crate) fn patient(store: impl Store, policy: Policy) -> Limiter {
    let builder = Limiter::builder(store, [policy]);
    builder.timeout(60 * SECOND).build().unwrap()
}
