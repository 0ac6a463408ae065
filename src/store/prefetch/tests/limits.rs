//! The limit holds over the fleet in every history: to the permit, at every instant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::history::{Permits, histories, run};
use crate::algorithm::{Action, Algorithm};
use crate::limit::Limit;
use crate::time::{Micros, SECOND};

/// Limits that keep a debt: `gcra` and the buckets.
fn debts() -> impl Strategy<Value = Limit> {
    (0..3_u8, 50..3_000_u64, 1..1_000_u64).prop_map(|(kind, permits, burst)| {
        let burst = burst.min(permits);
        match kind {
            0 => Limit::gcra(permits, SECOND).burst(burst),
            1 => Limit::gcra(permits, 3 * SECOND),
            _ => Limit::token_bucket(burst, crate::limit::per_second(permits)),
        }
    })
}

fn windows() -> impl Strategy<Value = Limit> {
    (any::<bool>(), 50..3_000_u64).prop_map(|(is_aligned, permits)| match is_aligned {
        true => Limit::fixed_window(permits, SECOND / 2).aligned(),
        false => Limit::fixed_window(permits, SECOND),
    })
}

/// For limits that keep a debt: everything handed out would fit if it were asked for at its moment.
fn conforms(algorithm: &Algorithm, handed_out: &mut [Permits]) -> Result<(), TestCaseError> {
    handed_out.sort_by_key(|permits| permits.at);
    let mut state = algorithm.untouched();
    for Permits { at, count, .. } in handed_out {
        let action = Action::acquire(*count);
        let reading = algorithm.read(&state, *at, &action);
        prop_assert!(
            reading.fits,
            "{count} at {at:?}: {:?} too early",
            reading.wait
        );
        algorithm.commit(&mut state, *at, &action, reading);
    }
    Ok(())
}

/// For windows: none hands out more than the limit.
fn fills_windows(algorithm: &Algorithm, handed_out: &[Permits]) -> Result<(), TestCaseError> {
    let mut windows: HashMap<Micros, u64> = HashMap::new();
    for Permits {
        at, count, window, ..
    } in handed_out
    {
        prop_assert!(window.is_some(), "{count} at {at:?}, in no window");
        let used = windows.entry(window.unwrap_or_default()).or_default();
        *used += count;
        prop_assert!(*used <= algorithm.capacity(), "{used} in one window");
    }
    Ok(())
}

/// In every history under such a limit, this holds for what was handed out, and enough of it came
/// from batches.
fn holds(
    limits: impl Strategy<Value = Limit>,
    is_valid: impl Fn(&Algorithm, &mut [Permits]) -> Result<(), TestCaseError>,
) {
    let (all, of_batches) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut runner = TestRunner::new(Config::with_cases(120));
    let held = runner.run(&histories(limits), |history| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let handed_out = runtime.block_on(run(&history));
        let mut handed_out = handed_out.0.lock().unwrap();
        let of_batch = handed_out.iter().filter(|permits| permits.is_of_batch);
        of_batches.fetch_add(of_batch.count(), Ordering::SeqCst);
        all.fetch_add(handed_out.len(), Ordering::SeqCst);
        let algorithm = Algorithm::try_from(&history.limit).unwrap();
        is_valid(&algorithm, &mut handed_out)
    });
    held.unwrap();
    let (all, of_batches) = (all.into_inner(), of_batches.into_inner());
    assert!(of_batches > all / 10, "{of_batches} of {all} of batches");
}

#[test]
fn no_more_is_handed_out_over_the_fleet_than_a_debt_admits() {
    holds(debts(), conforms);
}

#[test]
fn no_more_is_handed_out_over_the_fleet_than_a_window_has() {
    holds(windows(), |algorithm, handed_out| {
        fills_windows(algorithm, handed_out)
    });
}

#[cfg(feature = "calendar")]
#[tokio::test(start_paused = true)]
async fn permits_held_lapse_where_a_calendars_window_ends() {
    use super::fleet::{Fleet, Subject, in_hand};
    use super::{MILLISECOND, Prefetch, warm_up};
    use crate::limit::Calendar;

    let (process, _) = Fleet::new().process();
    let limit = Limit::calendar(10_000, Calendar::day());
    let subject = Subject::under(limit, Some(Prefetch::new()));
    // Half a second before midnight.
    tokio::time::advance(6_399_500 * MILLISECOND).await;
    warm_up(&process, &subject, 490).await;
    let held = in_hand(&process, &subject, 1).expect("no trip");
    assert!(held.is_prefetched());
    tokio::time::advance(10 * MILLISECOND).await;
    assert!(in_hand(&process, &subject, 1).is_none());
}
