use std::sync::Barrier;
use std::thread;

use super::*;
use crate::algorithm::{Action, Ask, decide_alone};
use crate::limit::Limit;
use crate::time::SECOND;

const NOW: Micros = Micros::new(1_800_000_000_000_000);

fn denied() -> (Algorithm, Take, Known) {
    let algorithm = Algorithm::try_from(&Limit::gcra(1, SECOND)).unwrap();
    let action = Action::take(1);
    let mut state = algorithm.untouched();
    let first = algorithm.read(&state, NOW, &action);
    algorithm.commit(&mut state, NOW, &action, first);
    let second = algorithm.read(&state, NOW, &action);
    let ask = Ask {
        algorithm: &algorithm,
        action: &action,
        is_shadow: false,
        is_further_rate: false,
    };
    let known = Known::by(&algorithm, &action, &decide_alone(ask, &second)).unwrap();
    let Action::Take(take) = action else {
        panic!("it takes")
    };
    (algorithm, take, known)
}

fn recalls(table: &Table, key: u128) -> bool {
    let (algorithm, take, _) = denied();
    matches!(
        table.recall(key, &algorithm, &take, NOW, true),
        Recalled::Reading(reading) if !reading.fits
    )
}

fn remember(table: &Table, key: u128, ticket: Ticket) {
    table.remember(key, ticket, denied().2, NOW, NOW);
}

#[test]
fn what_has_changed_since_the_ticket_is_not_remembered_be_it_the_first_of_all() {
    let table = Table::new(SECOND.into());
    let ticket = table.ticket(7);
    table.forget(7);
    remember(&table, 7, ticket);
    assert!(!recalls(&table, 7));
    remember(&table, 7, table.ticket(7));
    assert!(recalls(&table, 7));
    table.forget(7);
    assert!(!recalls(&table, 7));
}

#[test]
fn who_forgets_while_another_remembers_is_never_missed() {
    for _ in 0..2_000 {
        let (table, both) = (Table::new(SECOND.into()), Barrier::new(2));
        let ticket = table.ticket(7);
        thread::scope(|scope| {
            scope.spawn(|| {
                both.wait();
                remember(&table, 7, ticket);
            });
            both.wait();
            table.forget(7);
        });
        assert!(!recalls(&table, 7));
    }
}

#[test]
fn the_whole_table_takes_no_more_than_is_documented() {
    assert!(SHARDS * SETS * size_of::<Set>() <= 12 << 20);
}
