//! Applies a changed file: all of it or nothing.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwapOption;

use super::shown::Shown;
use super::{Config, FileError, Hook};
use crate::caught::caught;
use crate::config::regular_file;
use crate::limiter::{Limiter, WeakLimiter};
use crate::trace;

/// Whether the file still has effect. Locked while its limits are put in force, so that nothing is
/// applied after watching has ended. Clones refer to the same file.
#[derive(Clone)]
pub(super) struct StillInEffect(Arc<Mutex<bool>>);

impl StillInEffect {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(true)))
    }

    pub(super) fn end(&self) {
        *self.lock() = false;
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        // Nothing under the lock can be half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a limiter to what its file says.
pub(super) struct Reloader {
    pub(super) path: PathBuf,
    pub(super) still_in_effect: StillInEffect,
    /// The file's content when it was last read, or why it could not be read.
    pub(super) seen: Result<Vec<u8>, io::ErrorKind>,
    pub(super) in_force: Config,
    /// Not kept alive: the permits that a limiter holds in advance are given back on the runtime on
    /// which the last clone is dropped, and this thread has none.
    pub(super) limiter: WeakLimiter,
    pub(super) shown: Shown,
    pub(super) on_reload: Option<Hook>,
    pub(super) error: Arc<ArcSwapOption<FileError>>,
}

impl Reloader {
    /// Applies the file if its content has changed.
    pub(super) fn look(&mut self) {
        let outcome = match regular_file::read(&self.path) {
            Ok(bytes) if self.seen.as_ref() == Ok(&bytes) => return,
            Ok(bytes) => {
                let Some(outcome) = self.take(&bytes) else {
                    return;
                };
                self.seen = Ok(bytes);
                outcome
            }
            Err(source) if self.seen.as_ref() == Err(&source.kind()) => return,
            Err(source) => {
                self.seen = Err(source.kind());
                Err(FileError::unreadable(&self.path, source))
            }
        };
        self.tell(outcome);
    }

    /// `None` if the file no longer has effect.
    fn take(&mut self, bytes: &[u8]) -> Option<Result<(), FileError>> {
        let (in_force, in_code) = (&self.in_force, self.in_force.in_code.clone());
        let config = Config::of_bytes(bytes, &self.path, in_code, Some(in_force));
        let still_in_effect = self.still_in_effect.clone();
        let is_in_effect = still_in_effect.lock();
        if !*is_in_effect {
            return None;
        }
        // Whoever watches the file keeps a clone while this is locked.
        let limiter = self.limiter.upgrade()?;
        Some(config.and_then(|config| self.put_in_force(&limiter, config)))
    }

    fn put_in_force(&mut self, limiter: &Limiter, config: Config) -> Result<(), FileError> {
        let rules = limiter.replace(config.rules.clone());
        rules.map_err(|error| FileError::without_place(error).in_file(&self.path))?;
        self.shown.show(&config);
        self.in_force = config;
        Ok(())
    }

    /// Having no policies may be intended, but looks just like a file of which a part is lost.
    pub(super) fn warn_if_unlimited(&self) {
        if self.in_force.rules.count_policies() == 0 {
            let file = self.path.display();
            trace::warn!(file = %file, "the file has no policy: nothing is limited");
        }
    }

    fn tell(&self, outcome: Result<(), FileError>) {
        let file = self.path.display();
        match &outcome {
            Ok(()) => {
                let policies = self.in_force.rules.count_policies();
                trace::info!(file = %file, policies = policies, "the limits are reloaded");
                self.warn_if_unlimited();
            }
            Err(error) => {
                let reason = error.source().map(ToString::to_string).unwrap_or_default();
                trace::error!(
                    error = %error,
                    reason = %reason,
                    "the file is refused, the limits in force stay"
                );
            }
        }
        let error = outcome.err().map(Arc::new);
        self.error.store(error.clone());
        if let Some(told) = &self.on_reload {
            let tell = || told(error.as_deref().map_or(Ok(()), Err));
            // A panic of the hook must not end the watching: nobody would notice.
            caught(tell);
        }
    }
}
