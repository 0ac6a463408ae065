//! The limit holds over the fleet, whatever the histories: to the permit, at every instant.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::task::JoinSet;

use super::fleet::{Fleet, Subject, Way, ask, settle};
use crate::algorithm::{Action, Algorithm};
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::quota::{Leased, QuotaLease};
use crate::time::{Clock as _, Micros, SECOND};

#[derive(Clone, Debug)]
struct History {
    limit: Limit,
    lease: QuotaLease,
    steps: Vec<(usize, Step)>,
}

/// What one process does.
#[derive(Clone, Debug)]
enum Step {
    /// Asks so often for so many, with these pauses.
    Ask {
        times: u32,
        cost: u32,
        pause: Duration,
    },
    /// Somebody without leases takes all that there is.
    Drain,
    /// Trips take so long from now on, in milliseconds.
    Slow {
        there: u64,
        back: u64,
    },
    /// Is killed, and another one takes its place.
    Crash,
    /// Ends in order, and another one takes its place.
    Restart,
    Wait(Duration),
}

const PROCESSES: usize = 4;

fn histories() -> impl Strategy<Value = History> {
    let limit = (0..5_u8, 50..3_000_u32, 1..1_000_u32).prop_map(|(kind, permits, burst)| {
        let burst = burst.min(permits);
        match kind {
            0 => Limit::gcra(permits, SECOND).burst(burst),
            1 => Limit::gcra(permits, 3 * SECOND),
            2 => Limit::token_bucket(burst, crate::limit::per_second(permits)),
            3 => Limit::fixed_window(permits, SECOND),
            _ => Limit::fixed_window(permits, SECOND / 2).aligned(),
        }
    });
    let lease = (0.05..1.0, 10..2_000_u64).prop_map(|(share, age)| {
        let age = Duration::from_millis(age);
        QuotaLease::new().share(share).max_age(age)
    });
    let cost = prop_oneof![5 => Just(1_u32), 1 => 2..6_u32];
    let micros = |range: std::ops::Range<u64>| range.prop_map(Duration::from_micros);
    let step = prop_oneof![
        12 => (1..60_u32, cost, micros(0..3_000))
            .prop_map(|(times, cost, pause)| Step::Ask { times, cost, pause }),
        1 => (0..60_u64, 0..8_u64).prop_map(|(there, back)| Step::Slow {
            there: there.saturating_sub(50),
            back,
        }),
        2 => Just(Step::Drain),
        1 => Just(Step::Crash),
        1 => Just(Step::Restart),
        2 => micros(0..400_000).prop_map(Step::Wait),
    ];
    let steps = prop::collection::vec((0..PROCESSES, step), 20..120);
    (limit, lease, steps).prop_map(|(limit, lease, steps)| History {
        limit,
        lease,
        steps,
    })
}

/// What was handed out.
#[derive(Clone, Default)]
struct HandedOut(Arc<Mutex<Vec<Permits>>>);

struct Permits {
    at: Micros,
    count: u32,
    /// When the store's window ends in which it was, if one was open.
    window: Option<Micros>,
    is_of_batch: bool,
}

impl HandedOut {
    /// Notes a decision on a question that was asked at `now`, when a look showed this.
    fn note(&self, now: Micros, count: u32, decision: &Decision, look: &Decision) {
        if !decision.is_allowed() {
            return;
        }
        let is_of_batch = decision.receipt.at.is_zero();
        let (at, window) = match is_of_batch {
            true => (now, look),
            false => (decision.receipt.at, decision),
        };
        let is_open = !window.reset_after.is_zero();
        self.0.lock().unwrap().push(Permits {
            at,
            count,
            window: is_open.then(|| at.saturating_add(window.renews_after)),
            is_of_batch,
        });
    }
}

async fn run(history: &History) -> HandedOut {
    let fleet = Fleet::new();
    let leased = Subject::under(history.limit, Some(history.lease));
    let plain = Subject::under(history.limit, None);
    let mut processes: Vec<(Arc<Leased<Arc<Way>>>, Arc<Way>)> = (0..PROCESSES)
        .map(|_| {
            let (process, way) = fleet.process();
            (Arc::new(process), way)
        })
        .collect();
    let handed_out = HandedOut::default();
    let mut asking = JoinSet::new();
    for (position, step) in &history.steps {
        let (process, way) = &processes[*position];
        match step {
            Step::Ask { times, cost, pause } => {
                // One process knows nothing of leases.
                let subject = if *position == 0 { &plain } else { &leased };
                for _ in 0..*times {
                    let (process, subject) = (Arc::clone(process), subject.clone());
                    let (fleet, handed_out, cost) = (fleet.clone(), handed_out.clone(), *cost);
                    asking.spawn(async move {
                        let (now, look) = (fleet.clock.now(), fleet.look(&subject));
                        if let Ok(decision) = ask(&process, &subject, Action::take(cost)).await {
                            handed_out.note(now, cost, &decision, &look);
                        }
                    });
                    if !pause.is_zero() {
                        tokio::time::advance(*pause).await;
                    }
                    tokio::task::yield_now().await;
                }
            }
            Step::Drain => {
                let (now, look) = (fleet.clock.now(), fleet.look(&plain));
                let take = Action::take(look.remaining);
                let decisions = fleet.memory.decide(&[plain.check(take)]).unwrap();
                handed_out.note(now, look.remaining, &decisions[0], &look);
            }
            Step::Slow { there, back } => {
                *way.there.lock().unwrap() = Duration::from_millis(*there);
                *way.back.lock().unwrap() = Duration::from_millis(*back);
            }
            Step::Crash | Step::Restart => {
                let is_crash = matches!(step, Step::Crash);
                way.is_cut.store(is_crash, Ordering::SeqCst);
                let (process, way) = fleet.process();
                processes[*position] = (Arc::new(process), way);
                settle().await;
            }
            Step::Wait(time) => {
                tokio::time::advance(*time).await;
                settle().await;
            }
        }
    }
    // Those of processes that were killed are never answered.
    let answered = async { while asking.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(SECOND, answered).await;
    handed_out
}

/// Of what keeps a debt: all that was handed out would fit if it were asked for at its moment.
fn conforms(algorithm: &Algorithm, handed_out: &mut [Permits]) -> Result<(), TestCaseError> {
    handed_out.sort_by_key(|permits| permits.at);
    let mut state = algorithm.untouched();
    for Permits { at, count, .. } in handed_out {
        let action = Action::take(*count);
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

/// Of windows: in none more is handed out than it has.
fn fills_windows(algorithm: &Algorithm, handed_out: &[Permits]) -> Result<(), TestCaseError> {
    let mut windows: HashMap<Micros, u32> = HashMap::new();
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

#[test]
fn no_more_is_handed_out_over_the_fleet_than_the_limit_admits() {
    let (all, of_batches) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut runner = TestRunner::new(Config::with_cases(200));
    let held = runner.run(&histories(), |history| {
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
        match algorithm.name() {
            "fixed_window" => fills_windows(&algorithm, &handed_out),
            _ => conforms(&algorithm, &mut handed_out),
        }
    });
    held.unwrap();
    let (all, of_batches) = (all.into_inner(), of_batches.into_inner());
    assert!(of_batches > all / 10, "{of_batches} of {all} of batches");
}
