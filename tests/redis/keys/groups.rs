//! Keys that hold several states: the policies of a group, the rates of a limit.

use tower_throttle::store::{Action, Algorithm};
use tower_throttle::store::{Check, Decisions, PolicyId, Receipt, Store};
use tower_throttle::{
    Clock as _, DAY, FailureMode, HOUR, Key, Limit, MINUTE, Micros, SECOND, StoreErrorKind,
    Subject, per_second,
};

use crate::keys::corrupt::{dump, plant};
use crate::keys::expiry::{expires_in, expires_ms};
use support::asking::{answer_of, check_of, pending_answer_of};
use support::bench::Bench;
use support::redis::Server;

/// The action on one policy.
pub(crate) type Done<'a> = (&'a PolicyId, Limit, Action);

pub(crate) fn grouped(name: &str) -> PolicyId {
    PolicyId::new(name).in_group("client")
}

/// Policies whose names are among these letters are in shadow.
pub(crate) async fn try_ask(
    store: &dyn Store,
    done: &[Done<'_>],
    in_shadow: &str,
) -> Result<Decisions, StoreErrorKind> {
    let checks: Vec<_> = done
        .iter()
        .map(|(policy, limit, action)| {
            check_of(policy, "alice", limit, *action).in_shadow(in_shadow.contains(policy.name()))
        })
        .collect();
    let answer = answer_of(store, &checks).await;
    answer.map_err(|error| error.kind())
}

async fn ask(bench: &Bench, done: &[Done<'_>]) -> Decisions {
    try_ask(bench.store(), done, "").await.unwrap()
}

/// How many permits are left of a policy.
pub(crate) async fn left(bench: &Bench, policy: &PolicyId, limit: Limit) -> u64 {
    ask(bench, &[(policy, limit, Action::look())]).await[0].remaining()
}

/// Alice's, in the group.
pub(crate) fn group_key() -> String {
    let hash = Subject::from(&Key::from("alice"));
    format!("throttle:group2:{{{hash}}}:client")
}

/// With each kind of state: a number, a fraction, and texts.
const LIMITS: [Limit; 7] = [
    Limit::gcra(10, MINUTE),
    Limit::gcra(7, SECOND).burst(10),
    Limit::token_bucket(10, per_second(3)),
    Limit::leaky_bucket(10, per_second(1)).without_delay(),
    Limit::fixed_window(10, MINUTE),
    Limit::sliding_window(10, MINUTE),
    Limit::sliding_counter(10, MINUTE),
];

/// Final takes have a script of their own.
pub(crate) const TAKES: [fn(u64) -> Action; 2] = [Action::acquire, Action::consume];

#[tokio::test]
async fn one_key_and_one_script_serve_five_policies_of_a_group() {
    for take in TAKES {
        let bench = Bench::redis().await;
        let policies = ["a", "b", "c", "d", "e"].map(grouped);
        let done = policies
            .each_ref()
            .map(|policy| (policy, Limit::gcra(10, MINUTE), take(1)));
        ask(&bench, &done).await;
        let commands = ["evalsha", "get", "mget", "set"];
        let before = commands.map(|command| bench.server().calls(command));
        for remaining in [8, 7, 6] {
            let decisions = ask(&bench, &done).await;
            let all = decisions.iter().map(|decision| decision.remaining());
            assert_eq!(all.collect::<Vec<_>>(), [remaining; 5]);
        }
        let after = commands.map(|command| bench.server().calls(command));
        let [scripts, gets, mgets, sets] = std::array::from_fn(|at| after[at] - before[at]);
        assert_eq!([scripts, gets + mgets, sets], [3; 3]);
        assert_eq!(bench.server().keys(), [group_key()]);
    }
}

#[tokio::test]
async fn a_group_of_many_policies_of_every_kind_counts_each_alone() {
    let bench = Bench::redis().await;
    let policies: Vec<_> = (0..40).map(|n| grouped(&format!("policy-{n}"))).collect();
    // Those that count in debt share a key.
    let limit = |at: usize| LIMITS[at % 4];
    for (at, policy) in policies.iter().enumerate() {
        let cost = 1 + at as u64 % 9;
        let done = (policy, limit(at), TAKES[at % 2](cost));
        assert!(ask(&bench, &[done]).await[0].is_allowed());
    }
    for (at, policy) in policies.iter().enumerate() {
        let used = 1 + at as u64 % 9;
        assert_eq!(left(&bench, policy, limit(at)).await, 10 - used, "{at}");
    }
    assert_eq!(bench.stored(), 1);
}

#[tokio::test]
async fn all_policies_of_a_group_are_charged_or_none() {
    for take in TAKES {
        let bench = Bench::redis().await;
        let (a, b) = (grouped("a"), grouped("b"));
        let [few, many] = [2, 5].map(|permits| Limit::gcra(permits, DAY));
        for allowed in [true, true, false, false] {
            let decisions = ask(&bench, &[(&a, many, take(1)), (&b, few, take(1))]).await;
            let fits = decisions.iter().all(|decision| decision.is_allowed());
            assert_eq!(fits, allowed);
        }
        assert_eq!(left(&bench, &a, many).await, 3);
        assert_eq!(left(&bench, &b, few).await, 0);
    }
}

#[tokio::test]
async fn joining_or_leaving_a_group_resets_no_other_policy() {
    for limit in LIMITS {
        for take in TAKES {
            let bench = Bench::redis().await;
            let [a, b, c] = ["a", "b", "c"].map(grouped);
            ask(&bench, &[(&a, limit, take(1)), (&b, limit, take(2))]).await;
            // Without b, which is about other requests, or missing in an older version of the
            // service.
            ask(&bench, &[(&a, limit, take(1))]).await;
            ask(&bench, &[(&c, limit, take(3)), (&a, limit, take(1))]).await;
            let found = [&a, &b, &c].map(|policy| left(&bench, policy, limit));
            let found = futures_util::future::join_all(found).await;
            assert_eq!(found, [7, 8, 7], "{limit:?}");
        }
    }
}

#[tokio::test]
async fn a_reset_charge_or_credit_changes_one_policy_of_a_group_alone() {
    for limit in LIMITS {
        let bench = Bench::redis().await;
        let [a, b] = ["a", "b"].map(grouped);
        let taken = [
            (&a, limit, Action::acquire(4)),
            (&b, limit, Action::acquire(3)),
        ];
        let receipt = ask(&bench, &taken).await[0].receipt();
        let credit = |permits, taken_at| Action::Credit { permits, taken_at };
        let refund = |permits, receipt| Action::Refund { permits, receipt };
        for (action, of_a) in [
            (credit(1, None), 7),
            (credit(1, receipt.taken_at()), 8),
            (Action::Charge(3), 5),
            (refund(1, receipt), 6),
            (Action::Reset, 10),
            (credit(9, None), 10),
            (refund(9, Receipt::default()), 10),
        ] {
            ask(&bench, &[(&a, limit, action)]).await;
            assert_eq!(left(&bench, &a, limit).await, of_a, "{limit:?} {action:?}");
            assert_eq!(left(&bench, &b, limit).await, 7, "{limit:?} {action:?}");
        }
        ask(&bench, &[(&b, limit, Action::Reset)]).await;
        assert_eq!(bench.stored(), 0, "{limit:?}");
    }
}

#[tokio::test]
async fn subjects_share_no_key_and_lone_policies_have_their_own() {
    let bench = Bench::redis().await;
    let policies = [grouped("a"), PolicyId::new("b"), grouped("c")];
    let subjects = ["alice", "alice", "bob"].map(|key| Subject::from(&Key::from(key)));
    let checks: Vec<_> = policies
        .iter()
        .zip(subjects)
        .map(|(policy, subject)| {
            Check::new(
                policy,
                subject,
                Algorithm::try_from(&Limit::gcra(3, DAY)).unwrap(),
                Action::consume(1),
            )
            .with_failure_mode(FailureMode::Deny)
        })
        .collect();
    for remaining in [2, 1, 0] {
        let answer = pending_answer_of(bench.store(), &checks);
        let decisions = answer.await.unwrap();
        let all = decisions.iter().map(|decision| decision.remaining());
        assert_eq!(all.collect::<Vec<_>>(), [remaining; 3]);
    }
    assert_eq!(bench.stored(), 3);
}

#[tokio::test]
async fn a_key_of_several_states_expires_with_the_last_of_them() {
    for take in TAKES {
        let bench = Bench::redis().await;
        let [a, b] = ["a", "b"].map(grouped);
        let [hour, minute] = [HOUR, MINUTE].map(|period| Limit::gcra(1, period));
        ask(&bench, &[(&a, hour, take(1)), (&b, minute, take(1))]).await;
        assert!(expires_in(&bench, HOUR));
        bench.advance(2 * MINUTE);
        // The other one has been paid back by then, and is created anew.
        ask(&bench, &[(&b, minute, take(1))]).await;
        assert!(expires_in(&bench, HOUR - 2 * MINUTE));
        ask(&bench, &[(&a, hour, Action::Reset)]).await;
        assert!(expires_in(&bench, MINUTE));
        // What has long expired leaves the key.
        bench.advance(2 * DAY);
        ask(&bench, &[(&a, hour, take(1))]).await;
        let size = || bench.server().query::<usize>(("STRLEN", group_key()));
        let with_one = size();
        ask(&bench, &[(&b, minute, take(1))]).await;
        assert!(size() > with_one);
    }
}

/// A limit that had one rate gets another one, and loses it again.
#[tokio::test]
async fn another_rate_joins_and_leaves_a_state_that_was_stored_alone() {
    for limit in LIMITS {
        for take in TAKES {
            let bench = Bench::redis().await;
            let first = PolicyId::new("api");
            let further = first.with_extra_rate(Micros::from(HOUR));
            let hour = Limit::gcra(100, HOUR);
            ask(&bench, &[(&first, limit, take(1))]).await;
            let both = [(&first, limit, take(1)), (&further, hour, take(1))];
            ask(&bench, &both).await;
            ask(&bench, &[(&first, limit, take(1))]).await;
            assert_eq!(left(&bench, &first, limit).await, 7, "{limit:?}");
            ask(&bench, &both).await;
            assert_eq!(left(&bench, &first, limit).await, 6, "{limit:?}");
            assert_eq!(left(&bench, &further, hour).await, 98, "{limit:?}");
        }
    }
}

/// Also when a fraction of a microsecond is all that is owed in it.
#[tokio::test]
async fn a_fraction_expires_with_the_second_in_which_it_is_paid() {
    // A third of a second each.
    let limit = Limit::gcra(3, SECOND).burst(9);
    for take in TAKES {
        for (into_us, seconds) in [(666_666, [1, 2]), (666_667, [2, 2])] {
            let bench = Bench::redis().await;
            bench.align(SECOND);
            let began_ms = bench.clock.now().ceil_millis();
            bench.advance_us(into_us);
            for second in seconds {
                ask(&bench, &[(&PolicyId::new("api"), limit, take(1))]).await;
                let ahead_ms = expires_ms(bench.server()) - began_ms;
                let ends_ms = second * 1_000;
                assert!(
                    (ends_ms - 1..=ends_ms + 1).contains(&ahead_ms),
                    "{ahead_ms}"
                );
            }
        }
    }
}

/// An entry of a record.
pub(crate) fn entry(id: [u8; 4], fraction: u32, us: u64) -> Vec<u8> {
    [&id[..], &fraction.to_be_bytes(), &us.to_be_bytes()].concat()
}

/// The id of this policy's debt in the record, under `gcra`. Nothing is stored before or after.
pub(crate) async fn id_of(server: &Server, store: &dyn Store, policy: &PolicyId) -> [u8; 4] {
    let done = [(policy, Limit::gcra(1, DAY), Action::acquire(1))];
    try_ask(store, &done, "").await.unwrap();
    let record: Vec<u8> = server.query(("GETDEL", group_key()));
    record[..4].try_into().unwrap()
}

/// Values that are no records: of another length, or with a debt that nobody can owe.
pub(crate) fn corrupt_records(id: [u8; 4]) -> Vec<Vec<u8>> {
    let far = entry(id, 0, 5_000_000_000_000_000);
    vec![
        b"hello".to_vec(),
        far[1..].to_vec(),
        [&far[..], b"\0"].concat(),
        [&far[..], &far[..8]].concat(),
        entry(id, 0, 1 << 53),
        entry(id, 7, u64::MAX),
        [far, entry(*b"else", 0, 1 << 60)].concat(),
    ]
}

pub(crate) fn plant_record(server: &Server, key: &str, record: &[u8]) {
    server.query::<()>(("SET", key, record, "PX", DAY.as_millis() as u64));
}

#[tokio::test]
async fn a_value_that_is_no_record_fails_its_group_and_stays() {
    let bench = Bench::redis().await;
    let server = bench.server();
    let [a, b] = ["a", "b"].map(grouped);
    let limit = Limit::gcra(3, DAY);
    let key = group_key();
    let id = id_of(server, bench.store(), &a).await;
    let records = corrupt_records(id);
    let planted: [(&str, &[&str]); 6] = [
        ("SET", &["7"]),
        ("SET", &["4102444800000000"]),
        ("SET", &["1:2:3"]),
        ("SET", &["\u{1}"]),
        ("RPUSH", &["1"]),
        ("HSET", &["a", "b"]),
    ];
    for case in 0..planted.len() + records.len() {
        match planted.get(case) {
            Some((command, value)) => plant(server, &key, command, value),
            None => plant_record(server, &key, &records[case - planted.len()]),
        }
        let before = dump(server, &key);
        for action in [
            Action::look(),
            Action::acquire(1),
            Action::consume(1),
            Action::Charge(1),
        ] {
            for done in [
                &[(&a, limit, action)][..],
                &[(&a, limit, action), (&b, limit, action)],
            ] {
                let found = try_ask(bench.store(), done, "").await;
                let found = found.map(|decisions| decisions[0].outcome());
                assert_eq!(
                    found,
                    Err(StoreErrorKind::CorruptValue),
                    "{case} {action:?}"
                );
                assert_eq!(dump(server, &key), before, "{case} {action:?}");
            }
        }
        ask(&bench, &[(&a, limit, Action::Reset)]).await;
        assert_eq!(server.keys(), [""; 0], "{case}");
    }
}
