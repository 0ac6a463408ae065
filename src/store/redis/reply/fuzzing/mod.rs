//! Replies made of arbitrary bytes, for the fuzz target `redis_reply`.

use redis::Value;

mod shared;

use crate::algorithm::{Action, Algorithm, Penalty};
use crate::limit::{Limit, MOST_PERMITS, per_second};
use crate::store::redis::keys::Prefix;
use crate::store::redis::question::{Batch, Question};
use crate::store::{Check, PolicyId};
use crate::time::{HOUR, Micros, SECOND};

/// Whatever a server replies to some questions of at most three checks each, it gives a decision on
/// each check or an error.
#[allow(unreachable_pub, reason = "public where the fuzzer builds it")]
pub fn redis_reply(data: &[u8]) {
    let [choice, cost, rest @ ..] = data else {
        return;
    };
    let algorithms = algorithms();
    let policies = ["one", "two"].map(PolicyId::new);
    let further = policies[0].with_extra_rate(Micros::from(HOUR));
    let check = |question: u8, place: u8| {
        let number = usize::from(choice % 64 + place) % algorithms.len();
        // Some are alike, some differ in their cost alone, and some are about other keys.
        let action = Action::acquire((cost % 8 + question / 2).into());
        let is_extra_rate = place > 0 && cost >> (place + 3) & 1 == 1;
        let policy = match (is_extra_rate, cost >> question & 1 == 1) {
            (true, _) => &further,
            (false, is_other) => &policies[usize::from(is_other)],
        };
        let check = Check::of(policy, "alice", &Limit::gcra(1, SECOND), action);
        Check {
            algorithm: algorithms[number],
            ..check
        }
        .in_shadow(cost >> place & 1 == 1)
    };
    let reply = value(&mut &*rest, 3);
    shared::read(*choice, &reply);
    let count = choice / 64;
    if count == 0 {
        return;
    }
    let questions = [0, 1, 2, 3].map(|question| {
        let checks: Vec<_> = (0..count).map(|place| check(question, place)).collect();
        let question = match question == 0 && cost % 16 == 15 {
            true => Question::denied_elsewhere(&checks, Micros::ZERO),
            false => Question::new(&checks, Micros::ZERO, None),
        };
        (checks, Box::new(question))
    });
    let (checks, questions): (Vec<_>, Vec<_>) = questions.into_iter().unzip();
    let batch = Batch::of(&questions, &Prefix::default());
    let answers = batch.conclude(&questions, Ok(reply));
    assert_eq!(answers.len(), checks.len());
    for (answer, checks) in answers.iter().zip(&checks) {
        let Ok(decisions) = answer else { continue };
        assert_eq!(decisions.len(), checks.len());
        for (decision, Check { algorithm, .. }) in decisions.iter().zip(checks) {
            assert!(algorithm.is_penalty() || decision.remaining() <= algorithm.capacity());
        }
    }
}

fn algorithms() -> Vec<Algorithm> {
    let limits = [
        Limit::gcra(3, 7 * SECOND),
        Limit::gcra(1_000_000, SECOND).burst(MOST_PERMITS),
        Limit::token_bucket(3, per_second(3)),
        Limit::leaky_bucket(3, per_second(3)),
        Limit::fixed_window(MOST_PERMITS, SECOND),
        Limit::sliding_log(3, SECOND),
        Limit::sliding_window(3, SECOND),
        Limit::sliding_counter(3, SECOND),
        Limit::concurrency(3),
    ];
    let algorithms = limits.iter().map(Algorithm::try_from);
    let penalty = Algorithm::try_from(&Penalty::after(3, SECOND, HOUR));
    let algorithms = algorithms.chain([penalty]);
    algorithms.collect::<Result<_, _>>().expect("valid limits")
}

fn value(data: &mut &[u8], depth: u8) -> Value {
    let Some((kind, rest)) = data.split_first() else {
        return Value::Nil;
    };
    *data = rest;
    match kind % 16 {
        0 => Value::Nil,
        1 => Value::Okay,
        2 => Value::Boolean(kind & 16 != 0),
        3 => Value::Double(0.5),
        4 => Value::BulkString(take(data).to_vec()),
        5 => Value::SimpleString(String::from_utf8_lossy(take(data)).into_owned()),
        6..=8 if depth > 0 => {
            let length = usize::from(kind / 16);
            Value::Array((0..length).map(|_| value(data, depth - 1)).collect())
        }
        9 => Value::Int(i64::from(kind / 16)),
        _ => Value::Int(
            take(data)
                .iter()
                .fold(0, |wide, byte| wide << 8 | i64::from(*byte)),
        ),
    }
}

/// A length, followed by that many bytes.
fn take<'a>(data: &mut &'a [u8]) -> &'a [u8] {
    let (length, rest) = data.split_first().unwrap_or((&0, &[]));
    let (taken, rest) = rest.split_at(usize::from(length % 9).min(rest.len()));
    *data = rest;
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn any_reply_is_decisions_or_an_error(data in prop::collection::vec(any::<u8>(), 0..96)) {
            redis_reply(&data);
        }
    }

    #[test]
    fn the_seeds_of_the_fuzz_target_hold() {
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/seeds/redis_reply");
        let seeds = std::fs::read_dir(seeds).expect("the target has seeds");
        for seed in seeds {
            redis_reply(&std::fs::read(seed.unwrap().path()).unwrap());
        }
    }
}
