use proptest::prelude::*;

use super::*;
use crate::algorithm::{Action, State, decide_alone};
use crate::limit::Limit;
use crate::store::{Check, PolicyId};
use crate::time::SECOND;

const NOW: Micros = Micros::new(1_800_000_000_000_000);

const CAPACITIES: [u32; 3] = [5, 20, 50];

/// A take of one of some keys, under one of some limits.
type Asked = (usize, usize, u32);

fn plain(policy: &PolicyId, (key, limit, cost): Asked) -> Box<Take> {
    let capacity = CAPACITIES[limit];
    let limit = Limit::gcra(1, SECOND).burst(capacity);
    let key = ["alice", "bob", "carol"][key];
    let check = Check::of(policy, key, &limit, Action::spend(cost.min(capacity)));
    Take::of(&[check], NOW).unwrap()
}

fn batch(takes: &[Box<Take>]) -> PlainBatch {
    let plain: Vec<_> = takes
        .iter()
        .map(|take| (&**take, take.scaled.unwrap()))
        .collect();
    PlainBatch::of(&plain, &Prefix::default()).unwrap()
}

/// The script's reply: each run's debt before it, if the keys owe this much.
fn reply(batch: &PlainBatch, mut owed: impl FnMut(&[u8]) -> u64) -> Value {
    let mut debts = Vec::new();
    for (runs, name) in batch.takes.keys().zip(batch.names.iter()) {
        let mut debt = owed(name);
        for run in runs {
            debts.push(Value::Int(debt.try_into().unwrap()));
            for _ in 0..run.times {
                if debt <= run.asked.parts.room_us {
                    debt += run.asked.parts.cost_us;
                }
            }
        }
    }
    Value::Array(debts)
}

proptest! {
    #[test]
    fn takes_that_come_together_are_judged_as_if_one_after_the_other(
        used in prop::collection::vec(0_u32..70, 3),
        asked in prop::collection::vec((0..3_usize, 0..3_usize, 1_u32..50), 1..60),
    ) {
        let policy = PolicyId::new("api");
        let takes: Vec<_> = asked.iter().map(|asked| plain(&policy, *asked)).collect();
        let mut states: Vec<(Vec<u8>, State)> = Vec::new();
        for (key, used) in used.iter().enumerate() {
            let take = plain(&policy, (key, 0, 1));
            let check = take.check();
            let mut state = check.algorithm.untouched();
            // Under a limit that was higher, possibly more than all.
            let charge = Action::Charge(*used);
            let reading = check.algorithm.read(&state, NOW, &charge);
            check.algorithm.commit(&mut state, NOW, &charge, reading);
            states.push((Prefix::default().key(&check), state));
        }
        let batch = batch(&takes);
        let reply = reply(&batch, |name| {
            let key = states.iter().position(|(key, _)| key == name).unwrap();
            u64::from(used[key]) * 1_000_000
        });
        let read = batch.read(&reply).unwrap();
        prop_assert_eq!(read.len(), takes.len());
        for ((take, read), (key, ..)) in takes.iter().zip(read).zip(asked) {
            let (check, state) = (take.check(), &mut states[key].1);
            let reading = check.algorithm.read(state, NOW, &check.action);
            if reading.fits {
                check.algorithm.commit(state, NOW, &check.action, reading);
            }
            prop_assert_eq!(
                decide_alone(check.ask(), &read.unwrap().unwrap()),
                decide_alone(check.ask(), &reading)
            );
        }
    }
}

#[test]
fn keys_that_are_asked_alike_share_a_row_and_further_runs_have_their_own() {
    let policy = PolicyId::new("api");
    let takes = [
        (0, 1, 1),
        (1, 1, 1),
        (2, 1, 1),
        (2, 1, 1),
        (2, 1, 3),
        (0, 2, 1),
    ];
    let takes = takes.map(|asked| plain(&policy, asked));
    let key = |position: usize| {
        let key = Prefix::default().key(&takes[position].check());
        String::from_utf8(key).unwrap()
    };
    let expected = [
        vec![
            "3".to_owned(),
            key(0),
            key(1),
            key(2),
            NOW.get().to_string(),
        ],
        // Bob's is like Alice's first; Alice's second comes after that.
        ["1000000", "19000000", "1", "1"].map(String::from).to_vec(),
        ["1000000", "49000000", "1", "0"].map(String::from).to_vec(),
        ["1000000", "19000000", "1", "1"].map(String::from).to_vec(),
        ["1000000", "19000000", "2", "1"].map(String::from).to_vec(),
        ["3000000", "17000000", "1", "0"].map(String::from).to_vec(),
    ];
    assert_eq!(batch(&takes).texts(), expected.concat());
    let alike = [(0, 1, 1), (1, 1, 1), (2, 1, 1)].map(|asked| plain(&policy, asked));
    let row = ["1000000", "19000000", "1", "3"];
    assert_eq!(batch(&alike).texts()[5..], row);
}

#[test]
fn a_foreign_value_is_reported_for_its_key_alone() {
    let policy = PolicyId::new("api");
    let takes = [(0, 1, 1), (1, 1, 1), (0, 1, 1)].map(|asked| plain(&policy, asked));
    let reply = Value::Array(vec![Value::Int(-1), Value::Int(0)]);
    let read = batch(&takes).read(&reply).unwrap();
    assert_eq!(
        read.iter()
            .map(|read| read.as_ref().unwrap().is_some())
            .collect::<Vec<_>>(),
        [false, true, false]
    );
}

#[test]
fn a_reply_of_another_shape_is_an_error() {
    let policy = PolicyId::new("api");
    let batch = batch(&[plain(&policy, (0, 0, 1))]);
    for reply in [
        Value::Nil,
        Value::Int(0),
        Value::Array(vec![]),
        Value::Array(vec![Value::Int(0); 2]),
    ] {
        assert!(batch.read(&reply).is_err(), "{reply:?}");
    }
}
