//! The state machine of the breaker, on times of its own.

use proptest::prelude::*;

use crate::error::StoreErrorKind;
use crate::observer::BreakerState;
use crate::store::failover::circuit::{CallToken, Circuit, LOST_AFTER};
use crate::store::failover::failure_rate::{Health, MOST_IN_A_ROW, Successes};
use crate::time::Micros;

const DEADLINE: Micros = ms(50);
const FAILS: Health = Health::Fails(StoreErrorKind::TimedOut);

const fn ms(ms: u64) -> Micros {
    Micros::new(ms * 1_000)
}

/// A circuit, the successes that are counted for it, and its current time.
struct Driven {
    circuit: Circuit,
    successes: Successes,
    now: Micros,
}

impl Driven {
    fn new() -> Self {
        Self::of(Circuit::new(7, false))
    }

    fn with_parts() -> Self {
        Self::of(Circuit::new(7, true))
    }

    fn of(circuit: Circuit) -> Self {
        Self {
            circuit,
            successes: Successes::default(),
            now: ms(100_000),
        }
    }

    fn pass(&mut self, time: Micros) {
        self.now = self.now.saturating_add(time);
    }

    fn begin(&mut self) -> Option<CallToken> {
        let deadline = self.now.saturating_add(DEADLINE);
        self.circuit.begin_call(self.now, deadline)
    }

    fn answer(&mut self, token: CallToken, health: Health) {
        match health {
            Health::Works if self.circuit.token_if_closed() == Some(token) => {
                self.successes.add(self.now);
            }
            Health::Works => self.circuit.succeeded(token, self.now),
            Health::Unknown => self.circuit.gave_up(token, self.now),
            Health::Fails(kind) => {
                let success = self.successes.last();
                self.circuit.failed(token, kind, success, self.now);
            }
        }
    }

    /// Asks, and reports this answer at once.
    fn ask(&mut self, health: Health) {
        let token = self.begin().expect("it may be asked");
        self.answer(token, health);
    }

    fn state(&self) -> BreakerState {
        self.circuit.state()
    }

    fn fail_until_open(&mut self) {
        while self.state() == BreakerState::Closed {
            self.ask(FAILS);
        }
    }

    /// The rest of the pause.
    fn pause(&self) -> Micros {
        let until = self.circuit.left_alone_until().expect("it is open");
        until.saturating_sub(self.now)
    }

    /// Waits until a probe is let through.
    fn probe(&mut self) -> CallToken {
        self.pass(self.pause());
        let probe = self.begin().expect("the pause is over");
        assert_eq!(self.state(), BreakerState::HalfOpen);
        probe
    }
}

/// So much longer or shorter.
fn jittered(nominal: u64) -> std::ops::RangeInclusive<Micros> {
    ms(nominal * 4 / 5)..=ms(nominal * 6 / 5)
}

#[test]
fn five_failures_in_a_row_open_it() {
    let mut driven = Driven::new();
    for _ in 0..3 {
        (0..4).for_each(|_| driven.ask(FAILS));
        driven.ask(Health::Works);
        driven.pass(ms(1_000));
    }
    (0..4).for_each(|_| driven.ask(FAILS));
    assert_eq!(driven.state(), BreakerState::Closed);
    driven.ask(FAILS);
    assert_eq!(driven.state(), BreakerState::Open);
    assert_eq!(driven.circuit.why(), Some(StoreErrorKind::TimedOut));
    assert_eq!(driven.begin(), None);
}

#[test]
fn half_of_twenty_within_a_second_open_it_and_fewer_do_not() {
    let mut driven = Driven::new();
    // 19 answers, most of them failures, then the answers of another second.
    for answer in 0..19 {
        driven.ask(if answer % 4 == 3 {
            Health::Works
        } else {
            FAILS
        });
    }
    driven.pass(ms(1_000));
    for _ in 0..9 {
        driven.ask(FAILS);
        driven.ask(Health::Works);
    }
    driven.ask(Health::Works);
    assert_eq!(driven.state(), BreakerState::Closed);
    driven.ask(FAILS);
    assert_eq!(driven.state(), BreakerState::Open);
}

#[test]
fn fewer_failures_than_half_never_open_it() {
    let mut driven = Driven::new();
    for answer in 0..10_000 {
        driven.ask(if answer % 5 < 2 { FAILS } else { Health::Works });
        driven.pass(ms(answer % 7));
        assert_eq!(driven.state(), BreakerState::Closed, "after {answer}");
    }
}

