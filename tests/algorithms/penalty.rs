//! Penalty box: a subject that is denied too often is banned.

use std::time::Duration;

use tower_throttle::store::{Action, Algorithm};
use tower_throttle::{Decision, HOUR, Limit, MINUTE, Outcome, Penalty, SECOND};

use support::bench::Bench;
use support::on_every_store;

on_every_store! {
    so_many_denials_bring_a_ban
    denials_further_apart_do_not
    hammering_while_banned_never_makes_a_ban_longer
    a_banned_subject_takes_no_permits
    bans_double_up_to_the_longest
    a_ban_is_forgotten_once_over_for_as_long_as_the_longest
    a_reset_lifts_the_ban_and_the_limit
    a_subject_that_is_never_denied_leaves_no_penalty_behind
    a_changed_penalty_forgives_no_ban
    a_harsher_penalty_bans_for_no_less_than_its_first_ban
    denials_after_a_short_ban_count_for_as_long_as_any
    a_ban_is_forgotten_in_time_while_denials_still_count
    fewer_denials_ban_one_who_has_had_more
    denials_that_are_forgotten_count_by_no_longer_time
}

const LOGIN: Limit = Limit::sliding_log(2, MINUTE);

const PENALTY: Penalty = Penalty::after(3, MINUTE, HOUR);

/// Applies an action to a limit and its penalty, in one question.
async fn guarded(bench: &Bench, penalty: &Penalty, action: Action) -> [Decision; 2] {
    let guard = Algorithm::try_from(&LOGIN).unwrap();
    let penalty = Algorithm::try_from(penalty).unwrap();
    let both = [guard, penalty].map(|algorithm| ("policy", algorithm, "key", action));
    let decisions = bench.act_all(&both).await;
    [decisions[0], decisions[1]]
}

/// How long the subject is banned.
async fn banned_for(bench: &Bench, penalty: &Penalty) -> Option<Duration> {
    guarded(bench, penalty, Action::acquire(1)).await[1].banned_for()
}

/// Uses up the limit, and is denied until it is banned.
async fn get_banned(bench: &Bench, penalty: &Penalty) {
    for _ in 0..100 {
        let [guard, penalty] = guarded(bench, penalty, Action::acquire(1)).await;
        if !guard.is_allowed() && penalty.is_allowed() && penalty.remaining() == 0 {
            return;
        }
    }
    panic!("never banned");
}

async fn so_many_denials_bring_a_ban(bench: &Bench) {
    for _ in 0..2 {
        let [guard, _] = guarded(bench, &PENALTY, Action::acquire(1)).await;
        assert!(guard.is_allowed());
    }
    for left in [2, 1, 0] {
        let [guard, penalty] = guarded(bench, &PENALTY, Action::acquire(1)).await;
        assert_eq!(guard.outcome(), Outcome::Denied);
        assert_eq!((penalty.is_allowed(), penalty.remaining()), (true, left));
    }
    let [_, penalty] = guarded(bench, &PENALTY, Action::acquire(1)).await;
    assert_eq!(penalty.outcome(), Outcome::Banned);
    assert_eq!(penalty.retry_after(), Some(HOUR));
}

async fn denials_further_apart_do_not(bench: &Bench) {
    let penalty = Penalty::after(3, 20 * SECOND, HOUR);
    // Two are allowed in each minute, and four denied, of which no three within 20 seconds.
    for _ in 0..60 {
        assert_eq!(banned_for(bench, &penalty).await, None);
        bench.advance(10 * SECOND);
    }
}

/// If each attempt extended a ban, it would never end for a client that keeps trying.
async fn hammering_while_banned_never_makes_a_ban_longer(bench: &Bench) {
    get_banned(bench, &PENALTY).await;
    for minute in 0..60 {
        for _ in 0..5 {
            let rest = banned_for(bench, &PENALTY).await;
            assert_eq!(rest, Some(HOUR - minute * MINUTE));
        }
        bench.advance(MINUTE);
    }
    let [guard, penalty] = guarded(bench, &PENALTY, Action::acquire(1)).await;
    assert!(guard.is_allowed() && penalty.is_allowed());
}

async fn a_banned_subject_takes_no_permits(bench: &Bench) {
    get_banned(bench, &PENALTY).await;
    bench.advance(2 * MINUTE);
    for _ in 0..5 {
        let [guard, penalty] = guarded(bench, &PENALTY, Action::acquire(1)).await;
        // The check itself would fit by now; but all are carried out, or none.
        assert_eq!((guard.is_allowed(), guard.remaining()), (true, 2));
        assert_eq!(penalty.outcome(), Outcome::Banned);
    }
}

async fn bans_double_up_to_the_longest(bench: &Bench) {
    let penalty = Penalty::after(1, MINUTE, MINUTE).doubling_up_to(5 * MINUTE);
    for minutes in [1, 2, 4, 5, 5] {
        get_banned(bench, &penalty).await;
        let ban = banned_for(bench, &penalty).await.unwrap();
        assert_eq!(ban, minutes * MINUTE);
        bench.advance(ban);
    }
}

