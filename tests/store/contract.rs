//! The numbered promises of `Store`, kept by every store.

use std::num::NonZeroU64;

use support::asking::answered;
use support::bench::{Asked, Bench, answer};
use support::on_every_store;
use tower_throttle::store::Answer;
use tower_throttle::store::{Acquire, Action, Algorithm, LeaseId};
use tower_throttle::{Limit, MINUTE, Outcome, Penalty, SECOND, StoreErrorKind, per_minute};

on_every_store! {
    all_checks_are_charged_or_none
    every_two_algorithms_are_charged_together_or_not_at_all
    a_penalty_counts_only_denials_of_the_check_before_it
    what_gives_back_is_carried_out_together
    one_question_renews_many_leases_of_a_key
    decisions_come_in_the_order_of_the_checks
    a_denial_leaves_no_trace
    looking_leaves_no_trace
    a_changed_limit_judges_what_was_used_before
    policies_and_subjects_never_influence_each_other
    another_algorithm_under_the_same_name_starts_anew
    a_state_is_untouched_again_exactly_at_its_reset
    a_cost_that_never_fits_denies_the_whole_question
    a_store_without_room_takes_no_decision_and_counts_nothing
    answers_that_are_dropped_leave_nothing_behind
    an_unpolled_pending_answer_acquires_nothing
    a_question_of_many_checks_is_answered
    a_question_of_nothing_is_answered_with_nothing
    shadow_checks_that_do_not_fit_block_and_charge_nothing
    shadow_checks_are_charged_only_with_all_enforced_ones
    checks_in_shadow_alone_are_each_charged_for_themselves
    a_penalty_in_shadow_bans_in_shadow
    shadow_permits_are_charged_returned_and_forgotten_alike
}

/// Promise 1.
async fn all_checks_are_charged_or_none(bench: &Bench) {
    let (wide, narrow) = (Limit::gcra(10, MINUTE), Limit::fixed_window(1, MINUTE));
    let both = [("wide", wide, "k", 1), ("narrow", narrow, "k", 1)];
    assert!(bench.ask_all(&both).await.all_allow());

    let denied = bench.ask_all(&both).await;
    assert!(denied[0].is_allowed() && !denied[1].is_allowed());
    assert_eq!(
        denied[0].remaining(),
        9,
        "the check that fits is not charged"
    );
    assert_eq!(denied.denied_by(), Some(1));
    let looked = bench.ask_all(&[("wide", wide, "k", 0)]).await;
    assert_eq!(looked[0].remaining(), 9);
}

/// Promise 1, for algorithms with scripts and states of every kind.
async fn every_two_algorithms_are_charged_together_or_not_at_all(bench: &Bench) {
    for (position, wide) in every_algorithm(9).into_iter().enumerate() {
        for (other, narrow) in every_algorithm(1).into_iter().enumerate() {
            let names = [
                format!("wide {position} {other}"),
                format!("narrow {other} {position}"),
            ];
            let both = [
                (names[0].as_str(), wide, "k", 1),
                (names[1].as_str(), narrow, "k", 1),
            ];
            assert!(bench.ask_all(&both).await.all_allow());
            let denied = bench.ask_all(&both).await;
            assert_eq!(denied.denied_by(), Some(1), "{wide:?} {narrow:?}");
            assert_eq!(denied[0].remaining(), 8, "{wide:?} {narrow:?}");
            assert_eq!(bench.ask_all(&both[..1]).await[0].remaining(), 7);
        }
    }
}

/// The exception of promise 1.
async fn a_penalty_counts_only_denials_of_the_check_before_it(bench: &Bench) {
    let (limit, take) = (
        Algorithm::try_from(&Limit::gcra(1, MINUTE)).unwrap(),
        Action::acquire(1),
    );
    let wide = Algorithm::try_from(&Limit::fixed_window(9, MINUTE)).unwrap();
    let box_of = |denials| Algorithm::try_from(&Penalty::after(denials, MINUTE, MINUTE)).unwrap();
    let question = [
        ("wide", wide, "k", take),
        ("wide", box_of(9), "k", take),
        ("narrow", limit, "k", take),
        ("narrow", box_of(2), "k", take),
    ];
    let denials_left = async |bench: &Bench| {
        let decisions = bench.act_all(&question).await;
        [decisions[1].remaining(), decisions[3].remaining()]
    };
    for left in [[9, 2], [9, 1], [9, 0]] {
        assert_eq!(denials_left(bench).await, left);
    }
    let decisions = bench.act_all(&question).await;
    assert_eq!(decisions[3].outcome(), Outcome::Banned);
    assert_eq!(
        decisions[0].remaining(),
        8,
        "only the first question was let through"
    );
}

