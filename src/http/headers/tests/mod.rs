use http::HeaderValue;
use sfv::{BareItem, List, ListEntry, Parser};

use super::draft_11::{Lists, POLICY, QUOTA};
use super::*;
use crate::algorithm::{Action, Algorithm, Ask, State, decide};
use crate::decision::Outcome;
use crate::error::StoreErrorKind;
use crate::http::seconds::{renewal_secs, retry_after_secs};
use crate::limit::Limit;
use crate::time::{DAY, HOUR, MINUTE, ManualClock, Micros, SECOND};

mod families;
mod lists;
mod million;
mod properties;
mod single;

/// When every history begins.
const START: Micros = Micros::new(4_102_444_800_000_000);

/// The fields that these headers give a response after these decisions, some time after the start.
fn fields_at(us: u64, headers: QuotaHeaders, each: &[(&str, Decision)]) -> QuotaFields {
    let clock = ManualClock::at(START.saturating_add(Micros::new(us)));
    let is_allowed = each.iter().all(|(_, decision)| decision.is_allowed());
    let each = each.iter().map(|(name, decision)| (*name, decision));
    headers.due(is_allowed).fields_of(each, &clock)
}

fn lists(each: &[(&str, Decision)]) -> Lists {
    let fields = fields_at(0, QuotaHeaders::DRAFT_11, each);
    fields.lists.expect("a policy applied")
}

/// A key's history: the costs asked for, each at an instant in microseconds.
struct History {
    algorithm: Algorithm,
    state: State,
}

impl History {
    fn of(limit: Limit) -> Self {
        let algorithm = Algorithm::try_from(&limit).expect("a valid limit");
        let state = algorithm.untouched();
        Self { algorithm, state }
    }

    fn ask(&mut self, at_us: u64, cost: u64) -> Decision {
        let now = START.saturating_add(Micros::new(at_us));
        let action = Action::acquire(cost);
        let mut reading = self.algorithm.read(&self.state, now, &action);
        if reading.fits {
            reading = self
                .algorithm
                .commit(&mut self.state, now, &action, reading);
        }
        decide(
            std::iter::once(Ask::enforced(&self.algorithm, &action)),
            &[reading],
        )[0]
    }
}

/// The decision on `cost` permits some time after others were asked for.
fn decided(limit: Limit, before: &[u64], after_us: u64, cost: u64) -> Decision {
    let mut history = History::of(limit);
    for &cost in before {
        let _ = history.ask(0, cost);
    }
    history.ask(after_us, cost)
}

/// The same decision, had the store not answered.
fn unanswered(decision: Decision) -> Decision {
    let outcome = Outcome::FailedOpen(StoreErrorKind::TimedOut);
    Decision {
        outcome,
        ..decision
    }
}

/// The same decision, with a ban.
fn banned(decision: Decision, for_us: u64) -> Decision {
    let penalty = Decision {
        outcome: Outcome::Banned,
        ban: Micros::new(for_us),
        ..decision
    };
    decision.under(&penalty)
}

fn list(field: &HeaderValue) -> List {
    Parser::new(field.as_bytes())
        .parse()
        .expect("a structured field")
}

