//! Several scripts read and write the keys of groups, each in its own way: one that can do
//! everything, one for final takes, and one for those that come together.

use futures_util::future::{join, join_all};
use tower_throttle::store::Action;
use tower_throttle::store::{Decisions, PolicyId};
use tower_throttle::{HOUR, Limit, MINUTE, SECOND, StoreErrorKind};

use crate::keys::corrupt::dump;
use crate::keys::expiry::key_expires_in;
use crate::keys::groups::{corrupt_records, group_key, grouped, id_of, left, plant_record};
use support::asking::{answer_of, check_of};
use support::bench::Bench;

const LIMIT: Limit = Limit::gcra(1, MINUTE).burst(9);

/// How a permit is taken.
#[derive(Clone, Copy, Debug)]
enum By {
    Everything,
    Alone,
    /// Behind many others that are in flight.
    Together,
    /// With a policy that is in no group, so that another key is read and written, too.
    Beside,
}

/// Of names of any length.
fn policies() -> Vec<PolicyId> {
    let name = |number| format!("{number}-{}", "policy".repeat(number));
    (0..40).map(|number| grouped(&name(number))).collect()
}

async fn ask(
    bench: &Bench,
    key: &str,
    policies: &[PolicyId],
    limit: Limit,
    action: Action,
) -> Result<Decisions, StoreErrorKind> {
    let checks = policies
        .iter()
        .map(|policy| check_of(policy, key, &limit, action));
    answer_of(bench.store(), &checks.collect::<Vec<_>>())
        .await
        .map_err(|error| error.kind())
}

/// Takes this many of each. Returns how many are left.
async fn take(
    bench: &Bench,
    policies: &[PolicyId],
    by: By,
    permits: u64,
) -> Result<Vec<u64>, StoreErrorKind> {
    take_under(bench, policies, LIMIT, by, permits).await
}

async fn take_under(
    bench: &Bench,
    policies: &[PolicyId],
    limit: Limit,
    by: By,
    permits: u64,
) -> Result<Vec<u64>, StoreErrorKind> {
    let ask_of = |key, action| ask(bench, key, policies, limit, action);
    let decisions = match by {
        By::Everything => ask_of("alice", Action::acquire(permits)).await,
        By::Alone => ask_of("alice", Action::consume(permits)).await,
        By::Together => {
            let keys: Vec<_> = (0..40).map(|number| format!("other-{number}")).collect();
            let others = join_all(keys.iter().map(|key| ask_of(key, Action::consume(1))));
            let alice = ask_of("alice", Action::consume(permits));
            let (_, alice) = join(others, alice).await;
            alice
        }
        By::Beside => {
            let all = [policies, &[PolicyId::new("beside")]].concat();
            ask(bench, "alice", &all, limit, Action::consume(permits)).await
        }
    };
    let remaining = |decisions: Decisions| {
        let each = decisions.iter().map(|decision| decision.remaining());
        each.collect()
    };
    decisions.map(remaining)
}

#[tokio::test]
async fn each_reads_what_the_others_wrote() {
    let policies = policies();
    use By::{Alone, Everything, Together};
    for count in [1, 2, 15, 16, 40] {
        let bench = Bench::redis().await;
        let ways = [
            Together, Together, Everything, Together, Alone, Together, Everything, Alone,
            Everything,
        ];
        for (before, by) in ways.into_iter().enumerate() {
            let found = take(&bench, &policies[..count], by, 1).await.unwrap();
            assert_eq!(found, vec![8 - before as u64; count], "{count} {by:?}");
            let until = MINUTE * (before as u32 + 1);
            assert!(key_expires_in(&bench, &group_key(), until), "{by:?}");
        }
    }
}

