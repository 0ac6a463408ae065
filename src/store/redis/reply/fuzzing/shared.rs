//! One reply for questions that share a trip, for each kind of question that may.

use redis::Value;

use crate::algorithm::Action;
use crate::decision::{Decision, Decisions};
use crate::error::StoreErrorKind;
use crate::limit::Limit;
use crate::store::redis::keys::Prefix;
use crate::store::redis::takes::{AnyTakes, PlainPack, PlainSeveral, Take};
use crate::store::redis::trips::{Batch as _, Sharing};
use crate::store::{Check, PolicyId};
use crate::time::{HOUR, Micros, SECOND};

/// Three questions, two of them alike: about two subjects, or about one.
pub(super) fn read(choice: u8, reply: &Value) {
    let policies = ["one", "two"].map(PolicyId::new);
    let grouped = policies.clone().map(|policy| policy.in_group("group"));
    let subjects = [0_u64, 0, u64::from(choice % 2)];
    let plain = Limit::gcra(1, SECOND).burst(1 + u32::from(choice));
    let take = |limit| {
        ask(
            reply,
            subjects.map(|subject| Take::of(&[check(&policies[0], subject, limit)], Micros::ZERO)),
            |decision| assert_bounded(&decision),
        );
    };
    take(plain);
    if choice.is_multiple_of(3) {
        take(Limit::gcra(3, SECOND).burst(1 + u32::from(choice)));
    }
    if choice.is_multiple_of(2) {
        take(Limit::fixed_window(7, HOUR));
    }
    let alike = [plain; 2];
    let each_bounded = |decisions: Decisions| decisions.iter().for_each(assert_bounded);
    let pack = |subject| PlainPack::of(&both(&grouped, subject, alike), Micros::ZERO);
    ask(reply, subjects.map(pack), each_bounded);
    let several = |subject| PlainSeveral::of(&both(&policies, subject, alike), Micros::ZERO);
    ask(reply, subjects.map(several), each_bounded);
    let any = |subject| {
        let checks = both(&policies, subject, [plain, Limit::fixed_window(7, HOUR)]);
        AnyTakes::of(&checks, &Prefix::default(), Micros::ZERO)
    };
    ask(reply, subjects.map(any), each_bounded);
}

fn both(policies: &[PolicyId; 2], subject: u64, limits: [Limit; 2]) -> [Check<'_>; 2] {
    [0, 1].map(|each| check(&policies[each], subject, limits[each]))
}

fn check(policy: &PolicyId, subject: u64, limit: Limit) -> Check<'_> {
    Check::of(policy, subject, &limit, Action::spend(1))
}

/// Each is decided, asked otherwise, or fails with what it is told; or none of them has an answer.
fn ask<Q: Sharing>(reply: &Value, questions: [Option<Box<Q>>; 3], assert: impl Fn(Q::Decided)) {
    let questions = questions.map(|question| question.expect("it may share a trip"));
    let each = questions.each_ref().map(|question| &**question);
    let batch = Q::batch(&each, &Prefix::default()).expect("there are some");
    match batch.read(reply) {
        Ok(readings) => {
            assert_eq!(readings.len(), questions.len());
            for (mut question, reading) in questions.into_iter().zip(readings) {
                if let Ok(Some(reading)) = reading {
                    assert(question.decided(reading));
                }
            }
        }
        Err(error) => assert_eq!(error.kind(), StoreErrorKind::BadReply),
    }
}

fn assert_bounded(decision: &Decision) {
    assert!(decision.remaining() <= 256, "{decision:?}");
}
