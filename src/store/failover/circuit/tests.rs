use proptest::prelude::*;

use super::counts::{MOST_IN_A_ROW, WINDOW};
use super::*;

const DEADLINE: Duration = Duration::from_millis(50);
const FAILS: Health = Health::Fails(StoreErrorKind::TimedOut);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A circuit and its current time.
struct Told {
    circuit: Circuit,
    now: Instant,
}

impl Told {
    fn new() -> Self {
        Self {
            circuit: Circuit::new(7, false),
            now: Instant::now(),
        }
    }

    fn with_parts() -> Self {
        Self {
            circuit: Circuit::new(7, true),
            ..Self::new()
        }
    }

    fn admit(&mut self) -> Option<Pass> {
        self.circuit.admit(self.now)
    }

    fn sent(&mut self, pass: Pass) {
        self.circuit.sent(pass, self.now + DEADLINE);
    }

    /// Asks, and reports this answer at once.
    fn ask(&mut self, health: Health) {
        let pass = self.admit().expect("it may be asked");
        self.sent(pass);
        self.circuit.answered(pass, health, self.now);
    }

    fn fail_until_open(&mut self) {
        while self.circuit.state() == BreakerState::Closed {
            self.ask(FAILS);
        }
    }

    /// The rest of the pause.
    fn pause(&self) -> Duration {
        self.circuit.probe_at().expect("it is open") - self.now
    }

    /// Waits until a probe is admitted.
    fn probe(&mut self) -> Pass {
        self.now += self.pause();
        let probe = self.admit().expect("the pause is over");
        assert!(probe.is_probe());
        self.sent(probe);
        assert_eq!(self.circuit.state(), BreakerState::HalfOpen);
        probe
    }
}

#[test]
fn five_failures_in_a_row_open_it() {
    let mut told = Told::new();
    for _ in 0..3 {
        (0..4).for_each(|_| told.ask(FAILS));
        told.ask(Health::Works);
        told.now += WINDOW;
    }
    (0..4).for_each(|_| told.ask(FAILS));
    assert_eq!(told.circuit.state(), BreakerState::Closed);
    told.ask(FAILS);
    assert_eq!(told.circuit.state(), BreakerState::Open);
    assert_eq!(told.circuit.why(), Some(StoreErrorKind::TimedOut));
    assert_eq!(told.admit(), None);
}

#[test]
fn half_of_twenty_within_a_second_open_it_and_fewer_do_not() {
    let mut told = Told::new();
    // 19 answers, most of them failures, then the answers of another second.
    for answer in 0..19 {
        told.ask(if answer % 4 == 3 {
            Health::Works
        } else {
            FAILS
        });
    }
    told.now += WINDOW;
    for _ in 0..9 {
        told.ask(FAILS);
        told.ask(Health::Works);
    }
    told.ask(Health::Works);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
    told.ask(FAILS);
    assert_eq!(told.circuit.state(), BreakerState::Open);
}

#[test]
fn fewer_failures_than_half_never_open_it() {
    let mut told = Told::new();
    for answer in 0..10_000 {
        told.ask(if answer % 5 < 2 { FAILS } else { Health::Works });
        told.now += ms(answer % 7);
        assert_eq!(told.circuit.state(), BreakerState::Closed, "after {answer}");
    }
}

/// As when one node of a cluster is down and many ask about its keys, or when one node refuses.
#[test]
fn a_store_that_fails_in_parts_opens_the_circuit_only_when_no_part_answers() {
    for (why, a_while) in [
        (StoreErrorKind::Unreachable, ms(10_000)),
        (StoreErrorKind::Busy, ms(1_000)),
    ] {
        let fails = Health::Fails(why);
        let mut told = Told::with_parts();
        for _ in 0..100 {
            told.ask(Health::Works);
            told.now += a_while - ms(1);
            (0..100).for_each(|_| told.ask(fails));
            assert_eq!(told.circuit.state(), BreakerState::Closed);
        }
        told.now += ms(1);
        (0..4).for_each(|_| told.ask(fails));
        assert_eq!(told.circuit.state(), BreakerState::Closed);
        told.ask(fails);
        assert_eq!(told.circuit.state(), BreakerState::Open);
        // Again, beginning with its first answer.
        let probe = told.probe();
        told.circuit.answered(probe, Health::Works, told.now);
        told.now += a_while - ms(1);
        (0..100).for_each(|_| told.ask(fails));
        assert_eq!(told.circuit.state(), BreakerState::Closed);
    }
}

