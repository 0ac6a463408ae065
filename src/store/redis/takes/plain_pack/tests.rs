use redis::Value;

use super::*;
use crate::algorithm::{Action, Algorithm};
use crate::key::{Key, Subject};
use crate::limit::Limit;
use crate::store::PolicyId;
use crate::store::redis::script::Scripted as _;
use crate::store::redis::takes::msgpack;
use crate::store::redis::takes::take::Take as Alone;
use crate::store::redis::trips::Batch as _;
use crate::time::SECOND;

fn check(policy: &PolicyId) -> Check<'_> {
    Check::of(policy, "alice", &Limit::gcra(1, SECOND), Action::spend(1))
}

#[test]
fn a_plain_take_is_a_pack_of_its_own_only_where_it_shares_its_key() {
    let alone = PolicyId::new("api");
    let in_group = PolicyId::new("api").in_group("client");
    let further = alone.with_further_rate(Micros::new(60_000_000));
    let plain = |policy| {
        let take = Alone::of(&[check(policy)], Micros::ZERO);
        take.map(|take| take.scaled.is_some())
    };
    assert_eq!(
        [&alone, &in_group, &further].map(plain),
        [Some(true), None, None]
    );
    for policy in [&in_group, &further] {
        assert!(PlainPack::of(&[check(policy)], Micros::ZERO).is_some());
    }
}

/// Takes of this many permits for alice, bob or carol, named by their first letters.
fn packs(asked: &[(char, u32)]) -> Vec<PlainPack> {
    let [one, other] = ["api", "web"].map(|name| PolicyId::new(name).in_group("client"));
    let packs = asked.iter().map(|(subject, cost)| {
        let checks = [&one, &other].map(|policy| Check {
            subject: Subject::from(&Key::from(subject.to_string())),
            algorithm: Algorithm::try_from(&Limit::gcra(1, SECOND).burst(10)).unwrap(),
            action: Action::spend(*cost),
            ..check(policy)
        });
        *PlainPack::of(&checks, Micros::ZERO).unwrap()
    });
    packs.collect()
}

const NOW_US: i64 = 1_800_000_000_000_000;

/// The script's reply with these answers.
fn reply(answers: impl IntoIterator<Item = Value>) -> Value {
    Value::Array(answers.into_iter().chain([Value::Int(NOW_US)]).collect())
}

/// A pack as the script writes it, with states that are paid this many seconds from now.
fn pack_owing(seconds: [i64; 2]) -> Value {
    let mut pack = vec![0x82];
    for (field, seconds) in ["gcra1:api", "gcra1:web"].into_iter().zip(seconds) {
        pack.push(0xa0 | field.len() as u8);
        pack.extend(field.as_bytes());
        let state_us = (NOW_US + seconds * 1_000_000).unsigned_abs();
        msgpack::number(&mut pack, state_us);
    }
    Value::BulkString(pack)
}

fn batch(packs: &[PlainPack]) -> PackBatch {
    let packs: Vec<_> = packs.iter().collect();
    PlainPack::batch(&packs, &Prefix::default()).unwrap()
}

#[test]
fn keys_that_are_asked_alike_share_a_row_and_further_runs_have_their_own() {
    let packs = packs(&[
        ('a', 1),
        ('b', 1),
        ('c', 1),
        ('c', 1),
        ('b', 3),
        ('c', 1),
        ('a', 1),
        ('d', 2),
    ]);
    let arguments = batch(&packs).arguments();
    assert_eq!(arguments[0], b"4");
    let keys = [0, 1, 2, 7].map(|pack: usize| Prefix::default().key(&packs[pack].takes.first()));
    assert_eq!(arguments[1..5], keys);
    // How often each has come, and how many keys in a row.
    let rows = arguments[6..].chunks(6);
    let told = rows.map(|row| String::from_utf8([&row[4][..], &row[5]].join(&b' ')).unwrap());
    assert_eq!(
        told.collect::<Vec<_>>(),
        ["2 1", "1 1", "1 0", "3 1", "1 1"]
    );
    for row in arguments[6..].chunks(6) {
        assert_eq!(row[..3], arguments[6..9]);
    }
    let blank = b"\x82\xa9gcra1:api\xcf\0\0\0\0\0\0\0\0\xa9gcra1:web\xcf\0\0\0\0\0\0\0\0";
    assert_eq!(arguments[7], blank);
    assert_eq!(arguments[8], b">c12I8c11I8");
    assert_eq!(arguments[9], arguments[9 + 6]);
    assert_ne!(arguments[9], arguments[9 + 12]);
}