/// Each item's name and two of its parameters.
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
    let fields = lists(&[
        ("client", decided(Limit::gcra(100, MINUTE), &[49], 0, 1)),
        ("all", decided(Limit::fixed_window(9, SECOND), &[], 0, 1)),
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
    let last = decided(Limit::gcra(6, MINUTE), &[5], 0, 1);
    assert!(last.is_allowed());
    assert_eq!((last.remaining(), renewal_secs(&last)), (0, 10));

    let denied = decided(Limit::gcra(6, MINUTE), &[6], 3_000_000, 1);
    assert_eq!((denied.remaining(), renewal_secs(&denied)), (0, 7));
    assert_eq!(retry_after_secs(&denied), Some(7));
}

/// Instead of the day over which the permits left would have to last.
#[test]
fn a_denial_of_a_high_cost_tells_when_that_cost_fits() {
    let denied = decided(Limit::gcra(1_000, DAY), &[1], 0, 1_000);
    assert_eq!(denied.remaining(), 999);
    assert_eq!(
        (renewal_secs(&denied), retry_after_secs(&denied)),
        (87, Some(87))
    );
}

/// The cost fits later than that.
#[test]
fn few_permits_left_are_spread_over_no_more_than_the_pace() {
    let denied = decided(Limit::gcra(6, MINUTE), &[5], 0, 6);
    assert_eq!(denied.remaining(), 1);
    assert_eq!(
        (renewal_secs(&denied), retry_after_secs(&denied)),
        (10, Some(50))
    );
}

#[test]
fn a_fixed_window_announces_its_end() {
    for cost in [1, 9] {
        let decision = decided(Limit::fixed_window(10, MINUTE), &[1], 12_000_000, cost);
        assert_eq!(renewal_secs(&decision), 48);
    }
    let denied = decided(Limit::fixed_window(10, MINUTE), &[10], 12_000_001, 1);
    assert_eq!(
        (renewal_secs(&denied), retry_after_secs(&denied)),
        (48, Some(48))
    );
}

#[test]
fn an_exhausted_log_announces_its_first_lapse_when_it_denies() {
    let denied = decided(Limit::sliding_log(2, MINUTE), &[2], 20_000_000, 1);
    assert_eq!(
        (renewal_secs(&denied), retry_after_secs(&denied)),
        (40, Some(40))
    );
}

/// Five an hour, one request each 8 minutes, of which the fifth takes the last permit. A client that
/// waited until all are back would lose half of its quota.
#[test]
fn the_last_permit_of_a_sliding_limit_announces_the_next_one() {
    let limits = [
        (Limit::sliding_log(5, HOUR), 1_680),
        (Limit::sliding_counter(5, HOUR), 2_400),
        (Limit::sliding_window(5, HOUR), 2_040),
    ];
    for (limit, wait) in limits {
        let mut history = History::of(limit);
        let mut ask = |minute: u64| history.ask(minute * 60_000_000, 1);
        let last = [0, 8, 16, 24, 32].map(&mut ask)[4];
        assert_eq!((last.remaining(), renewal_secs(&last)), (0, wait));
        assert_eq!(last.next_permit_after().as_secs(), wait);
        // As a denial has it, at the same time and later.
        for minute in [32, 40] {
            let (denied, gone) = (ask(minute), (minute - 32) * 60);
            assert_eq!(renewal_secs(&denied), wait - gone);
            assert_eq!(retry_after_secs(&denied), Some(wait - gone));
        }
    }
}

#[test]
fn a_denial_of_several_permits_tells_when_the_first_of_them_is_back() {
    let mut history = History::of(Limit::sliding_log(2, MINUTE));
    for second in [0, 20] {
        let _ = history.ask(second * 1_000_000, 1);
    }
    let denied = history.ask(30_000_000, 2);
    assert_eq!(
        (renewal_secs(&denied), retry_after_secs(&denied)),
        (30, Some(50))
    );
}

#[test]
fn a_cost_that_never_fits_and_an_allowed_request_have_no_retry_after() {
    let never = decided(Limit::gcra(5, SECOND), &[], 0, 6);
    let allowed = decided(Limit::gcra(5, SECOND), &[], 0, 5);
    assert_eq!(retry_after_secs(&never), None);
    assert_eq!(retry_after_secs(&allowed), None);
}

#[test]
fn no_answer_from_the_store_means_no_field() {
    let failed = unanswered(decided(Limit::gcra(5, SECOND), &[], 0, 1));
    let all = QuotaHeaders::DRAFT_11.and(QuotaHeaders::DRAFT_6);
    assert_eq!(
        fields_at(0, all, &[("api", failed)]),
        QuotaFields::default()
    );
    let beside = decided(Limit::gcra(5, SECOND), &[], 0, 1);
    let fields = lists(&[("api", failed), ("other", beside)]);
    assert_eq!(items(&fields.quota, ["r", "t"]).len(), 1);
}
