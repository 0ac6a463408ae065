//! Applies a changed file: all of it or nothing.

use std::io;
use std::path::{Display, PathBuf};
use std::sync::Arc;

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use http::Response;

use crate::config::response::RejectionChoice;
use crate::config::{Config, FileError, regular_file};
use crate::http::{OnRejection, QuotaHeaders, Rejection};
use crate::limiter::{Limiter, RulesInForce};
use crate::one_line::OneLine;
use crate::request::RequestHead;
use crate::task::catch_panic;
use crate::tower::RateLimitLayer;
use crate::trace;

/// Called after each reload.
pub(super) type Hook = Box<dyn Fn(Result<(), &FileError>) + Send + Sync>;

/// Applies each change of a file to its limiter.
pub(super) struct Reloader {
    pub(super) path: PathBuf,
    /// The file's content when it was last read, or why it could not be read.
    pub(super) seen: Result<Vec<u8>, io::ErrorKind>,
    pub(super) in_force: Config,
    /// Not the limiter: dropping its last clone ends the watching and returns prefetched permits on
    /// the current runtime. This thread has no runtime.
    pub(super) rules: Arc<RulesInForce>,
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
                let outcome = self.apply(&bytes);
                self.seen = Ok(bytes);
                outcome
            }
            Err(source) if self.seen.as_ref() == Err(&source.kind()) => return,
            Err(source) => {
                self.seen = Err(source.kind());
                Err(FileError::unreadable(&self.path, source))
            }
        };
        self.report(outcome);
    }

    fn apply(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let (in_force, in_code) = (&self.in_force, self.in_force.in_code.clone());
        let mut config = Config::of_bytes(bytes, &self.path, in_code, Some(in_force))?;
        let replaced = self.rules.replace(config.rules.clone());
        replaced.map_err(|error| FileError::without_place(error).in_file(&self.path))?;
        self.shown.show(&config);
        config.store.log_in_connections_of(&self.in_force.store);
        self.in_force = config;
        Ok(())
    }

    /// `policy = []` is deliberate, but an operator who wonders why nothing is limited needs the
    /// warning.
    pub(super) fn warn_if_unlimited(&self) {
        if self.in_force.rules.count_policies() == 0 {
            let file = self.file();
            trace::warn!(
                file = %file,
                "rate limiting: {} has no policies: NOTHING is limited",
                file
            );
        }
    }

    fn file(&self) -> OneLine<Display<'_>> {
        OneLine(self.path.display())
    }

    fn report(&self, outcome: Result<(), FileError>) {
        let file = self.file();
        match &outcome {
            Ok(()) => {
                let policies = self.in_force.rules.count_policies();
                trace::info!(
                    file = %file,
                    policies = policies,
                    "rate limiting: {} is reloaded, with {} policies",
                    file,
                    policies
                );
                self.warn_if_unlimited();
            }
            Err(error) => {
                trace::error!(
                    file = %file,
                    "rate limiting: the changed file is REFUSED, the old limits stay in force: {}",
                    error
                );
            }
        }
        let error = outcome.err().map(Arc::new);
        let refused = error.as_ref().map(ToString::to_string);
        self.rules.tell_config_read(refused);
        self.error.store(error.clone());
        if let Some(hook) = &self.on_reload {
            // A panic of the hook must not end this thread unnoticed.
            catch_panic(|| hook(error.as_deref().map_or(Ok(()), Err)));
        }
    }
}

/// The quota headers and the rejection responses; clones share them.
#[derive(Clone)]
pub(super) struct Shown {
    headers: Arc<ArcSwap<QuotaHeaders>>,
    rejection: Arc<ArcSwap<RejectionChoice>>,
}

impl Shown {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            headers: Arc::new(ArcSwap::from_pointee(config.headers)),
            rejection: Arc::new(ArcSwap::from_pointee(config.rejection)),
        }
    }

    pub(super) fn show(&self, config: &Config) {
        self.headers.store(Arc::new(config.headers));
        self.rejection.store(Arc::new(config.rejection));
    }

    /// A layer that follows the file.
    pub(super) fn layer(&self, limiter: Limiter) -> RateLimitLayer {
        RateLimitLayer::new(limiter)
            .headers_in_force(Arc::clone(&self.headers))
            .on_rejection(InForce(Arc::clone(&self.rejection)))
    }
}

/// Responds as the file currently says.
struct InForce(Arc<ArcSwap<RejectionChoice>>);

impl OnRejection for InForce {
    fn respond(&self, request: &RequestHead<'_>, rejection: &Rejection) -> Response<Bytes> {
        self.0.load().respond(request, rejection)
    }
}
