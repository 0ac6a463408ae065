//! Space-Saving (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k
//! Elements in Data Streams", 2005) with counts that fade.
//!
//! The number of slots is fixed. A subject with a slot is counted in it. A subject without one
//! takes over the slot with the smallest count, and continues from that count. So no count is too
//! low, and none is too high by more than the smallest count, which is at most the total divided by
//! the number of slots. Every subject with a greater share than that has a slot.

use std::collections::HashMap;
use std::sync::Arc;

use self::heap::Heap;
use crate::key::Subject;
use crate::mode::Mode;
use crate::time::Micros;

mod heap;

pub(super) struct Sketch {
    slots: Vec<Slot>,
    places: HashMap<Subject, usize>,
    /// By count. Whoever floods chooses the counts, and could make a linear search slow.
    order: Heap,
    capacity: usize,
    /// The span of time in which the counts were last halved.
    span: u64,
}

/// One subject's denials.
#[derive(Clone)]
pub(super) struct Slot {
    pub(super) subject: Subject,
    /// Halved with each span. The factor is a power of two, so nothing is rounded until fifty spans
    /// later.
    pub(super) count: f64,
    /// How much of the count may belong to previous owners of the slot.
    pub(super) inherited: f64,
    pub(super) latest: Denial,
}

/// What is reported of the latest denial.
#[derive(Clone)]
pub(super) struct Denial {
    pub(super) at: Micros,
    pub(super) mode: Mode,
    /// The subject in clear, if its policy shows it.
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

#[cfg(test)]
mod tests;
