//! Penalty box: when a ban starts, how long it is, and when it is forgotten.

use super::penalties::{Came, Guarded};
use super::*;
use crate::time::MINUTE;

const AFTER_THREE: Penalty = Penalty::after(3, SECOND, MINUTE);

/// Denied from the first request on.
fn denied_from_now_on(penalty: &Penalty) -> Guarded {
    let mut guarded = Guarded::of(Limit::sliding_log(1, DAY), penalty);
    assert_eq!(guarded.ask(), Came::Through);
    guarded
}

/// The length of the ban that the next denial causes. Returns when it is over.
fn next_ban(guarded: &mut Guarded) -> u64 {
    let Came::Denied { brought } = guarded.ask() else {
        panic!("not denied");
    };
    guarded.guard.now += brought;
    brought
}

#[test]
fn enough_denials_ban_unless_a_microsecond_too_far_apart() {
    let apart = |pauses: [u64; 2]| {
        let mut guarded = denied_from_now_on(&AFTER_THREE);
        guarded.ask();
        for pause in pauses {
            guarded.guard.now += pause;
            guarded.ask();
        }
        matches!(guarded.ask(), Came::Banned(_))
    };
    assert!(apart([0, 0]));
    assert!(apart([1, 999_998]));
    assert!(apart([999_999, 0]));
    assert!(!apart([0, 1_000_000]));
    // Two in every second, for as long as it likes.
    let mut guarded = denied_from_now_on(&AFTER_THREE);
    for _ in 0..50 {
        guarded.guard.now += 500_000;
        assert_eq!(guarded.ask(), Came::Denied { brought: 0 });
    }
}

#[test]
fn bans_double_up_to_the_longest() {
    let penalty = Penalty::after(1, SECOND, SECOND).doubling_up_to(5 * SECOND);
    let mut guarded = denied_from_now_on(&penalty);
    let bans: Vec<u64> = (0..5).map(|_| next_ban(&mut guarded)).collect();
    assert_eq!(bans, [1, 2, 4, 5, 5].map(|secs| secs * us(SECOND)));
}

#[test]
fn a_ban_is_forgotten_when_it_has_been_over_for_as_long_as_the_longest() {
    let penalty = Penalty::after(1, SECOND, SECOND).doubling_up_to(5 * SECOND);
    for (early, length) in [(1, 2), (0, 1)] {
        let mut guarded = denied_from_now_on(&penalty);
        next_ban(&mut guarded);
        guarded.guard.now += us(5 * SECOND) - early;
        assert_eq!(next_ban(&mut guarded), length * us(SECOND));
    }
}

#[test]
fn a_reset_lifts_a_ban_and_forgets_the_denials_before() {
    let mut guarded = denied_from_now_on(&AFTER_THREE);
    for _ in 0..3 {
        guarded.ask();
    }
    assert!(matches!(guarded.ask(), Came::Banned(_)));
    let _ = guarded.act(Action::Reset);
    assert_eq!(guarded.ask(), Came::Through);
    for brought in [0, 0, us(MINUTE)] {
        assert_eq!(guarded.ask(), Came::Denied { brought });
    }
}

#[test]
fn a_look_is_allowed_while_banned_and_counts_nothing() {
    let mut guarded = denied_from_now_on(&AFTER_THREE);
    for denials in 0..5 {
        guarded.ask();
        let before = guarded.penalty.remembered();
        let [guard, penalty] = guarded.act(Action::look());
        assert!(guard.is_allowed() && penalty.is_allowed(), "{denials}");
        assert_eq!(guarded.penalty.remembered(), before);
    }
}

#[test]
fn a_denial_by_another_check_of_the_question_does_not_count() {
    let mut guarded = Guarded::of(Limit::gcra(5, SECOND), &AFTER_THREE);
    let mut other = Subject::of(Limit::gcra(1, DAY));
    let _ = other.ask(1);
    let (now, action) = (Micros::new(START), Action::acquire(1));
    let subjects = [&mut guarded.guard, &mut guarded.penalty, &mut other];
    let algorithms = subjects.each_ref().map(|subject| subject.algorithm);
    let readings = subjects.map(|subject| subject.algorithm.read(&subject.state, now, &action));
    let asked = algorithms
        .iter()
        .map(|algorithm| Ask::enforced(algorithm, &action));
    assert!(committed(asked, &readings).eq([false; 3]));
}
