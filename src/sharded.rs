//! Per-thread counters and `Arc` clones, for what all threads do at once.
//!
//! Two threads that write to the same cache line slow each other down.

use std::array;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
#[cfg(feature = "redis")]
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The number of places. With more threads than this, some share a place.
const PLACES: usize = 16;

/// The place of this thread.
fn here() -> usize {
    thread_local! {
        static PLACE: usize = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            NEXT.fetch_add(1, Ordering::Relaxed) % PLACES
        };
    }
    // A thread that is ending has no thread-local value any more.
    PLACE.try_with(|place| *place).unwrap_or_default()
}

/// One value for each place. Threads may share a place.
#[derive(Default)]
pub(crate) struct PerThread<T>([Place<T>; PLACES]);

#[derive(Default)]
#[repr(align(128))]
struct Place<T>(T);

impl<T> PerThread<T> {
    /// That of this thread.
    pub(crate) fn here(&self) -> &T {
        &self.0[here()].0
    }

    pub(crate) fn each(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|place| &place.0)
    }
}

/// A counter.
#[derive(Default)]
pub(crate) struct Count(PerThread<AtomicU64>);

impl Count {
    pub(crate) fn add(&self) {
        self.0.here().fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self) -> u64 {
        let counted = self.0.each();
        counted.map(|here| here.load(Ordering::Relaxed)).sum()
    }
}

/// A value for each place, behind a mutex. Only the threads of that place lock it, except for
/// `set_all`, which is rare.
#[cfg(feature = "redis")]
pub(crate) struct Locked<T>(PerThread<Mutex<T>>);

#[cfg(feature = "redis")]
impl<T> Locked<T> {
    pub(crate) fn new(value: impl Fn() -> T) -> Self {
        Self(PerThread(array::from_fn(|_| Place(Mutex::new(value())))))
    }

    /// That of this thread.
    pub(crate) fn here(&self) -> MutexGuard<'_, T> {
        lock(self.0.here())
    }

    /// Replaces the values one after the other: meanwhile some threads see the old value and some
    /// the new one.
    pub(crate) fn set_all(&self, value: impl Fn(usize) -> T) {
        for (number, place) in self.0.each().enumerate() {
            let old = std::mem::replace(&mut *lock(place), value(number));
            // Dropped outside the lock: dropping the last reference may run arbitrary code.
            drop(old);
        }
    }
}

#[cfg(feature = "redis")]
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic under the lock cannot leave inconsistent data.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A value to which every store call holds a reference, on any thread.
pub(crate) struct ShardedArc<T> {
    value: Arc<T>,
    refs: Arc<[ShardedRef<T>; PLACES]>,
}

/// A reference to the value. Clones share the reference count of the place where it was made.
pub(crate) struct ShardedRef<T>(Arc<Place<Arc<T>>>);

impl<T> ShardedArc<T> {
    pub(crate) fn new(value: T) -> Self {
        let value = Arc::new(value);
        let new = |_| ShardedRef(Arc::new(Place(Arc::clone(&value))));
        let refs = Arc::new(array::from_fn(new));
        Self { value, refs }
    }

    pub(crate) fn downgrade(&self) -> Weak<T> {
        Arc::downgrade(&self.value)
    }

    /// A reference that is counted in the place with this number.
    #[cfg(feature = "redis")]
    pub(crate) fn hold_at(&self, place: usize) -> ShardedRef<T> {
        self.refs[place].clone()
    }

    /// A reference that is counted in this thread's place.
    pub(crate) fn hold(&self) -> ShardedRef<T> {
        self.refs[here()].clone()
    }
}

impl<T> Deref for ShardedArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Clone for ShardedArc<T> {
    fn clone(&self) -> Self {
        Self {
            value: Arc::clone(&self.value),
            refs: Arc::clone(&self.refs),
        }
    }
}

impl<T> Clone for ShardedRef<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for ShardedRef<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.0
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// More than there are places.
    const THREADS: usize = 2 * PLACES + 1;

    #[test]
    fn nothing_is_missed_that_any_thread_counts() {
        let count = Count::default();
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| (0..1_000).for_each(|_| count.add()));
            }
        });
        assert_eq!(count.sum(), 1_000 * THREADS as u64);
    }

    #[test]
    fn a_value_lives_as_long_as_any_thread_holds_it() {
        let spread = ShardedArc::new(7);
        let value = spread.downgrade();
        let (spread, other) = (spread.clone(), spread);
        let holding: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|_| scope.spawn(|| spread.hold()))
                .collect();
            let held = threads.into_iter().map(|thread| thread.join().unwrap());
            held.collect()
        });
        drop((spread, other));
        for held in holding {
            assert_eq!((value.strong_count() > 0, *held), (true, 7));
        }
        assert_eq!(value.strong_count(), 0);
    }
}