/// As when each request has keys on a working node and on a failed one.
#[test]
fn a_failure_beside_an_answer_of_another_part_opens_nothing_and_closes_what_is_open() {
    let refuses = Health::Fails(StoreErrorKind::Busy);
    let mut told = Told::with_parts();
    (0..5).for_each(|_| told.ask(refuses));
    assert_eq!(told.circuit.state(), BreakerState::Open);
    let probe = told.probe();
    told.circuit.answered_in_part(probe, told.now);
    told.circuit.answered(probe, refuses, told.now);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
    for _ in 0..100 {
        told.now += ms(60_000);
        let pass = told.admit().unwrap();
        told.circuit.answered_in_part(pass, told.now);
        told.circuit.answered(pass, refuses, told.now);
        assert_eq!(told.circuit.state(), BreakerState::Closed);
    }
}

/// Otherwise probes to the failed part would keep the store left alone for good.
#[test]
fn an_answer_of_another_part_closes_the_circuit_without_a_probe() {
    let gone = Health::Fails(StoreErrorKind::Unreachable);
    let mut told = Told::with_parts();
    (0..5).for_each(|_| told.ask(gone));
    assert_eq!(told.circuit.state(), BreakerState::Open);
    let probe = told.probe();
    told.circuit.recovered(told.now);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
    told.circuit.answered(probe, gone, told.now);
    told.now += ms(9_999);
    (0..100).for_each(|_| told.ask(gone));
    assert_eq!(told.circuit.state(), BreakerState::Closed);
}

/// Another part is heard to answer between admission and sending.
#[test]
fn a_probe_that_nobody_needs_any_more_when_it_is_sent_leaves_it_closed() {
    let mut told = Told::with_parts();
    (0..5).for_each(|_| told.ask(FAILS));
    told.now += told.pause();
    let probe = told.admit().unwrap();
    told.circuit.recovered(told.now);
    told.sent(probe);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
}

#[test]
fn half_of_twenty_timeouts_open_the_circuit_of_a_store_with_parts_in_any_order() {
    for (works, fails, state) in [
        (20, 10, BreakerState::Closed),
        (12, 11, BreakerState::Closed),
        (12, 12, BreakerState::Open),
        (9, 10, BreakerState::Closed),
    ] {
        let mut told = Told::with_parts();
        (0..works).for_each(|_| told.ask(Health::Works));
        (0..fails).for_each(|_| told.ask(FAILS));
        assert_eq!(told.circuit.state(), state, "{works} and {fails}");
    }
}

/// A store that never answered anybody does not work in part.
#[test]
fn five_failures_in_a_row_open_the_circuit_of_a_store_whose_parts_never_answered() {
    let mut told = Told::with_parts();
    (0..5).for_each(|_| told.ask(FAILS));
    assert_eq!(told.circuit.state(), BreakerState::Open);
}

#[test]
fn each_failed_probe_doubles_the_pause_up_to_five_seconds_give_or_take_a_fifth() {
    let mut told = Told::new();
    told.fail_until_open();
    for nominal in [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000, 5_000] {
        let pause = told.pause();
        let range = ms(nominal * 4 / 5)..=ms(nominal * 6 / 5);
        assert!(range.contains(&pause), "{pause:?} instead of {nominal} ms");
        let probe = told.probe();
        told.circuit.answered(probe, FAILS, told.now);
    }
    let probe = told.probe();
    told.circuit.answered(probe, Health::Works, told.now);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
    told.fail_until_open();
    assert!(told.pause() <= ms(300), "it begins anew");
}