async fn what_gives_back_is_carried_out_together(bench: &Bench) {
    let names: Vec<_> = (0..8).map(|number| format!("p{number}")).collect();
    let all = |action| {
        let limits = every_algorithm(5).map(|limit| Algorithm::try_from(&limit).unwrap());
        let checks = names.iter().zip(limits);
        checks
            .map(|(name, algorithm)| (name.as_str(), algorithm, "k", action))
            .collect::<Vec<_>>()
    };
    let credit = Action::Credit {
        permits: 2,
        taken_at: None,
    };
    for (action, left) in [(Action::Charge(4), 1), (credit, 3), (Action::Reset, 5)] {
        let decisions = bench.act_all(&all(action)).await;
        assert_eq!(decisions.len(), 8);
        assert!(
            decisions
                .iter()
                .all(|decision| decision.remaining() == left),
            "{action:?}"
        );
    }
}

/// One process renews all of its leases together.
async fn one_question_renews_many_leases_of_a_key(bench: &Bench) {
    let limit = Limit::concurrency(9).lease(MINUTE);
    let algorithm = Algorithm::try_from(&limit).unwrap();
    let lease = |number| LeaseId::from(NonZeroU64::new(number).unwrap());
    for number in 1..=9 {
        let take = Acquire::new(1).with_lease(lease(number));
        assert!(bench.act(limit, Action::Acquire(take)).await.is_allowed());
    }
    bench.advance(30 * SECOND);
    let renewals: Vec<_> = (1..=6)
        .map(|number| ("policy", algorithm, "key", Action::Renew(lease(number))))
        .collect();
    bench.act_all(&renewals).await;
    bench.advance(30 * SECOND);
    assert_eq!(bench.ask(limit, 0).await.remaining(), 3);
    bench.advance(30 * SECOND);
    assert_eq!(bench.ask(limit, 0).await.remaining(), 9);
}

/// Promise 2.
async fn decisions_come_in_the_order_of_the_checks(bench: &Bench) {
    let asked = [
        ("a", Limit::sliding_log(3, SECOND), "k", 1),
        ("b", Limit::gcra(5, SECOND), "k", 2),
        ("c", Limit::fixed_window(7, SECOND), "k", 3),
        ("d", Limit::sliding_log(11, SECOND), "other", 4),
    ];
    let decisions = bench.ask_all(&asked).await;
    let left: Vec<_> = decisions
        .iter()
        .map(|decision| decision.remaining())
        .collect();
    assert_eq!(left, [2, 3, 4, 7]);
    let limits: Vec<_> = decisions.iter().map(|decision| decision.limit()).collect();
    assert_eq!(limits, [3, 5, 7, 11]);
}

/// Promise 3.
async fn a_denial_leaves_no_trace(bench: &Bench) {
    for limit in every_algorithm(3) {
        let stored = bench.stored();
        assert_eq!(bench.ask(limit, 4).await.outcome(), Outcome::NeverFits);
        assert_eq!(bench.stored(), stored);

        assert_eq!(bench.drain(limit, 1).await, 3);
        let first = bench.ask(limit, 1).await;
        for _ in 0..20 {
            assert_eq!(bench.ask(limit, 1).await, first);
        }
    }
}

/// Promise 3, for cost 0.
async fn looking_leaves_no_trace(bench: &Bench) {
    for limit in every_algorithm(3) {
        let stored = bench.stored();
        let looked = bench.ask(limit, 0).await;
        assert!(looked.is_allowed());
        assert_eq!(looked.remaining(), 3);
        assert!(looked.reset_after().is_zero());
        assert_eq!(bench.stored(), stored);

        let _ = bench.ask(limit, 2).await;
        let looked = bench.ask(limit, 0).await;
        assert_eq!(looked.remaining(), 1);
        assert_eq!(bench.ask(limit, 0).await, looked);
    }
}

