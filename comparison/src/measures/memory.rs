//! The memory store beside governor, which counts in process too.

use futures_util::FutureExt;
use tower_throttle::MemoryStore;

use super::in_turns::round;
use crate::load::Decide;
use crate::peers::Allowance;
use crate::peers::governor::Governor;
use crate::peers::ours::Ours;
use crate::round::{Contestant, Effort, Standings, take_turns};
use crate::table::{Table, Target};

const OURS: &str = "MemoryStore";
const GOVERNOR: &str = "governor, keyed";

/// Too many for the caches.
const KEYS: u64 = 100_000;

/// At most; aimed at is 1.
const TARGET: Target = Target::AtMost(1.3);

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "MemoryStore beside governor",
        "The time of `Limiter::check` over a MemoryStore, in multiples of a keyed check of \
         governor; both by a number as key.",
        &["1 thread", "2 threads"],
    );
    let settings = [
        ("one hot key, allowed", Allowance::BOUNDLESS, 1),
        ("one hot key, denied", Allowance::SCARCE, 1),
        ("many keys, allowed", Allowance::AMPLE, KEYS),
    ];
    for (what, allowance, keys) in settings {
        let ratios = [1, 2].map(|threads| {
            eprintln!("  {what}, threads: {threads}");
            let standings = on(threads, allowance, keys, effort);
            standings.ratio(|round| 1.0 / round.per_second(), OURS, GOVERNOR)
        });
        table.row(what, TARGET, ratios);
    }
    table
}

fn on(threads: u64, allowance: Allowance, keys: u64, effort: Effort) -> Standings {
    let ours = Ours::with(MemoryStore::new(), allowance);
    let governor = Governor::new(allowance);
    let by_ours = move |key| ours.decide(key).now_or_never().expect("no trip");
    let by_governor = move |key| governor.check(key);
    (0..keys).for_each(|key| {
        by_ours(key);
        by_governor(key);
    });
    let contestants = [
        Contestant::new(OURS, move || round(threads, keys, effort.lasting, &by_ours)),
        Contestant::new(GOVERNOR, move || {
            round(threads, keys, effort.lasting, &by_governor)
        }),
    ];
    take_turns(&contestants, effort)
}