#[test]
fn pauses_scatter_over_the_whole_range() {
    let pause = |seed| {
        let mut told = Told::new();
        told.circuit = Circuit::new(seed, false);
        told.fail_until_open();
        told.pause().as_millis()
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
    let mut told = Told::new();
    for _ in 0..MOST_IN_A_ROW {
        told.ask(Health::Fails(StoreErrorKind::Configuration));
    }
    assert!(told.pause() >= ms(4_000));
}

#[test]
fn a_store_that_refuses_is_asked_again_within_a_second() {
    for kind in [StoreErrorKind::Busy, StoreErrorKind::BadReply] {
        let mut told = Told::new();
        (0..MOST_IN_A_ROW).for_each(|_| told.ask(Health::Fails(kind)));
        for nominal in [250, 500, 800, 800] {
            let range = ms(nominal * 4 / 5)..=ms(nominal * 6 / 5);
            assert!(range.contains(&told.pause()), "{:?}", told.pause());
            let probe = told.probe();
            told.circuit.answered(probe, Health::Fails(kind), told.now);
        }
    }
}

#[test]
fn a_store_that_has_recovered_is_probed_at_once() {
    let mut told = Told::new();
    told.circuit.recovered(told.now);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
    told.fail_until_open();
    for _ in 0..5 {
        let probe = told.probe();
        // The probe in flight will tell.
        told.circuit.recovered(told.now);
        assert_eq!(told.admit(), None);
        told.circuit.answered(probe, FAILS, told.now);
    }
    assert!(told.pause() >= ms(4_000));
    told.now += ms(1);
    told.circuit.recovered(told.now);
    let probe = told.admit().expect("it is probed");
    assert_eq!(told.admit(), None, "by one");
    told.circuit.answered(probe, Health::Works, told.now);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
}

#[test]
fn one_probe_is_let_through_at_a_time() {
    let mut told = Told::new();
    told.fail_until_open();
    let _probe = told.probe();
    told.now += DEADLINE;
    assert_eq!(told.admit(), None);
}

#[test]
fn a_probe_that_is_long_overdue_is_lost_and_nothing_that_comes_of_it_counts() {
    let mut told = Told::new();
    told.fail_until_open();
    let overdue = told.probe();
    told.now += DEADLINE + LOST_AFTER - ms(1);
    assert_eq!(told.admit(), None);
    let probe = told.probe();
    told.circuit.answered(overdue, Health::Works, told.now);
    told.circuit.given_up(overdue, told.now);
    assert_eq!(told.circuit.state(), BreakerState::HalfOpen);
    told.circuit.answered(probe, Health::Works, told.now);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
}

#[test]
fn a_lost_probe_is_followed_by_another_at_once() {
    let mut told = Told::new();
    told.fail_until_open();
    for is_sent in [false, true] {
        told.now += told.pause();
        let probe = told.admit().unwrap();
        if is_sent {
            told.sent(probe);
        }
        told.circuit.given_up(probe, told.now);
        assert_eq!(told.circuit.state(), BreakerState::Open);
        assert_eq!(told.pause(), Duration::ZERO);
    }
    // No result of a lost probe counts.
    let lost = told.admit().unwrap();
    told.circuit.given_up(lost, told.now);
    let probe = told.probe();
    told.circuit.answered(lost, Health::Works, told.now);
    told.circuit.given_up(lost, told.now);
    assert_eq!(told.circuit.state(), BreakerState::HalfOpen);
    told.circuit.answered(probe, Health::Works, told.now);
    assert_eq!(told.circuit.state(), BreakerState::Closed);
}

#[test]
fn answers_to_questions_from_before_a_change_are_ignored() {
    let mut told = Told::new();
    let before = told.admit().unwrap();
    told.fail_until_open();
    told.circuit.answered(before, Health::Works, told.now);
    assert_eq!(told.circuit.state(), BreakerState::Open);
    let probe = told.probe();
    told.circuit.answered(probe, Health::Works, told.now);
    for _ in 0..10 {
        told.circuit.answered(before, FAILS, told.now);
    }
    assert_eq!(told.circuit.state(), BreakerState::Closed);
}

#[test]
fn an_answer_of_one_part_to_a_question_from_before_a_change_is_ignored() {
    let mut told = Told::with_parts();
    let before = told.admit().unwrap();
    told.fail_until_open();
    told.circuit.answered_in_part(before, told.now);
    assert_eq!(told.circuit.state(), BreakerState::Open);
}

/// As when it was never sent, or was lost with its runtime.
#[test]
fn a_probe_that_shows_nothing_is_followed_by_another_at_once() {
    let mut told = Told::new();
    told.fail_until_open();
    let probe = told.probe();
    told.circuit.answered(probe, Health::Unknown, told.now);
    assert_eq!(told.pause(), ms(0));
    assert!(told.admit().unwrap().is_probe());
}

#[test]
fn a_store_that_refuses_one_key_or_new_keys_works() {
    for kind in [StoreErrorKind::ForeignValue, StoreErrorKind::Full] {
        assert_eq!(Health::of(kind), Health::Works, "{kind:?}");
    }
    for kind in [StoreErrorKind::Overloaded, StoreErrorKind::BreakerOpen] {
        assert_eq!(Health::of(kind), Health::Unknown, "{kind:?}");
    }
    let mut told = Told::new();
    (0..100).for_each(|_| told.ask(Health::Unknown));
    assert_eq!(told.circuit.state(), BreakerState::Closed);
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
enum Model {
    Closed(Vec<(Instant, bool)>),
    Open { pause: Duration, is_claimed: bool },
    HalfOpen { pause: Duration },
}

impl Model {
    fn state(&self) -> BreakerState {
        match self {
            Self::Closed(_) => BreakerState::Closed,
            Self::Open { .. } => BreakerState::Open,
            Self::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    fn opens(answers: &[(Instant, bool)]) -> bool {
        let in_a_row = answers.iter().rev().take_while(|(_, failed)| *failed);
        let mut window: Vec<(Instant, bool)> = Vec::new();
        for answer in answers {
            if window
                .first()
                .is_some_and(|first| answer.0 - first.0 >= ms(1_000))
            {
                window.clear();
            }
            window.push(*answer);
        }
        let failures = window.iter().filter(|(_, failed)| *failed).count();
        // Only a failure opens it.
        let failed = answers.last().is_some_and(|(_, failed)| *failed);
        in_a_row.count() >= 5 || (failed && window.len() >= 20 && 2 * failures >= window.len())
    }
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
        let mut told = Told::new();
        told.circuit = Circuit::new(seed, false);
        let mut model = Model::Closed(Vec::new());
        // The pass of each question in flight, and the number of state changes before it.
        let mut asked: Vec<(Pass, usize)> = Vec::new();
        let mut changes = 0;
        for event in events {
            match event {
                Event::Pass(by) => told.now += ms(by),
                Event::Ask => {
                    let is_due = told.circuit.probe_at().is_some_and(|at| told.now >= at);
                    let expected = match &mut model {
                        Model::Closed(_) => Some(false),
                        Model::Open { is_claimed, .. } if is_due && !*is_claimed => {
                            *is_claimed = true;
                            changes += 1;
                            Some(true)
                        }
                        Model::HalfOpen { pause } if is_due => {
                            model = Model::Open { pause: *pause, is_claimed: true };
                            changes += 1;
                            Some(true)
                        }
                        _ => None,
                    };
                    let pass = told.admit();
                    prop_assert_eq!(pass.map(|pass| pass.is_probe()), expected);
                    if let Some(pass) = pass {
                        told.sent(pass);
                        if let Model::Open { pause, is_claimed: true } = model {
                            model = Model::HalfOpen { pause };
                        }
                        asked.push((pass, changes));
                    }
                }
                Event::Answer(which, fails) if !asked.is_empty() => {
                    let (pass, since) = asked.swap_remove(which % asked.len());
                    told.circuit.answered(pass, if fails { FAILS } else { Health::Works }, told.now);
                    if since == changes {
                        let opened = match &mut model {
                            Model::Closed(answers) => {
                                answers.push((told.now, fails));
                                Model::opens(answers).then_some(ms(250))
                            }
                            Model::HalfOpen { pause } if fails => Some((2 * *pause).min(ms(5_000))),
                            Model::HalfOpen { .. } => {
                                changes += 1;
                                model = Model::Closed(Vec::new());
                                None
                            }
                            Model::Open { .. } => None,
                        };
                        if let Some(pause) = opened {
                            changes += 1;
                            model = Model::Open { pause, is_claimed: false };
                            prop_assert!(told.pause() >= pause * 4 / 5);
                            prop_assert!(told.pause() <= pause * 6 / 5);
                        }
                    }
                }
                Event::GiveUp(which) if !asked.is_empty() => {
                    let (pass, since) = asked.swap_remove(which % asked.len());
                    told.circuit.given_up(pass, told.now);
                    if let Model::HalfOpen { pause } = model && since == changes {
                        model = Model::Open { pause, is_claimed: false };
                    }
                }
                Event::Recovered => {
                    told.circuit.recovered(told.now);
                    if let Model::Open { is_claimed: false, .. } = model {
                        prop_assert_eq!(told.pause(), ms(0));
                    }
                }
                Event::Answer(..) | Event::GiveUp(_) => {}
            }
            prop_assert_eq!(told.circuit.state(), model.state());
            // Either a probe is in flight that is not lost, or the next question may probe.
            let probes = asked.iter().filter(|(pass, since)| pass.is_probe() && *since == changes);
            prop_assert_eq!(probes.count(), usize::from(model.state() == BreakerState::HalfOpen));
        }
    }
}