/// Promise 5.
async fn a_changed_limit_judges_what_was_used_before(bench: &Bench) {
    type Make = fn(u64) -> Limit;
    let makes: [Make; 8] = [
        |limit| Limit::gcra(60, MINUTE).burst(limit),
        |limit| Limit::token_bucket(limit, per_minute(60)),
        |limit| Limit::leaky_bucket(limit, per_minute(60)),
        |limit| Limit::fixed_window(limit, MINUTE),
        |limit| Limit::sliding_log(limit, MINUTE),
        |limit| Limit::sliding_window(limit, MINUTE),
        |limit| Limit::sliding_counter(limit, MINUTE),
        |limit| Limit::concurrency(limit).lease(MINUTE),
    ];
    for make in makes {
        assert_eq!(bench.drain(make(10), 1).await, 10);
        let lowered = bench.ask(make(4), 1).await;
        assert!(!lowered.is_allowed());
        assert_eq!(lowered.remaining(), 0);
        let raised = bench.ask(make(13), 1).await;
        assert!(raised.is_allowed());
        assert_eq!(raised.remaining(), 2, "raising forgives nothing");
    }
}

/// Promise 6.
async fn policies_and_subjects_never_influence_each_other(bench: &Bench) {
    let limit = Limit::gcra(1, MINUTE);
    for (policy, key) in [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")] {
        let asked = [(policy, limit, key, 1)];
        assert!(bench.ask_all(&asked).await.all_allow(), "{policy} {key}");
        assert!(!bench.ask_all(&asked).await.all_allow(), "{policy} {key}");
    }
}

/// Promise 6, if an operator chooses another algorithm: the states are of different kinds.
async fn another_algorithm_under_the_same_name_starts_anew(bench: &Bench) {
    for limit in every_algorithm(2) {
        assert_eq!(bench.drain(limit, 1).await, 2, "{limit:?}");
    }
}

/// Promise 7.
async fn a_state_is_untouched_again_exactly_at_its_reset(bench: &Bench) {
    for limit in every_algorithm(5) {
        let used = bench.ask(limit, 5).await;
        bench.advance(used.reset_after());
        bench.clock.step_back(std::time::Duration::from_micros(1));
        assert!(bench.ask(limit, 0).await.remaining() < 5, "{limit:?}");
        bench.advance_us(1);
        let untouched = bench.ask(limit, 0).await;
        assert_eq!(untouched.remaining(), 5, "{limit:?}");
        assert!(untouched.reset_after().is_zero());
    }
}

async fn a_cost_that_never_fits_denies_the_whole_question(bench: &Bench) {
    for limit in every_algorithm(5) {
        let asked = [("fits", limit, "k", 1), ("never", limit, "k", 6)];
        let decisions = bench.ask_all(&asked).await;
        assert!(decisions[0].is_allowed());
        assert_eq!(decisions[0].remaining(), 5);
        assert_eq!(decisions[1].outcome(), Outcome::NeverFits);
        assert_eq!(decisions[1].retry_after(), None, "waiting does not help");
    }
}

/// Promise 8, for the one failure that every store has.
async fn a_store_without_room_takes_no_decision_and_counts_nothing(bench: &Bench) {
    let asked = of_every_algorithm(3, 1);
    bench.set_full(true).await;
    // Each by itself, and all together.
    for question in asked.chunks(1).chain([&asked[..]]) {
        let error = answered(bench.question(question)).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Full, "{question:?}");
    }
    bench.set_full(false).await;
    for decision in bench.ask_all(&asked).await.iter() {
        assert_eq!(decision.remaining(), 2, "{decision:?}");
    }
}

