//! Histories of a fleet, and what is handed out in them.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use proptest::prelude::*;
use tokio::task::JoinSet;

use super::fleet::{Fleet, Subject, Way, ask, settle};
use crate::algorithm::Action;
use crate::decision::Decision;
use crate::limit::Limit;
use crate::store::prefetch::{Prefetch, Prefetching};
use crate::time::{Clock as _, Micros, SECOND};

#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) limit: Limit,
    prefetch: Prefetch,
    steps: Vec<(usize, Step)>,
}

/// One action of a process.
#[derive(Clone, Debug)]
enum Step {
    /// Asks this often for this many permits, with these pauses.
    Ask {
        times: u64,
        cost: u64,
        pause: Duration,
    },
    /// A process that does not prefetch takes everything there is.
    Drain,
    /// Like `Drain`, but this long before everything is paid back; then all processes ask for what
    /// they hold. At that moment a permit that is a little late is one too many.
    Brink(Duration),
    /// From now on round trips take this long, in milliseconds.
    Slow {
        there: u64,
        back: u64,
    },
    /// The process is killed and replaced.
    Crash,
    /// The process ends in order and is replaced.
    Restart,
    Wait(Duration),
}

const PROCESSES: usize = 4;

pub(super) fn histories(limit: impl Strategy<Value = Limit>) -> impl Strategy<Value = History> {
    let prefetch = (0.05..1.0, 10..2_000_u64).prop_map(|(share, age)| {
        let age = Duration::from_millis(age);
        Prefetch::new().share(share).max_age(age)
    });
    let cost = prop_oneof![5 => Just(1_u64), 1 => 2..6_u64];
    let micros = |range: std::ops::Range<u64>| range.prop_map(Duration::from_micros);
    let step = prop_oneof![
        12 => (1..60_u64, cost, micros(0..3_000))
            .prop_map(|(times, cost, pause)| Step::Ask { times, cost, pause }),
        1 => (0..60_u64, 0..8_u64).prop_map(|(there, back)| Step::Slow {
            there: there.saturating_sub(50),
            back,
        }),
        2 => Just(Step::Drain),
        2 => micros(0..10_000).prop_map(Step::Brink),
        1 => Just(Step::Crash),
        1 => Just(Step::Restart),
        2 => micros(0..400_000).prop_map(Step::Wait),
    ];
    let steps = prop::collection::vec((0..PROCESSES, step), 20..120);
    (limit, prefetch, steps).prop_map(|(limit, prefetch, steps)| History {
        limit,
        prefetch,
        steps,
    })
}

/// What was handed out.
#[derive(Clone, Default)]
pub(super) struct HandedOut(pub(super) Arc<Mutex<Vec<Permits>>>);

pub(super) struct Permits {
    pub(super) at: Micros,
    pub(super) count: u64,
    /// The end of the store's window at that moment, if one was open.
    pub(super) window: Option<Micros>,
    pub(super) is_of_batch: bool,
}

impl HandedOut {
    /// Notes a decision on a question asked at `now`, with what a look showed then.
    fn note(&self, now: Micros, count: u64, decision: &Decision, look: &Decision) {
        if !decision.is_allowed() {
            return;
        }
        let is_of_batch = decision.is_prefetched();
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

/// With its connection to the store.
type Process = (Arc<Prefetching<Arc<Way>>>, Arc<Way>);

/// A running history.
struct Run {
    fleet: Fleet,
    prefetched: Subject,
    plain: Subject,
    processes: Vec<Process>,
    asking: JoinSet<()>,
    handed_out: HandedOut,
}

impl Run {
    fn of(history: &History) -> Self {
        let fleet = Fleet::new();
        Self {
            prefetched: Subject::under(history.limit, Some(history.prefetch)),
            plain: Subject::under(history.limit, None),
            processes: (0..PROCESSES).map(|_| start(&fleet)).collect(),
            asking: JoinSet::new(),
            handed_out: HandedOut::default(),
            fleet,
        }
    }

    async fn step(&mut self, position: usize, step: &Step) {
        match step {
            Step::Ask { times, cost, pause } => {
                for _ in 0..*times {
                    self.ask(position, *cost);
                    if !pause.is_zero() {
                        tokio::time::advance(*pause).await;
                    }
                    tokio::task::yield_now().await;
                }
            }
            Step::Drain => self.drain(),
            Step::Brink(before) => {
                let paid_back = self.fleet.look(&self.plain).reset_after();
                let wait = paid_back.saturating_sub(*before);
                // Any later, nobody would hold anything.
                if wait < SECOND / 10 {
                    tokio::time::advance(wait).await;
                    settle().await;
                    self.drain();
                    for position in (0..PROCESSES).cycle().take(60 * PROCESSES) {
                        self.ask(position, 1);
                        tokio::task::yield_now().await;
                    }
                }
            }
            Step::Slow { there, back } => {
                let way = &self.processes[position].1;
                *way.there.lock().unwrap() = Duration::from_millis(*there);
                *way.back.lock().unwrap() = Duration::from_millis(*back);
            }
            Step::Crash | Step::Restart => {
                let is_crash = matches!(step, Step::Crash);
                let way = &self.processes[position].1;
                way.is_cut.store(is_crash, Ordering::SeqCst);
                self.processes[position] = start(&self.fleet);
                settle().await;
            }
            Step::Wait(time) => {
                tokio::time::advance(*time).await;
                settle().await;
            }
        }
    }

    fn ask(&mut self, position: usize, cost: u64) {
        // One process does not prefetch.
        let subject = if position == 0 {
            self.plain.clone()
        } else {
            self.prefetched.clone()
        };
        let process = Arc::clone(&self.processes[position].0);
        let (fleet, handed_out) = (self.fleet.clone(), self.handed_out.clone());
        self.asking.spawn(async move {
            let (now, look) = (fleet.clock.now(), fleet.look(&subject));
            if let Ok(decision) = ask(&process, &subject, Action::acquire(cost)).await {
                handed_out.note(now, cost, &decision, &look);
            }
        });
    }

    fn drain(&self) {
        let (now, look) = (self.fleet.clock.now(), self.fleet.look(&self.plain));
        let take = Action::acquire(look.remaining);
        let decisions = self.fleet.memory.decide(&[self.plain.check(take)]).unwrap();
        self.handed_out
            .note(now, look.remaining, &decisions[0], &look);
    }
}

fn start(fleet: &Fleet) -> Process {
    let (process, way) = fleet.process();
    (Arc::new(process), way)
}

pub(super) async fn run(history: &History) -> HandedOut {
    let mut run = Run::of(history);
    for (position, step) in &history.steps {
        run.step(*position, step).await;
    }
    // Questions of killed processes are never answered.
    let answered = async { while run.asking.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(SECOND, answered).await;
    run.handed_out
}
