use redis::Value;

use super::*;
use crate::algorithm::Action;
use crate::limit::Limit;
use crate::store::PolicyId;
use crate::store::redis::script::Scripted as _;
use crate::store::redis::takes::msgpack;
use crate::store::redis::trips::Batch as _;
use crate::time::SECOND;

/// A question under policies of these names, each about a subject; all takes of this many permits.
fn question(policies: &[(&str, &str)], cost: u32) -> Option<PlainSeveral> {
    question_by(policies, Limit::gcra(1, SECOND).burst(10), cost)
}

fn question_by(policies: &[(&str, &str)], limit: Limit, cost: u32) -> Option<PlainSeveral> {
    let ids: Vec<_> = policies
        .iter()
        .map(|(policy, _)| PolicyId::new(policy))
        .collect();
    let checks = ids
        .iter()
        .zip(policies)
        .map(|(policy, (_, subject))| Check::of(policy, *subject, &limit, Action::spend(cost)));
    let checks: Vec<_> = checks.collect();
    PlainSeveral::of(&checks, Micros::ZERO).map(|question| *question)
}

/// Questions about a client and everybody, this many permits each.
fn questions(asked: &[(&str, u32)]) -> Vec<PlainSeveral> {
    let asked = asked.iter();
    asked
        .map(|(client, cost)| question(&[("client", client), ("all", "")], *cost).unwrap())
        .collect()
}

fn batch(questions: &[PlainSeveral]) -> SeveralBatch {
    let questions: Vec<_> = questions.iter().collect();
    PlainSeveral::batch(&questions, &Prefix::default()).unwrap()
}

#[test]
fn checks_of_different_states_are_such_a_question() {
    assert!(question(&[("a", "x"), ("b", "x"), ("a", "y")], 1).is_some());
    // The same state twice, a cost that never fits, a fraction of a microsecond.
    assert!(question(&[("a", "x"), ("b", "x"), ("a", "x")], 1).is_none());
    assert!(question(&[("a", "x"), ("b", "x")], 11).is_none());
    let third = Limit::gcra(3, SECOND);
    assert!(question_by(&[("a", "x"), ("b", "x")], third, 1).is_none());
    let names: Vec<_> = (0..65).map(|number| number.to_string()).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "x")).collect();
    assert!(question(&many[1..], 1).is_some());
    assert!(question(&many, 1).is_none());
}

/// A question under these policies about one subject.
fn question_of(policies: &[PolicyId], shadows: &[bool]) -> Option<PlainSeveral> {
    let checks = policies.iter().zip(shadows);
    let checks = checks.map(|(policy, is_shadow)| Check {
        is_shadow: *is_shadow,
        ..Check::of(
            policy,
            "x",
            &Limit::gcra(1, SECOND).burst(10),
            Action::spend(1),
        )
    });
    PlainSeveral::of(&checks.collect::<Vec<_>>(), Micros::ZERO).map(|question| *question)
}

/// Some in a group, and a limit of two rates.
fn mixed() -> [PolicyId; 5] {
    let limit = PolicyId::new("d");
    let hourly = limit.with_further_rate(Micros::new(3_600_000_000));
    let [one, other] = ["a", "c"].map(|name| PolicyId::new(name).in_group("g"));
    [one, PolicyId::new("b"), other, limit, hourly]
}

#[test]
fn a_limit_in_shadow_has_one_rate_there() {
    assert!(question_of(&mixed(), &[false; 5]).is_some());
    assert!(question_of(&mixed(), &[true, true, true, false, false]).is_some());
    assert!(question_of(&mixed(), &[false, false, false, true, true]).is_none());
}

#[test]
fn states_in_packs_are_identified_by_key_and_field() {
    let questions = [
        question_of(&mixed(), &[false; 5]).unwrap(),
        // A state that may stand alone is in a pack if another question has it there.
        question(&[("d", "x"), ("b", "x")], 1).unwrap(),
    ];
    let arguments = batch(&questions).arguments();
    assert_eq!(arguments[0], b"3");
    let numbers = [4, 2, 5, 6, 7, 6, 2].map(u16::to_be_bytes).concat();
    assert_eq!(arguments[5], numbers);
    let packed = [(1, "gcra1:a"), (1, "gcra1:c"), (3, ""), (3, "+3600s")];
    let mut told = Vec::new();
    msgpack::array_of(&mut told, 8);
    for (key, field) in packed {
        msgpack::number(&mut told, key);
        msgpack::text(&mut told, field);
    }
    assert_eq!(arguments[6], told);
}

