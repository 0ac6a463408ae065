//! Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams", 2005) with counts that fade.
//!
//! So many slots. Who has one is counted in it; who has none takes over the slot of the smallest
//! count and goes on from there. So no count is too low, none is too high by more than the smallest
//! of all, which is at most the total divided by the slots, and whoever has a greater share than
//! that has a slot.

use std::collections::HashMap;

use crate::key::Subject;
use crate::mode::Mode;
use crate::time::Micros;

pub(super) struct Sketch {
    slots: Vec<Slot>,
    places: HashMap<Subject, usize>,
    capacity: usize,
    /// No slot counts less, when all are taken.
    least: f64,
    /// Where the search for one that counts the least goes on.
    hand: usize,
    /// The span of time in which the counts were last halved.
    span: u64,
}

/// One subject's denials.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) subject: Subject,
    /// Halved with each span: the factor is a power of two, so that nothing is rounded until fifty
    /// spans later.
    pub(super) count: f64,
    /// How much of the count may be others', who had the slot before.
    pub(super) inherited: f64,
    pub(super) latest: Denial,
}

/// What is told of the latest denial.
#[derive(Clone, Copy)]
pub(super) struct Denial {
    pub(super) at: Micros,
    pub(super) mode: Mode,
}

impl Sketch {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            slots: Vec::new(),
            places: HashMap::new(),
            capacity: capacity.max(1),
            least: 0.0,
            hand: 0,
            span: 0,
        }
    }

    /// Halves all counts for each span that has begun since.
    pub(super) fn fade(&mut self, span: u64) {
        // A clock that was set back halves nothing twice.
        let Some(passed) = span.checked_sub(self.span).filter(|passed| *passed > 0) else {
            return;
        };
        self.span = span;
        let factor = 0.5_f64.powi(i32::try_from(passed).unwrap_or(i32::MAX));
        for slot in &mut self.slots {
            slot.count *= factor;
            slot.inherited *= factor;
        }
        self.least *= factor;
    }

    pub(super) fn count(&mut self, subject: Subject, denial: Denial) {
        if let Some(place) = self.places.get(&subject) {
            let slot = &mut self.slots[*place];
            slot.count += 1.0;
            slot.latest = denial;
            return;
        }
        let mut slot = Slot {
            subject,
            count: 1.0,
            inherited: 0.0,
            latest: denial,
        };
        let place = if self.slots.len() < self.capacity {
            self.slots.push(slot);
            self.slots.len() - 1
        } else {
            let place = self.smallest();
            let before = &self.slots[place];
            slot.inherited = before.count;
            slot.count += before.count;
            self.places.remove(&before.subject);
            self.slots[place] = slot;
            place
        };
        self.places.insert(subject, place);
    }

    pub(super) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// A slot that counts the least. Under a flood of ever new subjects most slots do, and the
    /// next one is found at once; when none is left, all are looked through for the new least.
    fn smallest(&mut self) -> usize {
        if let Some(place) = self.search() {
            return place;
        }
        let counts = self.slots.iter().map(|slot| slot.count);
        self.least = counts.fold(f64::INFINITY, f64::min);
        self.search().unwrap_or(0)
    }

    fn search(&mut self) -> Option<usize> {
        let (before, after) = self.slots.split_at(self.hand);
        let is_least = |slot: &Slot| slot.count <= self.least;
        let found = match after.iter().position(is_least) {
            Some(place) => self.hand + place,
            None => before.iter().position(is_least)?,
        };
        self.hand = found + 1;
        Some(found)
    }
}

#[cfg(test)]
mod tests;
