//! What a key takes in the process, by an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use tower_throttle::{ManualClock, MemoryStore};

use crate::fill::fill;
use crate::limits::{Measured, Use};

/// The system's allocator, counting the bytes that it has given out.
struct Counting;

/// Wraps around rather than fails, were more given back than was counted.
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps the promises of `dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The bytes that each key of a memory store takes, its share of the table included.
pub(crate) async fn bytes_per_key(
    limit: &Measured,
    used: Use,
    keys: u64,
) -> Result<u64, Box<dyn Error>> {
    let clock = ManualClock::new();
    let store = MemoryStore::builder().clock(clock.clone()).build();
    let before = BYTES.load(Ordering::Relaxed);
    fill(&store, &clock, limit, used, keys).await?;
    let after = BYTES.load(Ordering::Relaxed);
    Ok(after.wrapping_sub(before).div_ceil(keys))
}