/// Promise 9: far more than any queue holds.
async fn answers_that_are_dropped_leave_nothing_behind(bench: &Bench) {
    let limit = Limit::gcra(1_000_000, SECOND);
    for _ in 0..5_000 {
        drop(bench.question(&[("policy", limit, "key", 1)]));
    }
    for _ in 0..5_000 {
        let mut asked = Box::pin(answer(bench.question(&[("policy", limit, "key", 1)])));
        // Polled once, so that it is sent, then dropped.
        let _ = futures_util::poll!(&mut asked);
    }
    assert!(bench.ask(limit, 1).await.is_allowed());
}

/// Promise 9; an answer that is ready is not pending.
async fn an_unpolled_pending_answer_acquires_nothing(bench: &Bench) {
    let asked = of_every_algorithm(3, 1);
    // Each by itself, and all together.
    for question in asked.chunks(1).chain([&asked[..]]) {
        if let Answer::Pending(answer) = bench.question(question) {
            drop(answer);
            for decision in bench.ask_all(&of_every_algorithm(3, 0)).await.iter() {
                assert_eq!(decision.remaining(), 3, "{question:?}");
            }
        }
    }
}

async fn a_question_of_nothing_is_answered_with_nothing(bench: &Bench) {
    assert_eq!(bench.ask_all(&[]).await.len(), 0);
}

async fn a_question_of_many_checks_is_answered(bench: &Bench) {
    let names: Vec<_> = (0..40).map(|number| format!("p{number}")).collect();
    let asked: Vec<_> = names
        .iter()
        .zip(every_algorithm(2).into_iter().cycle())
        .map(|(name, limit)| (name.as_str(), limit, "key", 1))
        .collect();
    let mut left = Vec::new();
    for _ in 0..3 {
        let decisions = bench.ask_all(&asked).await;
        assert_eq!(decisions.len(), 40);
        left.push(
            decisions
                .iter()
                .map(|decision| decision.remaining())
                .sum::<u64>(),
        );
    }
    assert_eq!(left, [40, 0, 0]);
}

fn in_shadow(policy: &str) -> bool {
    policy.starts_with("shadow")
}

/// A check of each algorithm, and the name of its policy.
fn one_of_each(name: &str, limit: u64) -> impl Iterator<Item = (String, Algorithm)> {
    let named = move |(number, limit)| {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        (format!("{name} {number}"), algorithm)
    };
    every_algorithm(limit).into_iter().enumerate().map(named)
}

/// Promise 10, and 2.
async fn shadow_checks_that_do_not_fit_block_and_charge_nothing(bench: &Bench) {
    let take = Action::acquire(1);
    for ((shadow, narrow), (enforced, wide)) in one_of_each("shadow", 1).zip(one_of_each("own", 4))
    {
        let both = [
            (shadow.as_str(), narrow, "k", take),
            (enforced.as_str(), wide, "k", take),
        ];
        for (fits_in_shadow, left) in [(true, 3), (false, 2), (false, 1), (false, 0)] {
            let decisions = bench.act_in_shadow(&both, in_shadow).await;
            assert_eq!(decisions[0].is_allowed(), fits_in_shadow, "{shadow}");
            assert!(decisions[1].is_allowed(), "{enforced}");
            assert_eq!([0, 1].map(|at: usize| decisions[at].remaining()), [0, left]);
        }
    }
}

/// Promise 10.
async fn shadow_checks_are_charged_only_with_all_enforced_ones(bench: &Bench) {
    let take = Action::acquire(1);
    for ((shadow, wide), (enforced, narrow)) in one_of_each("shadow", 4).zip(one_of_each("own", 2))
    {
        let both = [
            (enforced.as_str(), narrow, "k", take),
            (shadow.as_str(), wide, "k", take),
        ];
        for (is_allowed, left) in [(true, 3), (true, 2), (false, 2), (false, 2)] {
            let decisions = bench.act_in_shadow(&both, in_shadow).await;
            assert_eq!(decisions[0].is_allowed(), is_allowed, "{enforced}");
            assert!(
                decisions[1].is_allowed(),
                "{shadow} fits whatever the other says"
            );
            assert_eq!(decisions[1].remaining(), left, "{shadow}");
        }
    }
}