/// As when one node of a cluster is down and many ask about its keys, or when one node refuses.
#[test]
fn a_store_with_parts_opens_the_circuit_once_no_part_answers() {
    for (why, a_while) in [
        (StoreErrorKind::Unreachable, ms(10_000)),
        (StoreErrorKind::Busy, ms(1_000)),
    ] {
        let fails = Health::Fails(why);
        let mut driven = Driven::with_parts();
        for _ in 0..100 {
            driven.ask(Health::Works);
            driven.pass(a_while.saturating_sub(ms(1)));
            (0..100).for_each(|_| driven.ask(fails));
            assert_eq!(driven.state(), BreakerState::Closed);
        }
        driven.pass(ms(1));
        (0..4).for_each(|_| driven.ask(fails));
        assert_eq!(driven.state(), BreakerState::Closed);
        driven.ask(fails);
        assert_eq!(driven.state(), BreakerState::Open);
        // Again, beginning with its first answer.
        let probe = driven.probe();
        driven.answer(probe, Health::Works);
        driven.pass(a_while.saturating_sub(ms(1)));
        (0..100).for_each(|_| driven.ask(fails));
        assert_eq!(driven.state(), BreakerState::Closed);
    }
}

/// As when each request has keys on a working node and on a failed one.
#[test]
fn a_failure_beside_an_answer_of_another_part_opens_nothing() {
    let refuses = Health::Fails(StoreErrorKind::Busy);
    let mut driven = Driven::with_parts();
    (0..5).for_each(|_| driven.ask(refuses));
    assert_eq!(driven.state(), BreakerState::Open);
    let probe = driven.probe();
    driven.circuit.succeeded(probe, driven.now);
    driven.answer(probe, refuses);
    assert_eq!(driven.state(), BreakerState::Closed);
    for _ in 0..100 {
        driven.pass(ms(60_000));
        let call = driven.begin().unwrap();
        driven.circuit.succeeded(call, driven.now);
        driven.answer(call, refuses);
        assert_eq!(driven.state(), BreakerState::Closed);
    }
}

/// Otherwise probes to the failed part would keep the store left alone for good.
#[test]
fn an_answer_of_another_part_closes_the_circuit_without_a_probe() {
    let gone = Health::Fails(StoreErrorKind::Unreachable);
    let mut driven = Driven::with_parts();
    (0..5).for_each(|_| driven.ask(gone));
    assert_eq!(driven.state(), BreakerState::Open);
    let probe = driven.probe();
    driven.circuit.recovered(driven.now);
    assert_eq!(driven.state(), BreakerState::Closed);
    driven.answer(probe, gone);
    driven.pass(ms(9_999));
    (0..100).for_each(|_| driven.ask(gone));
    assert_eq!(driven.state(), BreakerState::Closed);
}

#[test]
fn half_of_20_timeouts_open_a_circuit_with_parts_in_any_order() {
    for (works, fails, state) in [
        (20, 10, BreakerState::Closed),
        (12, 11, BreakerState::Closed),
        (12, 12, BreakerState::Open),
        (9, 10, BreakerState::Closed),
    ] {
        let mut driven = Driven::with_parts();
        (0..works).for_each(|_| driven.ask(Health::Works));
        (0..fails).for_each(|_| driven.ask(FAILS));
        assert_eq!(driven.state(), state, "{works} and {fails}");
    }
}

/// A store that never answered anybody does not work in part.
#[test]
fn five_failures_open_the_circuit_of_parts_that_never_answered() {
    let mut driven = Driven::with_parts();
    (0..5).for_each(|_| driven.ask(FAILS));
    assert_eq!(driven.state(), BreakerState::Open);
}

#[test]
fn each_failed_probe_doubles_the_pause_up_to_about_five_seconds() {
    let mut driven = Driven::new();
    driven.fail_until_open();
    for nominal in [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000] {
        let pause = driven.pause();
        let is_right = jittered(nominal).contains(&pause);
        assert!(is_right, "{pause:?} instead of {nominal} ms");
        let probe = driven.probe();
        driven.answer(probe, FAILS);
    }
    let probe = driven.probe();
    driven.answer(probe, Health::Works);
    assert_eq!(driven.state(), BreakerState::Closed);
    driven.fail_until_open();
    assert!(driven.pause() <= ms(300), "it begins anew");
}

#[test]
fn pauses_scatter_over_the_whole_range() {
    let pause = |seed| {
        let mut driven = Driven::of(Circuit::new(seed, false));
        driven.fail_until_open();
        driven.pause().ceil_millis()
    };
    let pauses: Vec<_> = (0..1_000).map(|seed| pause(seed * 0x9e37_79b9)).collect();
    let (shortest, longest) = (pauses.iter().min(), pauses.iter().max());
    assert!(
        shortest <= Some(&210) && longest >= Some(&290),
        "{pauses:?}"
    );
}

#[test]
fn a_wrong_password_is_tried_again_slowly() {
    let mut driven = Driven::new();
    for _ in 0..MOST_IN_A_ROW {
        driven.ask(Health::Fails(StoreErrorKind::Configuration));
    }
    assert!(driven.pause() >= ms(4_000));
}

