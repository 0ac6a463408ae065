//! `ByKey`: the questions of a batch by key, and for each key as runs of equal questions.

use smallvec::SmallVec;

use crate::store::check::{ByFingerprint, FingerprintMap};

/// For each key its questions, in order of arrival.
pub(super) struct ByKey<T> {
    positions: FingerprintMap<usize>,
    keys: Vec<SmallVec<[Run<T>; 1]>>,
    places: Vec<Place>,
}

/// Equal consecutive questions about a key, and their number.
pub(super) struct Run<T> {
    pub(super) asked: T,
    pub(super) times: u32,
}

/// The place of a question: its key, its run, and the number of questions before it in the run.
#[derive(Clone, Copy)]
pub(super) struct Place {
    key: u32,
    run: u32,
    pub(super) repeated: u32,
}

/// An argument row: a run that this many consecutive keys have in common. Zero keys: another run of the
/// last key.
pub(super) struct Row<'a, T> {
    pub(super) run: &'a Run<T>,
    pub(super) keys: usize,
}

impl<T> ByKey<T> {
    /// With capacity for this many questions.
    pub(super) fn with_capacity(questions: usize) -> Self {
        Self {
            positions: FingerprintMap::with_capacity_and_hasher(questions, ByFingerprint),
            keys: Vec::with_capacity(questions),
            places: Vec::with_capacity(questions),
        }
    }

    /// Adds a question about the key with this fingerprint, which may equal the one before it.
    /// Returns whether it is the key's first.
    pub(super) fn add(
        &mut self,
        key: u128,
        is_equal: impl FnOnce(&T) -> bool,
        asked: impl FnOnce() -> T,
    ) -> bool {
        let position = *self.positions.entry(key).or_insert(self.keys.len());
        let is_new = position == self.keys.len();
        if is_new {
            self.keys.push(SmallVec::new());
        }
        let runs = &mut self.keys[position];
        let repeated = match runs.last_mut() {
            Some(run) if is_equal(&run.asked) => {
                run.times += 1;
                run.times - 1
            }
            _ => {
                runs.push(Run {
                    asked: asked(),
                    times: 1,
                });
                0
            }
        };
        self.places.push(Place {
            key: position as u32,
            run: runs.len() as u32 - 1,
            repeated,
        });
        is_new
    }

    /// The runs of each key, in the keys' order of arrival.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &[Run<T>]> {
        self.keys.iter().map(SmallVec::as_slice)
    }

    /// The place of each question.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    pub(super) fn rows(&self, are_equal: impl Fn(&T, &T) -> bool) -> Vec<Row<'_, T>> {
        let mut rows: Vec<Row<'_, T>> = Vec::new();
        for runs in &self.keys {
            for (position, run) in runs.iter().enumerate() {
                let is_first = position == 0;
                let is_as =
                    |last: &Run<T>| last.times == run.times && are_equal(&last.asked, &run.asked);
                match rows.last_mut() {
                    Some(last) if is_first && last.keys > 0 && is_as(last.run) => last.keys += 1,
                    _ => rows.push(Row {
                        run,
                        keys: usize::from(is_first),
                    }),
                }
            }
        }
        rows
    }
}

impl Place {
    pub(super) fn key(self) -> usize {
        self.key as usize
    }

    pub(super) fn run(self) -> usize {
        self.run as usize
    }
}
