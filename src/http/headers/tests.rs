use proptest::prelude::*;
use sfv::{BareItem, List, ListEntry, Parser};

use super::*;
use crate::algorithm::{Action, Algorithm, State, decide};
use crate::limit::Limit;
use crate::time::{MINUTE, Micros, SECOND};

fn fields(each: &[(&str, Decision)]) -> QuotaFields {
    let each = each.iter().map(|(name, decision)| (*name, decision));
    QuotaFields::of(each).expect("a policy applied")
}

/// A key's history: the costs that were asked for, each at an instant, in microseconds.
struct History {
    algorithm: Algorithm,
    state: State,
}

impl History {
    fn of(limit: Limit) -> Self {
        let algorithm = Algorithm::try_from(&limit).expect("a sound limit");
        let state = algorithm.untouched();
        Self { algorithm, state }
    }

    fn ask(&mut self, at_us: u64, cost: u32) -> Decision {
        let now = Micros::new(4_102_444_800_000_000 + at_us);
        let action = Action::take(cost);
        let mut reading = self.algorithm.read(&self.state, now, &action);
        if reading.fits {
            reading = self
                .algorithm
                .commit(&mut self.state, now, &action, reading);
        }
        decide(std::iter::once((&self.algorithm, &action)), &[reading])[0]
    }
}

/// The decision on `cost` permits some time after others were asked for.
fn judged(limit: Limit, before: &[u32], after_us: u64, cost: u32) -> Decision {
    let mut history = History::of(limit);
    for &cost in before {
        history.ask(0, cost);
    }
    history.ask(after_us, cost)
}

fn list(field: &HeaderValue) -> List {
    Parser::new(field.as_bytes())
        .parse()
        .expect("a structured field")
}

/// Each item's name and the two parameters of these keys.
fn items(field: &HeaderValue, keys: [&str; 2]) -> Vec<(String, i64, i64)> {
    let item = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else {
            panic!("an inner list in {field:?}");
        };
        let BareItem::String(name) = &item.bare_item else {
            panic!("no string in {field:?}");
        };
        assert_eq!(item.params.len(), 2, "{field:?}");
        let [a, b] = keys.map(|key| match item.params.get(key) {
            Some(BareItem::Integer(number)) => i64::from(*number),
            other => panic!("{key} is {other:?} in {field:?}"),
        });
        (name.to_string(), a, b)
    };
    list(field).iter().map(item).collect()
}

#[test]
fn each_policy_is_an_item_of_both_fields() {
    let fields = fields(&[
        ("client", judged(Limit::gcra(100, MINUTE), &[49], 0, 1)),
        ("all", judged(Limit::fixed_window(9, SECOND), &[], 0, 1)),
    ]);
    assert_eq!(
        fields.policy,
        r#""client";q=100;w=60, "all";q=9;w=1"#.to_owned()
    );
    assert_eq!(
        fields.quota,
        r#""client";r=50;t=30, "all";r=8;t=1"#.to_owned()
    );
}

#[test]
fn an_exhausted_steady_rate_announces_the_next_permit() {
    let last = judged(Limit::gcra(6, MINUTE), &[5], 0, 1);
    assert!(last.is_allowed());
    assert_eq!((last.remaining(), renewal_secs(&last)), (0, 10));

    let denied = judged(Limit::gcra(6, MINUTE), &[6], 3_000_000, 1);
    assert_eq!((denied.remaining(), renewal_secs(&denied)), (0, 7));
    assert_eq!(retry_after_secs(&denied), Some(7));
}

#[test]
fn a_fixed_window_announces_its_end() {
    for cost in [1, 9] {
        let decision = judged(Limit::fixed_window(10, MINUTE), &[1], 12_000_000, cost);
        assert_eq!(renewal_secs(&decision), 48);
    }
    let denied = judged(Limit::fixed_window(10, MINUTE), &[10], 12_000_001, 1);
    assert_eq!(
        (renewal_secs(&denied), retry_after_secs(&denied)),
        (48, Some(48))
    );
}

#[test]
fn an_exhausted_log_announces_its_first_lapse_when_it_denies() {
    let denied = judged(Limit::sliding_log(2, MINUTE), &[2], 20_000_000, 1);
    assert_eq!(
        (renewal_secs(&denied), retry_after_secs(&denied)),
        (40, Some(40))
    );
}

