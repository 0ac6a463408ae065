//! The memory of a key in the process, measured by a counting allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

use tower_throttle::{ManualClock, MemoryStore};

use crate::fill::fill;
use crate::limits::{Measured, Use};

/// The system's allocator, with a count of the allocated bytes.
struct Counting;

/// Wraps around instead of failing if more is freed than was counted.
static BYTES: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
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

/// The bytes per key of a memory store, including its share of the table.
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
