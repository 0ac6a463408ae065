//! Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams", 2005) with counts that fade.
//!
//! The number of slots is fixed. A subject with a slot is counted in it. A subject without one
//! takes over the slot with the smallest count, and continues from that count. So no count is too
//! low, and none is too high by more than the smallest count, which is at most the total divided by
//! the number of slots. Every subject with a greater share than that has a slot.

use std::collections::HashMap;
use std::sync::Arc;

use crate::key::Subject;
use crate::mode::Mode;
use crate::time::Micros;

pub(super) struct Sketch {
    slots: Vec<Slot>,
    places: HashMap<Subject, usize>,
    /// By count. A heap, because an attacker controls the counts and could make a linear search
    /// slow.
    order: Heap,
    capacity: usize,
    /// The span of time in which the counts were last halved.
    span: u64,
}

/// One subject's denials.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) subject: Subject,
    /// Halved with each span. The factor is a power of two, so nothing is rounded for fifty spans.
    pub(super) count: f64,
    /// How much of the count may belong to previous owners of the slot.
    pub(super) inherited: f64,
    pub(super) latest: Denial,
}

/// The reported data of the latest denial.
#[derive(Clone)]
pub(super) struct Denial {
    pub(super) at: Micros,
    pub(super) mode: Mode,
    /// The key in clear text, if its policy shows it.
    pub(super) shown_subject: Option<Arc<str>>,
}

impl Sketch {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::new(),
            places: HashMap::new(),
            order: Heap::default(),
            capacity: capacity.max(1),
            span: 0,
        }
    }

    /// Halves all counts for each span that has begun since.
    pub(super) fn fade(&mut self, span: u64) {
        // If the clock was set back, nothing is halved twice.
        let Some(passed) = span.checked_sub(self.span).filter(|passed| *passed > 0) else {
            return;
        };
        self.span = span;
        let factor = 0.5_f64.powi(i32::try_from(passed).unwrap_or(i32::MAX));
        // Halving all counts keeps the heap's order.
        for slot in &mut self.slots {
            slot.count *= factor;
            slot.inherited *= factor;
        }
    }

    pub(super) fn count(&mut self, subject: Subject, denial: Denial) {
        if let Some(&place) = self.places.get(&subject) {
            let slot = &mut self.slots[place];
            slot.count += 1.0;
            slot.latest = denial;
            self.order.grew(place, |place| self.slots[place].count);
            return;
        }
        let mut slot = Slot {
            subject,
            count: 1.0,
            inherited: 0.0,
            latest: denial,
        };
        let smallest = self.order.least();
        let place = match smallest.filter(|_| self.slots.len() >= self.capacity) {
            Some(place) => {
                let before = &self.slots[place];
                slot.inherited = before.count;
                slot.count += before.count;
                self.places.remove(&before.subject);
                self.slots[place] = slot;
                self.order.grew(place, |place| self.slots[place].count);
                place
            }
            None => {
                self.slots.push(slot);
                self.order.push(|place| self.slots[place].count);
                self.slots.len() - 1
            }
        };
        self.places.insert(subject, place);
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

/// A min-heap of the slots by count, and the position of each slot. Counts stay in the slots; a
/// closure reads them.
#[derive(Default)]
pub(super) struct Heap {
    places: Vec<usize>,
    /// Where each slot is in `places`.
    positions: Vec<usize>,
}

impl Heap {
    /// A slot with the lowest count.
    pub(super) fn least(&self) -> Option<usize> {
        self.places.first().copied()
    }

    /// Adds the next slot.
    pub(super) fn push(&mut self, count: impl Fn(usize) -> f64) {
        let place = self.places.len();
        self.places.push(place);
        self.positions.push(place);
        let mut position = place;
        while position > 0 {
            let parent = (position - 1) / 2;
            if count(self.places[parent]) <= count(place) {
                break;
            }
            self.swap(position, parent);
            position = parent;
        }
    }

    /// Restores the order after a slot's count has grown.
    pub(super) fn grew(&mut self, place: usize, count: impl Fn(usize) -> f64) {
        let mut position = self.positions[place];
        loop {
            let child = 2 * position + 1;
            let children = child..self.places.len().min(child + 2);
            let of = |position: &usize| count(self.places[*position]);
            let least = children.min_by(|one, other| of(one).total_cmp(&of(other)));
            match least {
                Some(least) if of(&least) < count(place) => {
                    self.swap(position, least);
                    position = least;
                }
                _ => break,
            }
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.places.swap(one, other);
        for position in [one, other] {
            self.positions[self.places[position]] = position;
        }
    }
}

#[cfg(test)]
mod tests {
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

    proptest! {
        #[test]
        fn the_least_is_on_top_whichever_grows(
            first in proptest::collection::vec(0..20_u8, 1..40),
            growth in proptest::collection::vec((any::<prop::sample::Index>(), 0..9_u8), 0..200),
        ) {
            let (mut heap, mut counts) = (Heap::default(), Vec::<f64>::new());
            prop_assert_eq!(heap.least(), None);
            let is_least = |heap: &Heap, counts: &[f64]| {
                let least = heap.least().unwrap();
                counts.iter().all(|count| counts[least] <= *count)
            };
            for count in first {
                counts.push(count.into());
                heap.push(|place| counts[place]);
                prop_assert!(is_least(&heap, &counts));
            }
            for (index, more) in growth {
                let place = index.index(counts.len());
                counts[place] += f64::from(more);
                heap.grew(place, |place| counts[place]);
                prop_assert!(is_least(&heap, &counts));
            }
        }
    }

    /// Whatever their order: a heap of a hundred thousand is at most seventeen deep.
    #[test]
    fn to_move_a_slot_takes_as_many_looks_as_the_heap_is_deep() {
        const SLOTS: usize = 100_000;
        let (mut heap, mut counts) = (Heap::default(), Vec::new());
        for place in 0..SLOTS {
            counts.push(place as f64);
            heap.push(|place| counts[place]);
        }
        for _ in 0..1_000 {
            let least = heap.least().unwrap();
            counts[least] = 1e9;
            let looks = std::cell::Cell::new(0);
            heap.grew(least, |place| {
                looks.set(looks.get() + 1);
                counts[place]
            });
            assert!(looks.get() <= 4 * 17, "{} looks", looks.get());
        }
    }
}
