//! Credit, cancel, charge and reset: what comes back, and that it never does so twice.

use proptest::sample::Index;

use super::*;

fn credit(permits: u64, taken_at: Option<u64>) -> Action {
    Action::Credit {
        permits,
        taken_at: taken_at.map(Micros::new),
    }
}

/// A key after some history, whose leaseholders are gone.
fn used(numbers: &Numbers, history: Vec<(u64, u64)>) -> Subject {
    let mut subject = Subject::of(numbers.limit());
    for (pause, cost) in history {
        subject.now += pause;
        // Without a lease, so that a credit applies to it.
        let _ = subject.act(Action::acquire(cost));
    }
    subject
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_credit_is_clamped_at_the_untouched_state(
        numbers in numbers(ALL), history in histories(), permits in costs(), late in pauses(),
    ) {
        let mut subject = used(&numbers, history);
        subject.now += late;
        let before = subject.look(subject.now);
        let after = subject.act(credit(permits, None));
        let capacity = subject.capacity();
        prop_assert!(after.remaining() >= before.remaining());
        let most = before.remaining().saturating_add(permits).min(capacity);
        prop_assert!(after.remaining() <= most);
        // However much more is given back, no more than the limit can be taken. Twice, because two
        // windows together may hold more than one credit can state.
        let _ = subject.act(credit(u64::MAX, None));
        let whole = subject.act(credit(u64::MAX, None));
        prop_assert_eq!((whole.remaining(), whole.reset_after()), (capacity, Duration::ZERO));
        prop_assert!(subject.state.expires_at().get() <= subject.now);
        let before = subject.remembered();
        let _ = subject.act(credit(u64::MAX, None));
        prop_assert_eq!(subject.remembered(), before, "given back twice");
        prop_assert!(subject.ask(capacity).is_allowed());
        prop_assert!(!subject.ask(1).is_allowed());
    }

    #[test]
    fn an_immediate_credit_leaves_no_trace_of_the_acquire(
        numbers in numbers(ALL), history in histories(), cost in costs(), knows: bool,
    ) {
        let mut subject = used(&numbers, history);
        let before = subject.look(subject.now);
        if subject.act(Action::acquire(cost)).is_allowed() {
            let taken_at = knows.then_some(subject.now);
            let after = subject.act(credit(cost, taken_at));
            prop_assert_eq!(after.remaining(), before.remaining());
        }
    }

    /// An ended window stays ended, and no credit makes anything last longer.
    #[test]
    fn a_credit_never_revives_and_never_extends(
        numbers in numbers(ALL), history in histories(), permits in costs(), late in pauses(),
        until in pauses(),
    ) {
        let mut subject = used(&numbers, history);
        subject.now += late;
        let before = subject.clone();
        let _ = subject.act(credit(permits, None));
        prop_assert!(subject.state.expires_at() <= before.state.expires_at());
        let then = subject.now + until;
        prop_assert!(subject.look(then).remaining() >= before.look(then).remaining());
        prop_assert!(subject.look(then).reset_after() <= before.look(then).reset_after());

        subject.now = subject.now.max(subject.state.expires_at().get());
        let over = subject.remembered();
        let _ = subject.act(credit(permits, None));
        prop_assert_eq!(subject.remembered(), over, "what is over was touched");
    }

    /// Permits of a window, a log or a slice that have come back by themselves do not come back
    /// again in place of what others have taken since.
    #[test]
    fn permits_that_have_lapsed_are_not_credited(
        numbers in numbers(WINDOWS), history in histories(), cost in 1_u64..12,
    ) {
        let mut subject = Subject::of(numbers.limit());
        let taken_at = subject.now;
        if !subject.act(Action::acquire(cost)).is_allowed() {
            return Ok(());
        }
        // When it is all gone, and others come before that.
        let gone = subject.state.expires_at().get();
        for (pause, cost) in history {
            subject.now += pause;
            let _ = subject.act(Action::acquire(cost));
        }
        subject.now = subject.now.max(gone);
        let _ = subject.act(Action::acquire(1));
        let before = subject.remembered();
        let _ = subject.act(credit(cost, Some(taken_at)));
        prop_assert_eq!(subject.remembered(), before);
    }

    /// Each permit is given back once, at any time: those that stay taken never exceed the limit.
    #[test]
    fn permits_not_given_back_never_exceed_the_limit(
        limit in 1_u64..12, period in periods(), slices in prop::option::of(slices()),
        history in prop::collection::vec((pauses(), any::<Option<Index>>(), 1_u64..4), 1..120),
    ) {
        let mut subject = Subject::of(match slices {
            None => Limit::sliding_log(limit, period),
            Some(slices) => Limit::sliding_window(limit, period).slices(slices),
        });
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (pause, back, cost) in history {
            subject.now += pause;
            let now = subject.now;
            if let Some(back) = back.filter(|_| !taken.is_empty()) {
                let (at, permits) = taken.swap_remove(back.index(taken.len()));
                let _ = subject.act(credit(permits, Some(at)));
            } else if subject.ask(cost).is_allowed() {
                taken.push((now, cost));
            }
            let within = taken.iter().filter(|(at, _)| at + us(period) > now);
            prop_assert!(within.map(|(_, cost)| cost).sum::<u64>() <= limit);
        }
    }

    /// At any time, a refund leaves no more than if the permits had never been taken, and exactly
    /// as much if nobody has taken any since.
    #[test]
    fn permits_that_time_has_given_back_are_not_refunded(
        numbers in numbers(BUCKETS), history in histories(), cost in 1_u64..12, unused in 0_u64..12,
        since in prop::collection::vec((pauses(), 0_u64..12), 0..6), late in pauses(),
    ) {
        let unused = unused.min(cost);
        let mut subject = used(&numbers, history);
        let mut known_before = subject.clone();
        let taken = subject.act(Action::Charge(cost));
        let _ = known_before.act(Action::Charge(cost - unused));
        let is_last = since.is_empty();
        for (pause, cost) in since {
            subject.now += pause;
            known_before.now += pause;
            // Charged, as what fits one need not fit the other.
            let _ = subject.act(Action::Charge(cost));
            let _ = known_before.act(Action::Charge(cost));
        }
        subject.now += late;
        known_before.now += late;
        let refund = Action::Refund { permits: unused, receipt: taken.receipt() };
        let refunded = subject.act(refund);
        let expected = known_before.look(known_before.now);
        prop_assert!(refunded.reset_after() >= expected.reset_after());
        prop_assert!(refunded.remaining() <= expected.remaining());
        if is_last {
            prop_assert_eq!(refunded.reset_after(), expected.reset_after());
        }
    }

    #[test]
    fn a_cancel_gives_back_only_the_latest_permits(
        numbers in numbers(BUCKETS), history in histories(), cost in 1_u64..12,
        since in 0_u64..3, late in pauses(),
    ) {
        let mut subject = used(&numbers, history);
        let mut never_asked = subject.clone();
        let wait = Wait::Burst(Micros::from(DAY));
        let waits = Action::Acquire(take(cost, wait));
        let first = subject.act(waits);
        prop_assume!(first.is_allowed());
        if since > 0 {
            let _ = subject.act(Action::Charge(since));
        }
        subject.now += late;
        never_asked.now += late;
        let cancel = Action::Cancel { permits: cost, receipt: first.receipt() };
        if since > 0 {
            let before = subject.remembered();
            let _ = subject.act(cancel);
            prop_assert_eq!(subject.remembered(), before, "somebody waits behind it");
            return Ok(());
        }
        let given_back = subject.act(cancel);
        let untaken = never_asked.look(never_asked.now);
        prop_assert_eq!(given_back.remaining(), untaken.remaining());
        prop_assert_eq!(given_back.reset_after(), untaken.reset_after());
        let before = subject.remembered();
        let _ = subject.act(cancel);
        prop_assert_eq!(subject.remembered(), before, "given back twice");
    }

    #[test]
    fn a_withdrawal_is_a_refund_or_a_cancel_if_somebody_may_wait_behind_it(
        numbers in numbers(BUCKETS), history in histories(), cost in 1_u64..12,
        since in 0_u64..9, late in pauses(),
    ) {
        let mut subject = used(&numbers, history);
        let wait = Wait::Strict(Micros::from(DAY));
        let first = subject.act(Action::Acquire(take(cost, wait)));
        prop_assume!(first.is_allowed());
        let (permits, receipt) = (cost, first.receipt());
        if since > 0 {
            let _ = subject.act(Action::Acquire(take(since, wait)));
        }
        subject.now += late;
        let mut full = Subject::of(numbers.limit());
        let _ = full.act(Action::Charge(full.capacity()));
        let full = full.look(full.now).reset_after();
        let owed = subject.look(subject.now).reset_after();
        // Rounded up, so that a difference of less than a microsecond does not show.
        prop_assume!(owed != full);
        let after = |action| {
            let mut subject = subject.clone();
            let _ = subject.act(action);
            subject.remembered()
        };
        let withdrawn = after(Action::Withdraw { permits, receipt });
        let somebody_may_wait = numbers.kind == QUEUE || owed > full;
        prop_assert_eq!(withdrawn, match somebody_may_wait {
            true => after(Action::Cancel { permits, receipt }),
            false => after(Action::Refund { permits, receipt }),
        });
    }

    /// What is charged above the limit has to come back before anything is allowed again.
    #[test]
    fn a_charge_goes_over_and_is_waited_for_to_the_microsecond(
        numbers in numbers(ALL), history in histories(), over in 1_u64..40, cost in 1_u64..4,
    ) {
        let mut subject = used(&numbers, history);
        let before = subject.look(subject.now).remaining();
        let charged = subject.act(Action::Charge(before.saturating_add(over)));
        prop_assert!(charged.is_allowed());
        prop_assert_eq!(charged.remaining(), 0);
        let denied = subject.ask(cost);
        prop_assert!(!denied.is_allowed());
        if let Some(wait) = denied.retry_after().map(us) {
            prop_assert!(!subject.would(subject.now + wait - 1, cost));
            prop_assert!(subject.would(subject.now + wait, cost));
        }
    }

    #[test]
    fn a_reset_leaves_nothing_behind(
        numbers in numbers(ALL),
        history in prop::collection::vec((pauses(), actions()), 1..60),
        action in actions(),
    ) {
        let mut subject = Subject::of(numbers.limit());
        for (pause, action) in history {
            subject.now += pause;
            let _ = subject.act(about(action, Receipt::default()));
        }
        let mut untouched = Subject { state: subject.algorithm.untouched(), ..subject.clone() };
        let reset = subject.act(Action::Reset);
        prop_assert_eq!(reset.remaining(), subject.capacity());
        prop_assert_eq!(reset.reset_after(), Duration::ZERO);
        prop_assert_eq!(subject.act(action), untouched.act(action));
    }
}

