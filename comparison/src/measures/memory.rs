//! The memory store compared with governor, which also counts in process.

use tower_throttle::MemoryStore;

use super::in_turns::round;
use crate::peers::governor::Governor;
use crate::peers::ours::Ours;
use crate::peers::{Allowance, name_of};
use crate::round::{Contestant, Effort, Standings, take_turns};
use crate::table::{Table, Target};

const OURS: &str = "MemoryStore";
const GOVERNOR: &str = "governor, keyed";

/// Too many for the caches.
const KEYS: u64 = 100_000;

/// An upper bound; the aim is 1.
const TARGET: Target = Target::AtMost(1.3);

/// Asks from this many threads about this many keys.
type Ask = fn(u64, Allowance, u64, Effort) -> Standings;

pub fn run(effort: Effort) -> Table {
    let mut table = Table::new(
        "MemoryStore beside governor",
        "The time of `Limiter::check` over MemoryStore, in multiples of a keyed check by \
         governor. Keys are numbers, or texts that neither has to make or copy.",
        &["1 thread", "2 threads"],
    );
    let settings = [
        ("one hot key, allowed", Allowance::BOUNDLESS, 1),
        ("one hot key, denied", Allowance::SCARCE, 1),
        ("many keys, allowed", Allowance::AMPLE, KEYS),
    ];
    let kinds: [(&str, Ask); 2] = [("a number", by_numbers), ("a text", by_texts)];
    for (kind, on) in kinds {
        for (what, allowance, keys) in settings {
            let ratios = [1, 2].map(|threads| {
                eprintln!("  {what}, by {kind}, threads: {threads}");
                let standings = on(threads, allowance, keys, effort);
                standings.ratio(|round| 1.0 / round.per_second(), OURS, GOVERNOR)
            });
            table.row(format!("{what}, by {kind}"), TARGET, ratios);
        }
    }
    table
}

fn by_numbers(threads: u64, allowance: Allowance, keys: u64, effort: Effort) -> Standings {
    let ours = Ours::with(MemoryStore::new(), allowance);
    let governor = Governor::new(allowance);
    let by_ours = |key| ours.decide_at_once(key);
    let by_governor = |key| governor.check(&key);
    on(threads, keys, effort, by_ours, by_governor)
}

fn by_texts(threads: u64, allowance: Allowance, keys: u64, effort: Effort) -> Standings {
    let ours = Ours::with(MemoryStore::new(), allowance);
    let governor = Governor::new(allowance);
    let names: Vec<String> = (0..keys).map(name_of).collect();
    let by_ours = |key| ours.decide_at_once(&names[key as usize]);
    let by_governor = |key| governor.check(&names[key as usize]);
    on(threads, keys, effort, by_ours, by_governor)
}

fn on(
    threads: u64,
    keys: u64,
    effort: Effort,
    by_ours: impl Fn(u64) -> bool + Sync,
    by_governor: impl Fn(u64) -> bool + Sync,
) -> Standings {
    (0..keys).for_each(|key| {
        by_ours(key);
        by_governor(key);
    });
    let contestants = [
        Contestant::new(OURS, || round(threads, keys, effort.lasting, &by_ours)),
        Contestant::new(GOVERNOR, || {
            round(threads, keys, effort.lasting, &by_governor)
        }),
    ];
    take_turns(&contestants, effort)
}
