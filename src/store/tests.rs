use super::*;
use crate::error::StoreErrorKind;

/// Overrides every default of the trait.
struct Chosen;

impl Store for Chosen {
    fn ask(&self, _: &[Check<'_>]) -> Answer {
        Answer::Ready(Err(StoreError::new(StoreErrorKind::Full)))
    }

    fn recovered(&self, _: Duration) -> Option<Recovered> {
        Some(Box::pin(std::future::ready(())))
    }

    fn remembered(&self, _: &[Check<'_>]) -> Option<Decisions> {
        Some(Decisions::default())
    }

    fn given_back(&self) -> Option<GivenBack> {
        Some(Box::pin(std::future::ready(true)))
    }

    fn fails_in_parts(&self) -> bool {
        true
    }
}

/// Asks a store that has the chosen one in it.
fn ask(store: impl Store) {
    assert!(matches!(store.ask(&[]), Answer::Ready(Err(_))));
    assert!(store.recovered(Duration::ZERO).is_some());
    assert!(store.remembered(&[]).is_some());
    assert!(store.given_back().is_some());
    assert!(store.fails_in_parts());
}

#[test]
fn a_store_that_is_chosen_at_run_time_is_the_one_that_was_chosen() {
    ask(Box::new(Chosen) as Box<dyn Store>);
    ask(Arc::new(Chosen) as Arc<dyn Store>);
}

#[test]
fn a_deny_cache_tells_what_the_store_within_knows() {
    ask(DenyCache::new(Chosen));
}