#[test]
fn a_store_that_refuses_is_asked_again_within_a_second() {
    for kind in [StoreErrorKind::Busy, StoreErrorKind::BadReply] {
        let mut driven = Driven::new();
        (0..MOST_IN_A_ROW).for_each(|_| driven.ask(Health::Fails(kind)));
        for nominal in [250, 500, 800, 800] {
            assert!(
                jittered(nominal).contains(&driven.pause()),
                "{:?}",
                driven.pause()
            );
            let probe = driven.probe();
            driven.answer(probe, Health::Fails(kind));
        }
    }
}

#[test]
fn a_store_that_has_recovered_is_probed_at_once() {
    let mut driven = Driven::new();
    driven.circuit.recovered(driven.now);
    assert_eq!(driven.state(), BreakerState::Closed);
    driven.fail_until_open();
    for _ in 0..5 {
        let probe = driven.probe();
        // The probe in flight will tell.
        driven.circuit.recovered(driven.now);
        assert_eq!(driven.begin(), None);
        driven.answer(probe, FAILS);
    }
    assert!(driven.pause() >= ms(4_000));
    driven.pass(ms(1));
    driven.circuit.recovered(driven.now);
    let probe = driven.begin().expect("it is probed");
    assert_eq!(driven.begin(), None, "by one");
    driven.answer(probe, Health::Works);
    assert_eq!(driven.state(), BreakerState::Closed);
}

#[test]
fn one_probe_is_let_through_at_a_time() {
    let mut driven = Driven::new();
    driven.fail_until_open();
    let _probe = driven.probe();
    driven.pass(DEADLINE);
    assert_eq!(driven.begin(), None);
}

#[test]
fn a_probe_that_is_long_overdue_is_lost_and_does_not_count() {
    let mut driven = Driven::new();
    driven.fail_until_open();
    let overdue = driven.probe();
    driven.pass(DEADLINE.saturating_add(LOST_AFTER).saturating_sub(ms(1)));
    assert_eq!(driven.begin(), None);
    let probe = driven.probe();
    driven.answer(overdue, Health::Works);
    driven.circuit.gave_up(overdue, driven.now);
    assert_eq!(driven.state(), BreakerState::HalfOpen);
    driven.answer(probe, Health::Works);
    assert_eq!(driven.state(), BreakerState::Closed);
}

#[test]
fn a_lost_probe_is_followed_by_another_at_once() {
    let mut driven = Driven::new();
    driven.fail_until_open();
    let probe = driven.probe();
    driven.circuit.gave_up(probe, driven.now);
    assert_eq!(driven.state(), BreakerState::Open);
    assert_eq!(driven.pause(), ms(0));
    // No result of a lost probe counts.
    let lost = driven.begin().unwrap();
    driven.circuit.gave_up(lost, driven.now);
    let probe = driven.probe();
    driven.answer(lost, Health::Works);
    driven.circuit.gave_up(lost, driven.now);
    assert_eq!(driven.state(), BreakerState::HalfOpen);
    driven.answer(probe, Health::Works);
    assert_eq!(driven.state(), BreakerState::Closed);
}

#[test]
fn answers_to_questions_from_before_a_change_are_ignored() {
    let mut driven = Driven::new();
    let before = driven.begin().unwrap();
    driven.fail_until_open();
    driven.answer(before, Health::Works);
    assert_eq!(driven.state(), BreakerState::Open);
    let probe = driven.probe();
    driven.answer(probe, Health::Works);
    for _ in 0..10 {
        driven.answer(before, FAILS);
    }
    assert_eq!(driven.state(), BreakerState::Closed);
}

#[test]
fn an_answer_of_one_part_to_a_question_from_before_a_change_is_ignored() {
    let mut driven = Driven::with_parts();
    let before = driven.begin().unwrap();
    driven.fail_until_open();
    driven.circuit.succeeded(before, driven.now);
    assert_eq!(driven.state(), BreakerState::Open);
}

/// As when it was never sent, or was lost with its runtime.
#[test]
fn a_probe_that_shows_nothing_is_followed_by_another_at_once() {
    let mut driven = Driven::new();
    driven.fail_until_open();
    let probe = driven.probe();
    driven.answer(probe, Health::Unknown);
    assert_eq!(driven.pause(), ms(0));
    driven.probe();
}

#[test]
fn a_store_that_refuses_one_key_or_new_keys_works() {
    for kind in [StoreErrorKind::CorruptValue, StoreErrorKind::Full] {
        assert_eq!(Health::of(kind), Health::Works, "{kind:?}");
    }
    for kind in [StoreErrorKind::Overloaded, StoreErrorKind::BreakerOpen] {
        assert_eq!(Health::of(kind), Health::Unknown, "{kind:?}");
    }
    let mut driven = Driven::new();
    (0..100).for_each(|_| driven.ask(Health::Unknown));
    assert_eq!(driven.state(), BreakerState::Closed);
}

