//! `PerPolicy`: an observer's state for each policy, found by name without a lock or an allocation.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// One `T` for each policy seen so far. Operators choose the names, so their number is bounded. The
/// `T` of a removed policy stays.
pub(crate) struct PerPolicy<T>(ArcSwap<Each<T>>);

/// Sorted by name: a lookup takes a few comparisons and stores no hash.
type Each<T> = Vec<(Arc<str>, Arc<T>)>;

impl<T> PerPolicy<T> {
    pub(crate) fn new() -> Self {
        Self(ArcSwap::default())
    }

    /// Calls `work` with the policy's `T`, which is created on first use.
    pub(crate) fn with<R>(
        &self,
        policy: &str,
        make: impl FnOnce() -> T,
        work: impl FnOnce(&T) -> R,
    ) -> R {
        let known = self.0.load();
        match place_of(policy, &known) {
            Ok(place) => work(&known[place].1),
            Err(_) => work(&self.add(policy, Arc::new(make()))),
        }
    }

    /// The policy's `T`: `new`, unless another thread was first.
    #[cold]
    fn add(&self, policy: &str, new: Arc<T>) -> Arc<T> {
        let name: Arc<str> = policy.into();
        let before = self.0.rcu(|known| {
            let mut known = Each::clone(known);
            if let Err(place) = place_of(policy, &known) {
                known.insert(place, (Arc::clone(&name), Arc::clone(&new)));
            }
            known
        });
        match place_of(policy, &before) {
            Ok(place) => Arc::clone(&before[place].1),
            Err(_) => new,
        }
    }

    /// All policies, sorted by name.
    pub(crate) fn all(&self) -> Arc<Each<T>> {
        self.0.load_full()
    }
}

fn place_of<T>(policy: &str, known: &Each<T>) -> Result<usize, usize> {
    known.binary_search_by(|(name, _)| (**name).cmp(policy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_has_its_own_and_keeps_it() {
        let per_policy = PerPolicy::new();
        for (turn, policy) in ["b", "a", "c", "b", "c", "a"].into_iter().enumerate() {
            let found = per_policy.with(policy, || turn, |first| *first);
            assert_eq!(
                found,
                ["b", "a", "c"].iter().position(|of| *of == policy).unwrap()
            );
        }
        let names: Vec<_> = per_policy
            .all()
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        assert_eq!(names, ["a", "b", "c"].map(Arc::from));
    }

    #[test]
    fn those_who_come_first_at_once_find_the_same() {
        let per_policy = &PerPolicy::new();
        let found: Vec<usize> = std::thread::scope(|scope| {
            let first = |me| scope.spawn(move || per_policy.with("api", || me, |first| *first));
            let threads: Vec<_> = (0..8).map(first).collect();
            let joined = threads.into_iter().map(|thread| thread.join().unwrap());
            joined.collect()
        });
        assert!(found.iter().all(|one| *one == found[0]), "{found:?}");
    }
}
