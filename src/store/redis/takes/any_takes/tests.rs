use super::*;
use crate::algorithm::{Algorithm, LeaseId};
use crate::error::StoreErrorKind;
use crate::limit::Limit;
use crate::store::PolicyId;
use crate::store::redis::error::error_reply;
use crate::time::{HOUR, SECOND};

/// Under a window and a rate.
fn checks<'a>(policies: &'a [PolicyId; 2], subject: &str, action: Action) -> [Check<'a>; 2] {
    let [window, rate] = policies;
    let limits = [
        (window, Limit::fixed_window(9, HOUR)),
        (rate, Limit::gcra(9, SECOND)),
    ];
    limits.map(|(policy, limit)| Check::of(policy, subject, &limit, action))
}

fn policies() -> [PolicyId; 2] {
    ["window", "rate"].map(PolicyId::new)
}

fn of(checks: &[Check<'_>]) -> Option<Box<AnyTakes>> {
    AnyTakes::of(checks, &Prefix::default(), Micros::new(7))
}

fn batch(subjects: &[&str]) -> AnyBatch {
    let ask = |subject: &&str| of(&checks(&policies(), subject, Action::spend(1))).unwrap();
    let questions: Vec<_> = subjects.iter().map(ask).collect();
    let questions: Vec<_> = questions.iter().map(|question| &**question).collect();
    AnyTakes::batch(&questions, &Prefix::default()).unwrap()
}

#[test]
fn only_takes_that_hold_nothing_and_looks_share_trips() {
    let policies = policies();
    for (action, shares) in [
        (Action::spend(1), true),
        (Action::take(2), true),
        (Action::look(), true),
        (Action::Charge(1), false),
        (Action::Reset, false),
    ] {
        let asked = of(&checks(&policies, "alice", action));
        assert_eq!(asked.is_some(), shares, "{action:?}");
    }
    let [window, rate] = checks(&policies, "alice", Action::spend(1));
    let held = Check {
        algorithm: Algorithm::try_from(&Limit::concurrency(9)).unwrap(),
        ..rate
    };
    assert!(of(&[window, held]).is_none());
    let released = Check {
        action: Action::Release(LeaseId::default()),
        ..held
    };
    assert!(of(&[released]).is_none());
    assert!(of(&[]).is_none());
}

#[test]
fn the_script_is_told_which_checks_belong_to_which_question() {
    for (subjects, counts) in [
        (&["alice"][..], &[][..]),
        (&["alice", "bob", "alice"], &["2", "2", "2"]),
    ] {
        let batch = batch(subjects);
        let sent = batch.texts();
        let keys = 2 * subjects.len();
        assert_eq!(sent[0], keys.to_string());
        // After them comes the latest question's instant, and then the rows of all.
        assert_eq!(sent[1 + keys], "7");
        let rows = (sent.len() - 2 - keys - counts.len()) / keys;
        let behind = &sent[2 + keys + rows * keys..];
        assert_eq!(behind, counts);
        assert_eq!(sent[2 + keys], "fixed_window");
        assert_eq!(sent[2 + keys + rows], "gcra");
    }
}

fn row(fits: i64) -> [Value; 5] {
    [fits, 0, 3, 5, 0].map(Value::Int)
}

#[test]
fn a_question_that_fails_fails_alone_and_another_number_of_rows_is_no_answer() {
    let batch = batch(&["alice", "bob", "carol"]);
    let read = |rows: &[&[Value]]| {
        let now = [Value::Int(1_800_000_000_000_000)];
        batch.read(&Value::Array([rows.concat(), now.to_vec()].concat()))
    };
    let full = [error_reply("OOM command not allowed")];
    let both = [row(1), row(1)].concat();
    let one = [row(1), row(0)].concat();
    let told: Vec<_> = read(&[&both, &full, &one])
        .unwrap()
        .into_iter()
        .map(|read| read.map_err(|error| error.kind()))
        .map(|read| read.map(|decisions| decisions.unwrap().iter().all(|one| one.is_allowed())))
        .collect();
    assert_eq!(told, [Ok(true), Err(StoreErrorKind::Full), Ok(false)]);
    for rows in [
        &[][..],
        &[&both[..], &both],
        &[&both, &both, &both[..7]],
        &[&both, &both, &both, &full],
        &[&both, &both, &both, &row(1)],
        &[&both, &row(1), &full, &both],
        &[&both, &full, &full, &full],
    ] {
        let error = read(rows).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::BadReply, "{rows:?}");
    }
}