/// What had expired by the wrong clock, but is still in force by the right one, is kept by every
/// script that writes the key in between.
#[tokio::test]
async fn a_clock_that_ran_ahead_and_is_corrected_frees_no_capacity() {
    let [short, long] = ["short", "long"].map(|name| [grouped(name)]);
    let minute = Limit::gcra(1, MINUTE);
    let hour = Limit::gcra(3, HOUR);
    for by in [By::Everything, By::Alone, By::Together, By::Beside] {
        let bench = Bench::redis().await;
        take_under(&bench, &short, minute, by, 1).await.unwrap();
        take_under(&bench, &long, hour, by, 1).await.unwrap();
        bench.advance(90 * SECOND);
        let found = take_under(&bench, &long, hour, by, 1).await.unwrap();
        assert_eq!(found[0], 1, "{by:?}");
        bench.clock.step_back(80 * SECOND);
        let again = ask(&bench, "alice", &short, minute, Action::acquire(1)).await;
        assert!(!again.unwrap()[0].is_allowed(), "{by:?}");
    }
}

/// If a script knows that a key already expires with the right second, it does not set the expiry
/// again.
#[tokio::test]
async fn takes_of_less_than_a_second_move_the_expiry_with_the_seconds() {
    let policies = ["a", "b"].map(grouped);
    let limit = Limit::gcra(4, SECOND).burst(1_000);
    for by in [By::Everything, By::Alone, By::Together, By::Beside] {
        let bench = Bench::redis().await;
        for taken in 1..=24 {
            let found = take_under(&bench, &policies, limit, by, 1).await.unwrap();
            assert_eq!(found[..2], [1_000 - taken; 2], "{by:?}");
            let paid = SECOND * taken as u32 / 4;
            assert!(key_expires_in(&bench, &group_key(), paid), "{by:?} {taken}");
        }
        // One of them alone then owes more than the other one.
        for taken in 25..=32 {
            let one = &policies[..1];
            let found = take_under(&bench, one, limit, by, 1).await.unwrap();
            assert_eq!(found[0], 1_000 - taken, "{by:?}");
            let paid = SECOND * taken as u32 / 4;
            assert!(key_expires_in(&bench, &group_key(), paid), "{by:?} {taken}");
        }
        // All debt is paid within the second in which the key expires.
        bench.advance(SECOND * 8);
        take_under(&bench, &policies, limit, by, 1).await.unwrap();
        let paid = SECOND / 4;
        assert!(key_expires_in(&bench, &group_key(), paid), "{by:?}");
    }
}

#[tokio::test]
async fn a_policy_not_asked_about_keeps_its_state_until_it_is_paid() {
    let policies = policies();
    for by in [By::Everything, By::Alone, By::Together] {
        let bench = Bench::redis().await;
        let ask = |command: &str| bench.server().query::<u64>((command, group_key()));
        let (some, one) = (&policies[..3], &policies[1..2]);
        take(&bench, one, by, 1).await.unwrap();
        let of_one = ask("STRLEN");
        take(&bench, some, by, 5).await.unwrap();
        let found = take(&bench, one, by, 1).await.unwrap();
        assert_eq!(found, [2], "{by:?}");
        assert_eq!(left(&bench, &policies[0], LIMIT).await, 4, "{by:?}");
        assert!(ask("STRLEN") > of_one, "{by:?}");
        assert!(key_expires_in(&bench, &group_key(), 7 * MINUTE), "{by:?}");
        // An hour after that they are forgotten.
        bench.advance(68 * MINUTE + SECOND);
        take(&bench, one, by, 1).await.unwrap();
        assert_eq!(ask("STRLEN"), of_one, "{by:?}");
    }
}

#[tokio::test]
async fn a_value_that_is_no_record_fails_alone() {
    let policies = ["a", "b"].map(grouped);
    let key = group_key();
    let bench = Bench::redis().await;
    let id = id_of(bench.server(), bench.store(), &policies[0]).await;
    for record in corrupt_records(id) {
        // A denial is remembered.
        let bench = Bench::redis().await;
        plant_record(bench.server(), &key, &record);
        let before = dump(bench.server(), &key);
        let found = take(&bench, &policies, By::Together, 1).await;
        assert_eq!(found, Err(StoreErrorKind::CorruptValue), "{record:?}");
        assert_eq!(dump(bench.server(), &key), before, "{record:?}");
    }
}