async fn a_ban_is_forgotten_once_over_for_as_long_as_the_longest(bench: &Bench) {
    let penalty = Penalty::after(1, MINUTE, MINUTE).doubling_up_to(5 * MINUTE);
    for (early_us, minutes) in [(1, 2), (0, 1)] {
        get_banned(bench, &penalty).await;
        let ban = banned_for(bench, &penalty).await.unwrap();
        bench.advance(ban + 5 * MINUTE - Duration::from_micros(early_us));
        get_banned(bench, &penalty).await;
        assert_eq!(banned_for(bench, &penalty).await, Some(minutes * MINUTE));
        bench.advance(HOUR);
    }
}

async fn a_reset_lifts_the_ban_and_the_limit(bench: &Bench) {
    get_banned(bench, &PENALTY).await;
    let [guard, _] = guarded(bench, &PENALTY, Action::Reset).await;
    assert_eq!(guard.remaining(), 2);
    let [guard, penalty] = guarded(bench, &PENALTY, Action::acquire(1)).await;
    assert!(guard.is_allowed());
    assert_eq!(penalty.remaining(), 3, "the denials before are forgotten");
}

async fn a_subject_that_is_never_denied_leaves_no_penalty_behind(bench: &Bench) {
    for _ in 0..2 {
        let _ = guarded(bench, &PENALTY, Action::acquire(1)).await;
    }
    let _ = guarded(bench, &PENALTY, Action::look()).await;
    assert_eq!(bench.stored(), 1, "the limit's own key");
}

/// A milder penalty applies to future bans.
async fn a_changed_penalty_forgives_no_ban(bench: &Bench) {
    get_banned(bench, &PENALTY).await;
    let milder = Penalty::after(100, SECOND, SECOND);
    bench.advance(10 * MINUTE);
    assert_eq!(banned_for(bench, &milder).await, Some(50 * MINUTE));
}

/// Also for a subject banned under a milder one, and twice as long for one whose ban is still
/// shorter.
async fn a_harsher_penalty_bans_for_no_less_than_its_first_ban(bench: &Bench) {
    let [milder, harsher] =
        [SECOND, MINUTE].map(|ban| Penalty::after(3, HOUR, ban).doubling_up_to(HOUR));
    get_banned(bench, &milder).await;
    bench.advance(2 * SECOND);
    get_banned(bench, &harsher).await;
    assert_eq!(banned_for(bench, &harsher).await, Some(MINUTE));
}

/// They outlast the memory of the ban.
async fn denials_after_a_short_ban_count_for_as_long_as_any(bench: &Bench) {
    let penalty = Penalty::after(3, HOUR, SECOND);
    get_banned(bench, &penalty).await;
    // The first one comes while the ban is remembered, which is for as long again.
    for (after, left) in [(SECOND * 3 / 2, 2), (10 * SECOND, 1), (10 * SECOND, 0)] {
        bench.advance(after);
        let [guard, found] = guarded(bench, &penalty, Action::acquire(1)).await;
        assert_eq!((guard.is_allowed(), found.remaining()), (false, left));
    }
}

async fn a_ban_is_forgotten_in_time_while_denials_still_count(bench: &Bench) {
    let penalty = Penalty::after(2, HOUR, MINUTE).doubling_up_to(5 * MINUTE);
    for (early_us, minutes) in [(1, 2), (0, 1)] {
        get_banned(bench, &penalty).await;
        bench.advance(2 * MINUTE);
        let _ = bench.ask(LOGIN, 2).await;
        assert_eq!(banned_for(bench, &penalty).await, None);
        bench.advance(4 * MINUTE - Duration::from_micros(early_us));
        get_banned(bench, &penalty).await;
        assert_eq!(banned_for(bench, &penalty).await, Some(minutes * MINUTE));
        bench.advance(2 * HOUR);
    }
}

async fn fewer_denials_ban_one_who_has_had_more(bench: &Bench) {
    let [many, few] = [10, 2].map(|denials| Penalty::after(denials, HOUR, HOUR));
    for _ in 0..6 {
        assert_eq!(banned_for(bench, &many).await, None);
    }
    assert_eq!(banned_for(bench, &few).await, Some(HOUR));
    bench.advance(MINUTE);
    assert_eq!(banned_for(bench, &few).await, Some(HOUR - MINUTE));
}

/// A store has dropped them by then, or not.
async fn denials_that_are_forgotten_count_by_no_longer_time(bench: &Bench) {
    let [short, long] = [MINUTE, HOUR].map(|within| Penalty::after(3, within, HOUR));
    for _ in 0..3 {
        let _ = guarded(bench, &short, Action::acquire(1)).await;
    }
    bench.advance(MINUTE);
    let [_, found] = guarded(bench, &long, Action::look()).await;
    assert_eq!(found.remaining(), 3);
}
