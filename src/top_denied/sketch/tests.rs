use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::key::Key;

fn subject(number: u8) -> Subject {
    Subject::from(&Key::from(number))
}

fn denial(at: u64) -> Denial {
    Denial {
        shown_subject: None,
        at: Micros::new(at),
        mode: Mode::Enforce,
    }
}

/// The counts of an unbounded table.
#[derive(Default)]
struct Exact {
    counts: HashMap<Subject, f64>,
}

impl Exact {
    fn fade(&mut self, spans: u64) {
        let factor = 0.5_f64.powi(spans as i32);
        self.counts.values_mut().for_each(|count| *count *= factor);
    }

    fn count(&mut self, subject: Subject) {
        *self.counts.entry(subject).or_default() += 1.0;
    }

    fn of(&self, subject: Subject) -> f64 {
        self.counts.get(&subject).copied().unwrap_or_default()
    }

    fn total(&self) -> f64 {
        self.counts.values().sum()
    }
}

/// Denials of subjects, each after a number of half-lives, at most forty in total: beyond that the
/// sums of this test would round. Some subjects are much more frequent.
fn history() -> impl Strategy<Value = Vec<(u8, u64)>> {
    let anybody = prop_oneof![3 => 0..4_u8, 2 => 0..40_u8, 1 => any::<u8>()];
    let passed = prop_oneof![60 => Just(0), 2 => Just(1_u64), 1 => 2..4_u64];
    let history = proptest::collection::vec((anybody, passed), 0..600);
    history.prop_map(|mut history| {
        let mut left = 40;
        for (_, passed) in &mut history {
            *passed = left.min(*passed);
            left -= *passed;
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn counts_are_within_their_stated_error_and_no_heavy_hitter_is_missing(
        capacity in 1..24_usize,
        history in history(),
    ) {
        let (mut sketch, mut exact) = (Sketch::new(capacity), Exact::default());
        let mut span = 0;
        for (step, (number, passed)) in history.iter().enumerate() {
            span += passed;
            sketch.fade(span);
            exact.fade(*passed);
            sketch.count(subject(*number), denial(step as u64));
            exact.count(subject(*number));
        }
        let share = exact.total() / capacity as f64;
        prop_assert!(sketch.slots().len() <= capacity);
        for slot in sketch.slots() {
            let truth = exact.of(slot.subject);
            prop_assert!(slot.count >= truth);
            prop_assert!(slot.count - truth <= slot.inherited);
            prop_assert!(slot.inherited <= share);
            let latest = history.iter().rposition(|(number, _)| subject(*number) == slot.subject);
            prop_assert_eq!(slot.latest.at.get(), latest.unwrap() as u64);
        }
        let counted: f64 = sketch.slots().iter().map(|slot| slot.count).sum();
        prop_assert_eq!(counted, exact.total());
        for (subject, count) in &exact.counts {
            let has_slot = sketch.slots().iter().any(|slot| slot.subject == *subject);
            prop_assert!(has_slot || *count <= share, "{} of {}", count, exact.total());
        }
    }

    #[test]
    fn with_room_for_all_it_counts_exactly(history in history()) {
        let (mut sketch, mut exact) = (Sketch::new(256), Exact::default());
        for (number, _) in &history {
            sketch.count(subject(*number), denial(0));
            exact.count(subject(*number));
        }
        prop_assert_eq!(sketch.slots().len(), exact.counts.len());
        for slot in sketch.slots() {
            prop_assert_eq!((slot.count, slot.inherited), (exact.of(slot.subject), 0.0));
        }
    }
}

#[test]
fn a_clock_that_is_set_back_halves_nothing_twice() {
    let mut sketch = Sketch::new(1);
    sketch.fade(10);
    sketch.count(subject(1), denial(0));
    for (span, expected) in [(11, 0.5), (9, 0.5), (10, 0.5), (11, 0.5), (13, 0.125)] {
        sketch.fade(span);
        assert_eq!(sketch.slots()[0].count, expected, "span {span}");
    }
}

#[test]
fn no_pause_is_too_long_for_it() {
    let mut sketch = Sketch::new(1);
    sketch.count(subject(1), denial(0));
    sketch.fade(u64::MAX);
    assert_eq!(sketch.slots()[0].count, 0.0);
    sketch.count(subject(2), denial(1));
    assert_eq!(sketch.slots()[0].subject, subject(2));
    assert_eq!(sketch.slots()[0].count, 1.0);
}
