use super::*;
use crate::error::StoreErrorKind;
use crate::limit::Limit;
use crate::store::PolicyId;
use crate::store::redis::error::error_reply;
use crate::time::HOUR;

const NOW_US: i64 = 1_800_000_000_000_000;

/// A take of this many of a subject's hundred permits.
fn take((subject, cost): (&str, u32)) -> Box<Take> {
    let policy = PolicyId::new("api");
    let check = Check::of(
        &policy,
        subject,
        &Limit::fixed_window(100, HOUR),
        Action::spend(cost),
    );
    Take::of(&[check], Micros::ZERO).unwrap()
}

fn queue(asked: &[(&str, u32)]) -> Queue {
    let takes: Vec<_> = asked.iter().copied().map(take).collect();
    let takes: Vec<_> = takes.iter().map(|take| &**take).collect();
    Queue::of(&takes, &Prefix::default()).unwrap()
}

/// For each row its cost, how many takes it is, and of how many keys.
fn rows(queue: &Queue) -> Vec<[String; 3]> {
    // The number of keys, the keys and the instant come before them.
    let sent = queue.texts().split_off(2 + queue.names.iter().count());
    let stride = queue.script.stride;
    let rows = sent.chunks_exact(stride + 2);
    assert!(rows.remainder().is_empty());
    let told = |row: &[String]| [2, stride, stride + 1].map(|at| row[at].clone());
    rows.map(told).collect()
}

#[test]
fn keys_that_are_asked_the_same_share_arguments() {
    let asked = [
        ("alice", 1),
        ("bob", 1),
        ("carol", 1),
        ("alice", 1),
        ("bob", 2),
        ("dave", 1),
        ("bob", 1),
    ];
    let expected = [
        // Alice's two; Bob's first, with others behind it; Carol's and Dave's.
        ["1", "2", "1"],
        ["1", "1", "1"],
        ["2", "1", "-1"],
        ["1", "1", "-1"],
        ["1", "1", "2"],
    ];
    assert_eq!(
        rows(&queue(&asked)),
        expected.map(|row| row.map(str::to_owned))
    );
}

#[test]
fn takes_of_a_key_by_other_rules_are_no_run_of_other_costs() {
    let policy = PolicyId::new("api");
    let takes = [(100, false), (200, false), (200, true)].map(|(limit, is_given_back)| {
        let action = match is_given_back {
            true => Action::take(1),
            false => Action::spend(1),
        };
        let limit = Limit::fixed_window(limit, HOUR);
        let check = Check::of(&policy, "alice", &limit, action);
        Take::of(&[check], Micros::ZERO).unwrap()
    });
    let queue = Queue::of(&takes.each_ref().map(|take| &**take), &Prefix::default()).unwrap();
    let expected = [["1", "1", "1"], ["1", "1", "0"], ["1", "1", "0"]];
    assert_eq!(rows(&queue), expected.map(|row| row.map(str::to_owned)));
}

/// A row: whether it fits, and how many were taken before.
fn row(fits: i64, used: i64) -> [Value; 5] {
    [fits, 0, used, 5, 0].map(Value::Int)
}

/// A row: this many go on behind the previous take.
fn alike(takes: i64) -> [Value; 5] {
    [2, takes, 0, 0, 0].map(Value::Int)
}

fn read(queue: &Queue, rows: &[&[Value]]) -> Result<Readings<Reading>, StoreError> {
    let now = [Value::Int(NOW_US)];
    queue.read(&Value::Array([rows.concat(), now.to_vec()].concat()))
}

#[test]
fn a_key_that_fails_fails_alone_and_each_take_gets_its_own_reading() {
    let queue = queue(&[
        ("alice", 1),
        ("bob", 1),
        ("carol", 1),
        ("bob", 1),
        ("carol", 1),
    ]);
    let full = error_reply("OOM command not allowed when used memory > 'maxmemory'.");
    let reply = [&row(1, 7)[..], &[full], &row(1, 98), &row(0, 99)];
    let told: Vec<_> = read(&queue, &reply)
        .unwrap()
        .into_iter()
        .map(|read| read.map(|reading| reading.unwrap().level[0]))
        .map(|read| read.map_err(|error| error.kind()))
        .collect();
    let full = Err(StoreErrorKind::Full);
    assert_eq!(told, [Ok(7), full, Ok(98), full, Ok(99)]);
}

#[test]
fn takes_of_several_costs_each_find_what_earlier_ones_took() {
    let queue = queue(&[
        ("alice", 3),
        ("alice", 1),
        ("alice", 1),
        ("alice", 5),
        ("bob", 2),
        ("alice", 4),
        ("alice", 9),
    ]);
    let reply = [
        &row(1, 10)[..],
        &row(1, 13),
        &alike(3),
        &row(0, 24),
        &row(1, 50),
    ];
    let told = read(&queue, &reply).unwrap().into_iter();
    let told: Vec<_> = told
        .map(|read| read.unwrap().unwrap())
        .map(|reading| (reading.fits, reading.level[0]))
        .collect();
    let used = [10, 13, 14, 15, 50, 20].map(|used| (true, used));
    assert_eq!(told[..6], used);
    assert_eq!(told[6], (false, 24));
}

#[test]
fn other_rows_than_there_are_takes_are_no_answer() {
    let queue = queue(&[("alice", 1), ("bob", 1), ("bob", 1)]);
    let (fits, gone) = (row(1, 0), error_reply("WRONGTYPE of another"));
    let denied = row(0, 100);
    assert!(read(&queue, &[&fits, &fits, &fits]).is_ok());
    assert!(read(&queue, &[&fits, &fits, &alike(1)]).is_ok());
    assert!(read(&queue, &[&denied, &denied]).is_ok());
    for rows in [
        &[][..],
        &[&fits[..]],
        &[&fits, &fits],
        &[&fits, &fits, &fits, &fits],
        &[&fits, &alike(2)],
        &[&fits, &fits, &alike(0)],
        &[&fits, &fits, &alike(2)],
        &[&fits, &alike(1), &fits],
        &[&fits, &denied, &alike(1)],
        &[&fits, &fits, &fits[..3]],
        &[&fits, &fits, std::slice::from_ref(&gone)],
        &[&fits, &fits, &fits, std::slice::from_ref(&gone)],
    ] {
        let error = read(&queue, rows).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::BadReply, "{rows:?}");
    }
}
