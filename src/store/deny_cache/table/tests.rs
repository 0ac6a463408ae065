use std::sync::Barrier;
use std::thread;

use super::super::entry::WAYS;
use super::*;
use crate::algorithm::{Action, Ask, decide};
use crate::limit::Limit;
use crate::time::SECOND;

const NOW: Micros = Micros::new(1_800_000_000_000_000);

fn asked(now: Micros) -> Moment {
    Moment { now, may_ask: true }
}

fn denied() -> (Algorithm, Acquire, LaterVerdict) {
    let algorithm = Algorithm::try_from(&Limit::gcra(1, SECOND)).unwrap();
    let action = Action::acquire(1);
    let mut state = algorithm.untouched();
    let first = algorithm.read(&state, NOW, &action);
    algorithm.commit(&mut state, NOW, &action, first);
    let second = algorithm.read(&state, NOW, &action);
    let ask = Ask {
        algorithm: &algorithm,
        action: &action,
        is_shadow: false,
        is_extra_rate: false,
    };
    let known = LaterVerdict::by(
        &algorithm,
        &action,
        &decide(std::iter::once(ask), &[second])[0],
    )
    .unwrap();
    let Action::Acquire(take) = action else {
        panic!("it takes")
    };
    (algorithm, take, known)
}

fn recalls(table: &Table, key: u128) -> bool {
    let (algorithm, take, _) = denied();
    matches!(
        table.recall(key, &algorithm, &take, asked(NOW)),
        Recalled::Reading(reading) if !reading.fits
    )
}

fn remember(table: &Table, key: u128, version: Version) {
    table.remember(key, version, denied().2, NOW, NOW);
}

#[test]
fn a_denial_older_than_the_last_change_is_not_remembered() {
    let table = Table::new(SECOND.into());
    let version = table.version(7);
    table.forget(7);
    remember(&table, 7, version);
    assert!(!recalls(&table, 7));
    remember(&table, 7, table.version(7));
    assert!(recalls(&table, 7));
    table.forget(7);
    assert!(!recalls(&table, 7));
}

#[test]
fn forgetting_while_another_thread_remembers_is_never_lost() {
    for _ in 0..2_000 {
        let (table, both) = (Table::new(SECOND.into()), Barrier::new(2));
        let version = table.version(7);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                remember(&table, 7, version);
            });
            both.wait();
            table.forget(7);
        });
        assert!(!recalls(&table, 7));
    }
}

#[test]
fn the_whole_table_takes_no_more_than_is_documented() {
    // Behind the two counts of an `Arc`, in a block for which the allocator keeps one word.
    let entry = (2 + 1) * size_of::<usize>() + size_of::<Entry>();
    let set = size_of::<Set>() + WAYS * entry.next_multiple_of(16);
    assert_eq!(SHARDS * SETS * WAYS, 65_536);
    assert!(SHARDS * (size_of::<Shard>() + SETS * set) <= 14 << 20);
}

#[test]
fn one_of_many_concurrent_readers_renews_a_denial() {
    let (table, key) = (Table::new(SECOND.into()), 7);
    remember(&table, key, table.version(key));
    let (algorithm, take, _) = denied();
    let half = NOW.saturating_add(Micros::new(500_000));
    let asks = || {
        let recalled = table.recall(key, &algorithm, &take, asked(half));
        assert!(!matches!(recalled, Recalled::Nothing));
        matches!(recalled, Recalled::TimeToAsk)
    };
    let all = Barrier::new(8);
    let told = thread::scope(|scope| {
        let threads = [(); 8].map(|()| {
            scope.spawn(|| {
                all.wait();
                (0..100).filter(|_| asks()).count()
            })
        });
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(told.iter().sum::<usize>(), 1);
}

#[test]
fn no_hit_is_lost_when_many_threads_add_at_once() {
    let table = Table::new(SECOND.into());
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| (0..1_000).for_each(|_| table.hit()));
        }
    });
    assert_eq!(table.hits(), 20_000);
}
