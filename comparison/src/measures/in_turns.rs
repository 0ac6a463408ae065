//! Deciders without round trips, in turns, on one or more threads.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use crate::clock::process_cpu;
use crate::random::Random;
use crate::round::Round;

/// The number of decisions between two looks at the clock.
const STRIDE: u64 = 256;

/// Asks from this many threads, about any of this many keys, for this long.
pub fn round(
    threads: u64,
    keys: u64,
    lasting: Duration,
    decide: &(impl Fn(u64) -> bool + Sync),
) -> Round {
    let (cpu, started) = (process_cpu(), Instant::now());
    let counts = thread::scope(|scope| {
        let asking: Vec<_> = (0..threads)
            .map(|seed| scope.spawn(move || ask(seed, keys, lasting, decide)))
            .collect();
        let counts = asking.into_iter().map(|one| one.join().expect("decisions"));
        counts.collect::<Vec<_>>()
    });
    Round {
        decisions: counts.iter().map(|(decisions, _)| decisions).sum(),
        allowed: counts.iter().map(|(_, allowed)| allowed).sum(),
        elapsed: started.elapsed(),
        client_cpu: process_cpu() - cpu,
        ..Round::default()
    }
}

fn ask(seed: u64, keys: u64, lasting: Duration, decide: &impl Fn(u64) -> bool) -> (u64, u64) {
    let mut random = Random::new(seed);
    let (mut decisions, mut allowed) = (0, 0);
    let started = Instant::now();
    while started.elapsed() < lasting {
        for _ in 0..STRIDE {
            allowed += u64::from(black_box(decide(random.below(keys))));
        }
        decisions += STRIDE;
    }
    (decisions, allowed)
}