/// Promise 10.
async fn checks_in_shadow_alone_are_each_charged_for_themselves(bench: &Bench) {
    let take = Action::acquire(1);
    for ((first, narrow), (second, wide)) in
        one_of_each("shadow a", 1).zip(one_of_each("shadow b", 3))
    {
        let both = [
            (first.as_str(), narrow, "k", take),
            (second.as_str(), wide, "k", take),
        ];
        for (fits, left) in [
            ([true, true], 2),
            ([false, true], 1),
            ([false, true], 0),
            ([false; 2], 0),
        ] {
            let decisions = bench.act_in_shadow(&both, in_shadow).await;
            assert_eq!(
                [0, 1].map(|at: usize| decisions[at].is_allowed()),
                fits,
                "{first}"
            );
            assert_eq!(decisions[1].remaining(), left, "{second}");
        }
    }
}

/// Promise 10, of the exception of promise 1.
async fn a_penalty_in_shadow_bans_in_shadow(bench: &Bench) {
    let take = Action::acquire(1);
    let algorithm = |limit: &Limit| Algorithm::try_from(limit).unwrap();
    let narrow = algorithm(&Limit::gcra(1, SECOND));
    let wide = algorithm(&Limit::fixed_window(9, MINUTE));
    let penalty = Algorithm::try_from(&Penalty::after(2, MINUTE, MINUTE)).unwrap();
    let question = [
        ("shadow", narrow, "k", take),
        ("shadow", penalty, "k", take),
        ("wide", wide, "k", take),
    ];
    let mut outcomes = Vec::new();
    for left in (5..9).rev() {
        let decisions = bench.act_in_shadow(&question, in_shadow).await;
        outcomes.push([0, 1].map(|at: usize| decisions[at].outcome()));
        assert_eq!(decisions[2].remaining(), left);
    }
    use Outcome::{Allowed, Banned, Denied};
    let expected = [
        [Allowed; 2],
        [Denied, Allowed],
        [Denied, Allowed],
        [Denied, Banned],
    ];
    assert_eq!(outcomes, expected);

    // Its policy would let it through, but must not count what the ban would keep out.
    bench.advance(SECOND);
    let decisions = bench.act_in_shadow(&question, in_shadow).await;
    assert_eq!(decisions[0].remaining(), 1);
    assert!(decisions[0].is_allowed() && decisions[2].is_allowed());
    assert_eq!(decisions[1].outcome(), Banned);
}

async fn shadow_permits_are_charged_returned_and_forgotten_alike(bench: &Bench) {
    let credit = Action::Credit {
        permits: 2,
        taken_at: None,
    };
    let policies: Vec<_> = one_of_each("shadow", 5)
        .chain(one_of_each("own", 5))
        .collect();
    for (action, left) in [(Action::Charge(4), 1), (credit, 3), (Action::Reset, 5)] {
        let all: Vec<_> = policies
            .iter()
            .map(|(name, algorithm)| (name.as_str(), *algorithm, "k", action))
            .collect();
        let decisions = bench.act_in_shadow(&all, in_shadow).await;
        let found: Vec<_> = decisions
            .iter()
            .map(|decision| decision.remaining())
            .collect();
        assert_eq!(found, [left; 16], "{action:?}");
    }
}

/// A check of each algorithm, each of its own policy.
fn of_every_algorithm(limit: u64, cost: u64) -> [Asked<'static>; 8] {
    let mut policies = ["a", "b", "c", "d", "e", "f", "g", "h"].into_iter();
    every_algorithm(limit).map(|limit| (policies.next().unwrap(), limit, "k", cost))
}

/// Each algorithm with a limit of this many permits.
fn every_algorithm(limit: u64) -> [Limit; 8] {
    let rate = per_minute(limit);
    [
        Limit::gcra(limit, MINUTE),
        Limit::token_bucket(limit, rate),
        Limit::leaky_bucket(limit, rate),
        Limit::fixed_window(limit, MINUTE),
        Limit::sliding_log(limit, MINUTE),
        Limit::sliding_window(limit, MINUTE),
        Limit::sliding_counter(limit, MINUTE),
        Limit::concurrency(limit).lease(MINUTE),
    ]
}
