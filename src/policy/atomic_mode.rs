//! `AtomicMode`: a mode that can be changed while others read it.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::mode::Mode;

/// A mode that can be changed while others read it. Each request reads it once.
pub(super) struct AtomicMode(AtomicU8);

impl AtomicMode {
    pub(super) fn new(mode: Mode) -> Self {
        Self(AtomicU8::new(mode as u8))
    }

    pub(super) fn get(&self) -> Mode {
        Mode::EACH[usize::from(self.0.load(Ordering::Relaxed))]
    }

    pub(super) fn set(&self, mode: Mode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }
}