#[test]
fn a_log_entry_is_not_credited_twice() {
    let mut subject = Subject::of(Limit::sliding_log(5, SECOND));
    let _ = subject.ask(2);
    let first = subject.now;
    subject.now += 600_000;
    let _ = subject.ask(3);
    assert_eq!(subject.act(credit(2, Some(first))).remaining(), 2);
    // It has lapsed, and the three are others'.
    subject.now += 400_000;
    assert_eq!(subject.act(credit(2, Some(first))).remaining(), 2);
    // More than was taken is not there.
    assert_eq!(subject.act(credit(9, Some(subject.now))).remaining(), 5);
    assert_eq!(subject.act(credit(9, Some(subject.now))).remaining(), 5);
    assert!(!subject.ask(6).is_allowed());
}

#[test]
fn a_fixed_window_is_not_credited_for_the_one_before() {
    let mut subject = Subject::of(Limit::fixed_window(5, SECOND));
    let before = subject.now;
    let _ = subject.ask(5);
    subject.now += 1_000_000;
    let _ = subject.ask(4);
    assert_eq!(subject.act(credit(3, Some(before))).remaining(), 1);
    assert_eq!(subject.act(credit(3, Some(subject.now))).remaining(), 4);
}

#[test]
fn a_sliding_counter_is_credited_in_the_window_of_the_acquire() {
    let mut subject = Subject::of(Limit::sliding_counter(10, SECOND));
    let before = subject.now;
    let _ = subject.ask(8);
    subject.now += 1_500_000;
    let _ = subject.ask(2);
    assert_eq!(subject.look(subject.now).remaining(), 4);
    // Half of what was taken in the previous window still counts.
    assert_eq!(subject.act(credit(4, Some(before))).remaining(), 6);
    assert_eq!(subject.act(credit(4, Some(subject.now))).remaining(), 8);
}

