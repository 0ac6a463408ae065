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
        let number = self.0.load(Ordering::Relaxed);
        let mut modes = Mode::ALL.iter().copied();
        modes.find(|mode| *mode as u8 == number).unwrap_or_default()
    }

    pub(super) fn set(&self, mode: Mode) {
        self.0.store(mode as u8, Ordering::Relaxed);
    }
}