#[test]
fn what_never_fits_and_what_is_allowed_have_no_retry_after() {
    let never = judged(Limit::gcra(5, SECOND), &[], 0, 6);
    let allowed = judged(Limit::gcra(5, SECOND), &[], 0, 5);
    assert_eq!(retry_after_secs(&never), None);
    assert_eq!(retry_after_secs(&allowed), None);
}

#[test]
fn no_answer_from_the_store_means_no_field() {
    use crate::decision::Outcome;
    use crate::error::StoreErrorKind;

    let failed = Decision {
        outcome: Outcome::FailedOpen(StoreErrorKind::TimedOut),
        ..judged(Limit::gcra(5, SECOND), &[], 0, 1)
    };
    assert!(QuotaFields::of([("api", &failed)].into_iter()).is_none());
    let beside = judged(Limit::gcra(5, SECOND), &[], 0, 1);
    let fields = fields(&[("api", failed), ("other", beside)]);
    assert_eq!(items(&fields.quota, ["r", "t"]).len(), 1);
}

#[test]
fn fields_are_appended_to_those_of_a_layer_further_in() {
    let mut headers = HeaderMap::new();
    for name in ["inner", "outer"] {
        let decision = judged(Limit::gcra(5, SECOND), &[], 0, 1);
        fields(&[(name, decision)]).append_to(&mut headers);
    }
    assert_eq!(headers.get_all(POLICY).iter().count(), 2);
    assert_eq!(headers.get_all(QUOTA).iter().count(), 2);
}

#[test]
fn a_cors_layer_is_told_every_name() {
    let names = QuotaHeaders::Draft11.names();
    assert_eq!(names, ["retry-after", "ratelimit-policy", "ratelimit"]);
    assert_eq!(QuotaHeaders::None.names(), ["retry-after"]);
}

fn limits() -> impl Strategy<Value = Limit> {
    let permits = prop_oneof![1..200_u32, any::<u32>().prop_map(|n| n.max(1))];
    let us = prop_oneof![
        (1..400_u64).prop_map(|secs| secs * 1_000_000),
        1_000..3_000_000_000_u64,
    ];
    (0..3, permits, us, 1..300_u32).prop_map(|(which, permits, us, burst)| {
        let window = std::time::Duration::from_micros(us);
        match which {
            0 => Limit::gcra(permits, window).burst(burst),
            1 => Limit::fixed_window(permits, window),
            _ => Limit::sliding_log(permits, window),
        }
    })
}

proptest! {
    #[test]
    fn remaining_over_time_never_promises_more_than_the_quota(
        limit in limits(),
        before in prop::collection::vec(0..300_u32, 0..6),
        after_us in 0..200_000_000_u64,
        cost in 0..300_u32,
    ) {
        let mut history = History::of(limit);
        for cost in before {
            history.ask(0, cost);
        }
        let decision = history.ask(after_us, cost);
        let fields = fields(&[("p", decision)]);
        let [(_, q, w)] = items(&fields.policy, ["q", "w"])[..] else { panic!() };
        let [(_, r, t)] = items(&fields.quota, ["r", "t"])[..] else { panic!() };
        prop_assert!(w >= 1 && t >= 1 && r >= 0);
        // A fixed window gives what is left until its end, however near that is.
        if !decision.renews_whole {
            prop_assert!(i128::from(r) * i128::from(w) <= i128::from(q) * i128::from(t));
        }
        if r == 0 {
            // At the announced instant there is more.
            let renewed = history.ask(after_us + t.unsigned_abs() * 1_000_000, 0);
            prop_assert!(renewed.remaining() > 0);
        }
        if let Some(wait) = decision.retry_after() {
            let secs = retry_after_secs(&decision).unwrap();
            prop_assert!(u128::from(secs) * 1_000_000 >= wait.as_micros());
            prop_assert!(i128::from(secs) >= i128::from(t));
        }
    }

    #[test]
    fn every_allowed_name_comes_back_from_its_structured_field(name in "[ -~]{1,64}") {
        let fields = fields(&[(&name, judged(Limit::gcra(5, SECOND), &[], 0, 1))]);
        prop_assert_eq!(&items(&fields.policy, ["q", "w"])[0].0, &name);
        prop_assert_eq!(&items(&fields.quota, ["r", "t"])[0].0, &name);
    }
}