#[test]
fn the_next_request_opens_a_window_when_all_was_given_back() {
    let mut subject = Subject::of(Limit::fixed_window(2, SECOND));
    let _ = subject.ask(1);
    subject.now += 600_000;
    assert_eq!(subject.act(credit(1, None)).reset_after(), Duration::ZERO);
    assert_eq!(subject.ask(1).reset_after(), SECOND);
}

#[test]
fn permits_acquired_at_the_epoch_have_a_known_time() {
    for limit in [
        Limit::fixed_window(5, SECOND),
        Limit::sliding_log(5, SECOND),
        Limit::sliding_window(5, SECOND),
        Limit::sliding_counter(5, SECOND),
    ] {
        let algorithm = Algorithm::try_from(&limit).unwrap();
        let taken_us = algorithm.arguments(&credit(1, Some(0)))[3];
        assert_ne!(taken_us, 0, "{limit:?}: a script takes zero for not known");
    }
}

/// Permits are taken under the old limit, then others under the new one, and then the first are
/// given back under the old one.
fn refunded_by_old_rules(
    old: Limit,
    new: Limit,
    [first, second]: [u64; 2],
    wait_us: u64,
) -> Subject {
    let mut subject = Subject::of(old);
    let receipt = subject.ask(first).receipt();
    subject.now += wait_us;
    subject.change(new);
    assert!(subject.ask(second).is_allowed());
    subject.change(old);
    subject.refund(first, receipt);
    subject.change(new);
    subject
}

