//! Lists of more policies than there is room for.

use super::draft_11::LONGEST;
use super::*;

/// The names in both fields, in their order.
fn listed(each: &[(String, Decision)]) -> Vec<String> {
    let each: Vec<_> = each
        .iter()
        .map(|(name, decision)| (&**name, *decision))
        .collect();
    let fields = lists(&each);
    for field in [&fields.policy, &fields.quota] {
        assert!(field.len() <= LONGEST, "{}", field.len());
    }
    let names = |field, keys| items(field, keys).into_iter().map(|(name, ..)| name);
    let listed: Vec<_> = names(&fields.quota, ["r", "t"]).collect();
    assert!(names(&fields.policy, ["q", "w"]).eq(listed.iter().cloned()));
    listed
}

/// A hundred policies, each with less left than the one before it.
fn hundred() -> Vec<(String, Decision)> {
    let one = |used| {
        let decision = decided(Limit::gcra(100, MINUTE), &[used], 0, 0);
        (format!("policy {used}"), decision)
    };
    (0..100).map(one).collect()
}

#[test]
fn the_tightest_of_many_policies_are_listed_first() {
    let each = hundred();
    let listed = listed(&each);
    assert!((25..100).contains(&listed.len()), "{}", listed.len());
    let tightest = each.iter().rev().map(|(name, _)| name.clone());
    assert_eq!(listed, tightest.take(listed.len()).collect::<Vec<_>>());
}

#[test]
fn a_denial_is_listed_before_an_exhausted_policy() {
    let mut each = hundred();
    let of_many = decided(Limit::gcra(1_000, MINUTE), &[999], 0, 2);
    assert!(!of_many.is_allowed() && of_many.remaining() > 0);
    each.insert(0, ("denies".to_owned(), of_many));
    assert_eq!(listed(&each)[..2], ["denies", "policy 99"]);
}

#[test]
fn fewer_permits_are_listed_before_a_smaller_share_of_more() {
    let mut each = hundred();
    each.truncate(95);
    let of_few = decided(Limit::gcra(3, MINUTE), &[], 0, 1);
    each.insert(0, ("few".to_owned(), of_few));
    assert_eq!((of_few.remaining(), each[95].1.remaining()), (2, 6));
    assert_eq!(listed(&each)[..2], ["few", "policy 94"]);
}

/// Otherwise a client could take a policy that is listed for a tighter one than all that are not.
#[test]
fn none_is_listed_after_one_for_which_there_is_no_room() {
    let one = |name: String, used| (name, decided(Limit::gcra(100, MINUTE), &[used], 0, 0));
    let long = |used| one(format!("{used}{}", "x".repeat(120)), used);
    let mut each: Vec<_> = (90..100).map(long).collect();
    each.push(one("short".to_owned(), 0));
    let listed = listed(&each);
    let tightest = each.iter().rev().skip(1).map(|(name, _)| name.clone());
    assert_eq!(listed, tightest.take(listed.len()).collect::<Vec<_>>());
    assert!(listed.len() < 10);
}

/// What remains of a burst has more digits than the limit.
#[test]
fn a_policy_that_only_one_field_has_room_for_is_in_neither() {
    let burst = decided(Limit::gcra(1, SECOND).burst(2_000_000_000), &[], 0, 0);
    for length in 1..64 {
        let each: Vec<_> = (10..100)
            .map(|number| (format!("{number}{}", "x".repeat(length)), burst))
            .collect();
        assert!(listed(&each).len() < each.len());
    }
}

#[test]
fn policies_that_all_fit_keep_their_order() {
    let each = &hundred()[..20];
    let names: Vec<_> = each.iter().map(|(name, _)| name.clone()).collect();
    assert_eq!(listed(each), names);
}

#[test]
fn six_policies_with_the_longest_names_and_numbers_fit() {
    let day = 24 * 60 * MINUTE;
    let one = |letter| {
        let name = format!("{letter}{}", "\"".repeat(63));
        (
            name,
            decided(
                Limit::fixed_window(crate::limit::MOST_PERMITS, day),
                &[],
                0,
                1,
            ),
        )
    };
    let each: Vec<_> = ('a'..='f').map(one).collect();
    assert_eq!(listed(&each).len(), 6);
}
