//! Tracks which slot has the lowest count: a binary heap that also knows where each slot is.
//!
//! Counts stay in the slots, and are looked up by a closure.

/// The slots in heap order: none counts less than its parent.
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
    use proptest::prelude::*;

    use super::*;

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
