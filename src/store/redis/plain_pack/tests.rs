use super::*;
use crate::algorithm::{Action, Algorithm};
use crate::key::Key;
use crate::limit::Limit;
use crate::store::redis::take::Take;
use crate::store::{FailureMode, PolicyId};
use crate::time::SECOND;

fn check(policy: &PolicyId) -> Check<'_> {
    Check {
        policy,
        subject: Subject::from(&Key::from("alice")),
        algorithm: Algorithm::try_from(&Limit::gcra(1, SECOND)).unwrap(),
        action: Action::spend(1),
        is_shadow: false,
        on_store_failure: FailureMode::Allow,
    }
}

#[test]
fn a_plain_take_is_a_pack_of_its_own_only_where_it_shares_its_key() {
    let alone = PolicyId::new("api");
    let in_group = PolicyId::new("api").in_group("client");
    let further = alone.with_further_rate(Micros::new(60_000_000));
    let plain = |policy| {
        let take = Take::of(&[check(policy)], Micros::ZERO);
        take.map(|take| take.plain.is_some())
    };
    assert_eq!(
        [&alone, &in_group, &further].map(plain),
        [Some(true), None, None]
    );
    for policy in [&in_group, &further] {
        assert!(PlainPack::of(&[check(policy)], Micros::ZERO).is_some());
    }
}

#[test]
fn a_reply_of_another_shape_is_an_error() {
    let policy = PolicyId::new("api").in_group("client");
    let pack = PlainPack::of(&[check(&policy)], Micros::ZERO).unwrap();
    let together = PlainPack::together(&[&pack], &Prefix::default()).unwrap();
    let debts = Value::Array(vec![Value::Int(0)]);
    let read = together.read(&Value::Array(vec![debts.clone()])).unwrap();
    assert_eq!(read[0].as_ref().unwrap().as_deref(), Some(&[0][..]));
    for reply in [Value::Nil, debts.clone(), Value::Array(vec![debts; 2])] {
        let read = together.read(&reply).map(|mut read| read.remove(0));
        assert!(!matches!(read, Ok(Ok(_))), "{reply:?}");
    }
}
