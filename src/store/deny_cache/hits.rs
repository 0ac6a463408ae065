//! `Hits`: a count to which many threads add at once.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const PARTS: usize = 16;

thread_local! {
    /// To which part this thread adds.
    static PART: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % PARTS
    };
}

/// In parts, so that threads do not wait for each other's cache lines.
#[derive(Default)]
pub(super) struct Hits([Part; PARTS]);

#[derive(Default)]
#[repr(align(128))]
struct Part(AtomicU64);

impl Hits {
    pub(super) fn add(&self) {
        // A thread that is about to end has none left.
        let part = PART.try_with(|part| *part).unwrap_or_default();
        self.0[part].0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn sum(&self) -> u64 {
        let parts = self.0.iter();
        parts.map(|part| part.0.load(Ordering::Relaxed)).sum()
    }
}