#[test]
fn in_shadow_each_check_is_judged_by_itself() {
    let policies = ["a", "b"].map(PolicyId::new);
    for shadows in [[false, false], [true, false], [false, true], [true, true]] {
        let question = question_of(&policies, &shadows).unwrap();
        assert!(question.takes.by_themselves().eq(shadows));
    }
}

#[test]
fn questions_that_are_alike_share_a_row_and_each_key_is_named_once() {
    let questions = questions(&[("x", 1), ("y", 1), ("y", 1), ("z", 2), ("x", 2)]);
    let batch = batch(&questions);
    let keys = |question: usize| {
        let checks = questions[question].takes.checks();
        checks.map(|check| Prefix::default().key(&check))
    };
    let keys: Vec<_> = keys(0)
        .chain(keys(1).take(1))
        .chain(keys(3).take(1))
        .collect();
    let arguments = batch.arguments();
    assert_eq!(arguments[0], b"4");
    assert_eq!(arguments[1..5], keys);
    let states = [1, 2, 3, 2, 4, 2, 1, 2].map(u16::to_be_bytes).concat();
    assert_eq!(arguments[5..8], [b"0".to_vec(), states, vec![]]);
    let rows = [
        "2 1 1 1000000 9000000 0 1000000 9000000 0",
        "2 1 2 1000000 9000000 0 1000000 9000000 0",
        "2 2 1 2000000 8000000 0 2000000 8000000 0",
    ];
    let told: Vec<_> = arguments[8..]
        .chunks(9)
        .map(|row| String::from_utf8(row.join(&b' ')).unwrap())
        .collect();
    assert_eq!(told, rows);
}

#[test]
fn states_are_sent_only_if_two_takes_share_one() {
    let questions = ["x", "y"].map(|client| question(&[("a", client), ("b", client)], 1).unwrap());
    let arguments = batch(&questions).arguments();
    assert_eq!(arguments[0], b"4");
    assert_eq!(arguments[6], b"");
    assert_eq!(arguments[8..11], [b"2", b"2", b"1"]);
}

#[test]
fn each_of_a_run_owes_what_those_before_it_took() {
    let asked = questions(&[("x", 4), ("x", 4), ("x", 4)]);
    let reply = Value::Array(vec![Value::Int(1_000_000), Value::Int(2_000_000)]);
    let read = batch(&asked).read(&reply).unwrap();
    let left = asked.into_iter().zip(read).map(|(mut question, owed)| {
        let decisions = question.decided(owed.unwrap().unwrap());
        [0, 1].map(|policy: usize| {
            let decision = decisions[policy];
            (decision.is_allowed(), decision.remaining())
        })
    });
    assert_eq!(
        left.collect::<Vec<_>>(),
        [
            [(true, 5), (true, 4)],
            [(true, 1), (true, 0)],
            [(false, 1), (false, 0)]
        ]
    );
}

#[test]
fn a_question_whose_key_has_another_form_is_asked_alone_by_another_script() {
    let questions = questions(&[("x", 1), ("y", 1), ("z", 1)]);
    let read = |debt| {
        let reply = Value::Array([0, debt, 0, 0, 7, 0].map(Value::Int).to_vec());
        batch(&questions).read(&reply).unwrap()
    };
    let is_read = read(-1).into_iter().map(|read| read.unwrap().is_some());
    assert_eq!(is_read.collect::<Vec<_>>(), [false, true, true]);
    // The script itself would refuse it: a reply that says so may mean that something was taken.
    let is_error = read(1 << 52).into_iter().map(|read| read.is_err());
    assert_eq!(is_error.collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn a_reply_of_another_shape_is_an_error() {
    let batch = batch(&questions(&[("x", 1)]));
    for reply in [
        Value::Nil,
        Value::Int(0),
        Value::Array(vec![]),
        Value::Array(vec![Value::Int(0)]),
        Value::Array(vec![Value::Int(0); 3]),
    ] {
        assert!(batch.read(&reply).is_err(), "{reply:?}");
    }
}