#[test]
fn permits_that_came_back_under_old_rules_are_not_credited_under_new_ones() {
    let pairs = |limit: fn(u64, Duration) -> Limit, new| (limit(10, SECOND), limit(10, new));
    for (old, new) in [
        pairs(Limit::fixed_window, 60 * SECOND),
        pairs(
            |limit, window| Limit::fixed_window(limit, window).aligned(),
            60 * SECOND,
        ),
        pairs(Limit::sliding_log, 60 * SECOND),
        pairs(Limit::sliding_window, 60 * SECOND),
        pairs(Limit::sliding_counter, 60 * SECOND),
    ] {
        let subject = refunded_by_old_rules(old, new, [4, 3], 3_000_000);
        assert_eq!(subject.look(subject.now).remaining(), 7, "{old:?}");
    }
    // Half of what was taken in the previous window.
    let (old, new) = pairs(Limit::sliding_counter, 60 * SECOND);
    let subject = refunded_by_old_rules(old, new, [8, 2], 1_500_000);
    assert_eq!(subject.look(subject.now).remaining(), 8);
}

#[test]
fn permits_that_lapsed_under_new_rules_are_not_credited_under_them() {
    let [old, new] = [60 * SECOND, SECOND].map(|window| Limit::sliding_log(10, window));
    let subject = refunded_by_old_rules(old, new, [4, 3], 2_000_000);
    assert_eq!(subject.look(subject.now).remaining(), 7);
}

#[test]
fn refunds_under_old_rules_keep_permits_of_new_ones() {
    let limits: [fn(u64, Duration) -> Limit; 2] = [Limit::sliding_log, Limit::sliding_window];
    for limit in limits {
        let [old, new] = [SECOND, 60 * SECOND].map(|window| limit(10, window));
        let subject = refunded_by_old_rules(old, new, [4, 3], 500_000);
        for later_us in [0, 59_999_999] {
            let left = subject.look(subject.now + later_us).remaining();
            assert_eq!(left, 7, "{new:?} {later_us}");
        }
    }
}

#[test]
fn others_windows_end_when_they_did_whatever_is_given_back_by_old_rules() {
    let unaligned = Limit::fixed_window(10, 60 * SECOND);
    let aligned = |seconds: u32| Limit::fixed_window(10, seconds * SECOND).aligned();
    // Seconds after the hour: when the window is opened under the old rules, when permits are taken
    // in it, and when others take everything under the new ones, by which it is over.
    let cases = [
        (unaligned, aligned(3_600), [19, 62, 80]),
        (aligned(40), aligned(60), [79, 79, 81]),
    ];
    for (old, new, [opened, taken, others]) in cases {
        let mut subject = Subject::of(old);
        let hour = subject.now.next_multiple_of(us(3_600 * SECOND));
        subject.now = hour + us(opened * SECOND);
        let _ = subject.ask(1);
        subject.now = hour + us(taken * SECOND);
        let receipt = subject.ask(1).receipt();
        subject.change(new);
        subject.now = hour + us(others * SECOND);
        let theirs = subject.ask(10);
        assert!(theirs.is_allowed());
        subject.change(old);
        subject.refund(1, receipt);
        subject.change(new);
        assert_eq!(subject.look(subject.now).remaining(), 0, "{old:?}");
        assert_eq!(
            subject.look(subject.now).reset_after(),
            theirs.reset_after()
        );
    }
}
