//! `InOrder`: lines in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use tower_throttle::Micros;

use crate::line::Line;

/// Servers write a line when the request ends, and some give the time at which it began. So lines
/// stand a little out of order: this many are put into the order of their times.
const WINDOW: usize = 10_000;

/// Lines that wait until no earlier one is expected.
#[derive(Default)]
pub(crate) struct InOrder {
    waiting: BinaryHeap<Reverse<Waiting>>,
    taken: u64,
    last: Micros,
    /// The number of lines that came too late to be put into order.
    pub(crate) late: u64,
}

struct Waiting {
    /// Its time, and among equals its place in the log.
    order: (Micros, u64),
    /// In a box, which is quicker to move.
    line: Box<Line>,
}

impl InOrder {
    /// Takes a line, and returns the earliest if there are enough.
    pub(crate) fn put(&mut self, line: Line) -> Option<Box<Line>> {
        self.taken += 1;
        self.waiting.push(Reverse(Waiting {
            order: (line.at, self.taken),
            line: Box::new(line),
        }));
        match self.waiting.len() > WINDOW {
            true => self.next(),
            false => None,
        }
    }

    /// The earliest line. One that comes after later ones were returned has their time: a clock
    /// does not go back.
    pub(crate) fn next(&mut self) -> Option<Box<Line>> {
        let Reverse(Waiting { mut line, .. }) = self.waiting.pop()?;
        self.late += u64::from(line.at < self.last);
        line.at = line.at.max(self.last);
        self.last = line.at;
        Some(line)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}