/// The events of a history, in order.
#[derive(Clone, Copy, Debug)]
enum Event {
    Pass(u64),
    Ask,
    /// One of the questions in flight is answered.
    Answer(usize, bool),
    GiveUp(usize),
    Recovered,
}

/// A reference model of the circuit, as simple as possible: it keeps all answers.
#[derive(Clone, Copy)]
enum Model {
    Closed,
    Open { pause: Micros },
    HalfOpen { pause: Micros },
}

impl Model {
    fn state(self) -> BreakerState {
        match self {
            Self::Closed => BreakerState::Closed,
            Self::Open { .. } => BreakerState::Open,
            Self::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }
}

/// Whether the last of these answers, which failed, opens the circuit.
fn opens(answers: &[(Micros, bool)]) -> bool {
    let in_a_row = answers.iter().rev().take_while(|(_, failed)| *failed);
    let second = |at: Micros| at.get() / 1_000_000;
    let (last, _) = answers[answers.len() - 1];
    let of_this_second = answers.iter().filter(|(at, _)| second(*at) == second(last));
    let (failed, worked): (Vec<&(Micros, bool)>, Vec<_>) =
        of_this_second.partition(|answer| answer.1);
    let is_half = failed.len() + worked.len() >= 20 && failed.len() >= worked.len();
    in_a_row.count() >= 5 || is_half
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        2 => (0_u64..700).prop_map(Event::Pass),
        6 => Just(Event::Ask),
        8 => (any::<usize>(), prop::bool::weighted(0.6))
            .prop_map(|(which, fails)| Event::Answer(which, fails)),
        1 => any::<usize>().prop_map(Event::GiveUp),
        1 => Just(Event::Recovered),
    ];
    prop::collection::vec(event, 1..300)
}

proptest! {
    #[test]
    fn the_circuit_acts_like_a_plain_model(events in events(), seed: u64) {
        let mut driven = Driven::of(Circuit::new(seed, false));
        let mut model = Model::Closed;
        let mut answers = Vec::new();
        // Each question in flight, and the number of state changes before it.
        let mut asked: Vec<(CallToken, usize)> = Vec::new();
        let mut changes = 0;
        for event in events {
            match event {
                Event::Pass(by) => driven.pass(ms(by)),
                Event::Ask => {
                    let is_due = driven.circuit.may_call(driven.now);
                    if let Model::Open { pause } | Model::HalfOpen { pause } = model && is_due {
                        changes += 1;
                        model = Model::HalfOpen { pause };
                    }
                    let token = driven.begin();
                    prop_assert_eq!(token.is_some(), is_due);
                    asked.extend(token.map(|token| (token, changes)));
                }
                Event::Answer(which, fails) if !asked.is_empty() => {
                    let (token, since) = asked.swap_remove(which % asked.len());
                    driven.answer(token, if fails { FAILS } else { Health::Works });
                    if since == changes {
                        let opened = match model {
                            Model::Closed => {
                                answers.push((driven.now, fails));
                                (fails && opens(&answers)).then_some(ms(250))
                            }
                            Model::HalfOpen { pause } if fails => {
                                Some(pause.saturating_add(pause).min(ms(5_000)))
                            }
                            Model::HalfOpen { .. } => {
                                changes += 1;
                                model = Model::Closed;
                                // Failures are counted anew.
                                answers.retain(|(_, failed)| !failed);
                                None
                            }
                            Model::Open { .. } => None,
                        };
                        if let Some(pause) = opened {
                            changes += 1;
                            model = Model::Open { pause };
                            let is_right = jittered(pause.ceil_millis()).contains(&driven.pause());
                            prop_assert!(is_right, "{:?} of {:?}", driven.pause(), pause);
                        }
                    }
                }
                Event::GiveUp(which) if !asked.is_empty() => {
                    let (token, since) = asked.swap_remove(which % asked.len());
                    driven.circuit.gave_up(token, driven.now);
                    if let Model::HalfOpen { pause } = model && since == changes {
                        changes += 1;
                        model = Model::Open { pause };
                    }
                }
                Event::Recovered => {
                    driven.circuit.recovered(driven.now);
                    if let Model::Open { .. } = model {
                        prop_assert_eq!(driven.pause(), ms(0));
                    }
                }
                Event::Answer(..) | Event::GiveUp(_) => {}
            }
            prop_assert_eq!(driven.state(), model.state());
            // While it is half open, a probe is in flight.
            let in_flight = asked.iter().filter(|(_, since)| *since == changes).count();
            match model {
                Model::Closed => {}
                Model::Open { .. } => prop_assert_eq!(in_flight, 0),
                Model::HalfOpen { .. } => prop_assert_eq!(in_flight, 1),
            }
        }
    }
}
