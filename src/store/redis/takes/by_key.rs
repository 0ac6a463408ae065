//! `ByKey`: what is asked by those who share a trip, key by key, and of each key in runs of what is equal.

use smallvec::SmallVec;

use crate::store::redis::trips::{ByFingerprint, FingerprintMap};

/// Of each key what is asked of it, in the order in which it came.
pub(super) struct ByKey<T> {
    positions: FingerprintMap<usize>,
    keys: Vec<SmallVec<[Run<T>; 1]>>,
    places: Vec<Place>,
}

/// What is asked of a key so many times, one behind the other.
pub(super) struct Run<T> {
    pub(super) asked: T,
    pub(super) times: u32,
}

/// Where a question stands: of which key, in which of its runs, behind how many others.
#[derive(Clone, Copy)]
pub(super) struct Place {
    key: u32,
    run: u32,
    pub(super) behind: u32,
}

/// What a script is told once: a run that so many keys, one behind the other, have alike. Of no keys: the last one
/// has that run, too.
pub(super) struct Row<'a, T> {
    pub(super) run: &'a Run<T>,
    pub(super) keys: usize,
}

impl<T> ByKey<T> {
    /// With room for so many questions.
    pub(super) fn with_capacity(questions: usize) -> Self {
        Self {
            positions: FingerprintMap::with_capacity_and_hasher(questions, ByFingerprint),
            keys: Vec::with_capacity(questions),
            places: Vec::with_capacity(questions),
        }
    }

    /// Adds what is asked of the key with this fingerprint, which may be equal to what was before it: whether
    /// nothing was asked of the key before.
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
        let behind = match runs.last_mut() {
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
            behind,
        });
        is_new
    }

    /// The runs of each key, in the order in which the keys came.
    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &[Run<T>]> {
        self.keys.iter().map(SmallVec::as_slice)
    }

    /// Of each question.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// What is asked by the question at this place.
    pub(super) fn asked(&self, place: Place) -> &T {
        &self.keys[place.key()][place.run()].asked
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