/// As while a policy moves into a group: its states have other fields there.
#[test]
fn a_policy_in_and_out_of_a_group_shares_no_row() {
    let alone = PolicyId::new("api");
    let packs = [alone.clone(), alone.in_group("client")].map(|policy| {
        let further = policy.with_further_rate(Micros::new(60_000_000));
        *PlainPack::of(&[check(&policy), check(&further)], Micros::ZERO).unwrap()
    });
    let arguments = batch(&packs).arguments();
    let rows: Vec<_> = arguments[4..].chunks(6).collect();
    assert_eq!(rows.len(), 2);
    assert_ne!(rows[0][0], rows[1][0]);
}

#[test]
fn each_of_a_run_owes_what_those_before_it_took() {
    // One more fits than by what the first of the policies has left.
    let debts = [1_000_000_u64, 2_000_000].map(u64::to_be_bytes).concat();
    for owed in [Value::BulkString(debts), pack_owing([1, 2])] {
        let packs = packs(&[('a', 4); 4]);
        let read = batch(&packs).read(&reply([owed]));
        let left = packs
            .into_iter()
            .zip(read.unwrap())
            .map(|(mut pack, owed)| {
                let decisions = pack.decided(owed.unwrap().unwrap());
                [0, 1].map(|policy: usize| {
                    (
                        decisions[policy].is_allowed(),
                        decisions[policy].remaining(),
                    )
                })
            });
        assert_eq!(
            left.collect::<Vec<_>>(),
            [
                [(true, 5), (true, 4)],
                [(true, 1), (true, 0)],
                [(false, 1), (false, 0)],
                [(false, 1), (false, 0)]
            ]
        );
    }
}

#[test]
fn only_the_scripts_own_refusal_is_asked_by_another_script() {
    let packs = packs(&[('a', 1)]);
    let read = |answer| batch(&packs).read(&reply([answer])).unwrap();
    assert!(matches!(read(Value::Int(-1))[..], [Ok(None)]));
    // No debt is this large. A script that says so all the same may have taken something.
    let debts = [0, 1 << 52].map(u64::to_be_bytes).concat();
    for answer in [Value::BulkString(debts), pack_owing([0, 1 << 33])] {
        assert!(matches!(read(answer)[..], [Err(_)]));
    }
}

#[test]
fn a_reply_of_another_shape_is_an_error() {
    let policy = PolicyId::new("api").in_group("client");
    let pack = PlainPack::of(&[check(&policy)], Micros::ZERO).unwrap();
    let batch = PlainPack::batch(&[&pack], &Prefix::default()).unwrap();
    let debts = Value::Int(0);
    let read = batch.read(&reply([debts.clone()])).unwrap();
    let owed = read[0].as_ref().unwrap().as_ref();
    assert_eq!(owed.map(|owed| &owed.debts[..]), Some(&[0][..]));
    let another_pack = pack_owing([1, 2]);
    let undated = Value::Array(vec![debts.clone()]);
    for reply in [
        Value::Nil,
        debts.clone(),
        Value::Array(vec![]),
        undated,
        reply([]),
        reply([debts.clone(), debts.clone()]),
        reply([Value::BulkString(vec![0; 7])]),
        reply([another_pack]),
        Value::Array(vec![debts, Value::Int(-1)]),
    ] {
        let read = batch.read(&reply).map(|mut read| read.remove(0));
        assert!(!matches!(read, Ok(Ok(_))), "{reply:?}");
    }
}
