//! `ConfigFile`: a file that is read again whenever it changes.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use arc_swap::ArcSwapOption;

use self::file_events::Watching;
use self::reload::{Hook, Reloader, Shown};
use super::configuration::InCode;
use super::{Config, FileError};
use crate::error::{ConfigError, StoreError, debug_as_display};
use crate::limiter::{Limiter, Rules};
use crate::observer::Observer;
use crate::one_line::OneLine;
use crate::policy::Policy;
use crate::tower::RateLimitLayer;

mod file_events;
mod reload;

/// A configuration file that is read again whenever it changes.
///
/// ```
/// use axum::{Router, routing::get};
/// use tower_throttle::ConfigFile;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let file = tempfile::NamedTempFile::new()?;
/// # std::fs::write(&file, "store = \"memory\"\npolicy = []")?;
/// # let path = file.path();
/// let limits = ConfigFile::new(path)
///     .on_reload(|outcome| match outcome {
///         Ok(()) => eprintln!("the limits are reloaded"),
///         Err(error) => eprintln!("the limits stay as they were: {error}"),
///     })
///     .open()
///     .await?;
/// let app: Router = Router::new()
///     .route("/", get(async || "hello"))
///     .layer(limits.layer());
/// # Ok(())
/// # }
/// ```
///
/// See [Reload](super#reload) for what a reload changes, what it keeps and what it cannot change.
#[must_use = "the file is read when it is opened"]
pub struct ConfigFile {
    path: PathBuf,
    in_code: InCode,
    on_reload: Option<Hook>,
}

impl ConfigFile {
    /// The file at this path; it is read by [`open`](Self::open).
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            in_code: InCode::default(),
            on_reload: None,
        }
    }

    /// Adds a policy in code, which every reload keeps; see [`Config::policy`]. A file that has a
    /// policy of the same name is refused.
    ///
    /// # Errors
    ///
    /// Names what is wrong with the policy, or that one was added with its name.
    pub fn policy(mut self, policy: Policy) -> Result<Self, ConfigError> {
        let others = Rules::new(self.in_code.policies.iter().cloned());
        self.in_code.add(policy, others)?;
        Ok(self)
    }

    /// Tells somebody what is decided and how the store fares; see [`Config::observe`].
    pub fn observe(mut self, observer: impl Observer) -> Self {
        self.in_code.observers.push(Arc::new(observer));
        self
    }

    /// Calls this after each reload, and when the file has changed and is refused: then the limits
    /// that were in force stay in force. Once for each change, on a thread of its own, which lives as
    /// long as the limiter: a closure that keeps a clone of that keeps both for ever.
    pub fn on_reload<F>(mut self, told: F) -> Self
    where
        F: Fn(Result<(), &FileError>) + Send + Sync + 'static,
    {
        self.on_reload = Some(Box::new(told));
        self
    }

    /// Reads the file, connects to its store, and watches it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or makes no sense, or the store cannot be reached or refuses.
    pub async fn open(self) -> Result<WatchedConfig, OpenError> {
        let (config, bytes) = self.read()?;
        let limiter = config.connect().await?;
        self.watch(config, bytes, limiter)
    }

    /// As [`open`](Self::open), but connects with the first decision, see
    /// [`Config::connect_lazy`].
    ///
    /// # Errors
    ///
    /// When the file cannot be read or makes no sense.
    pub fn open_lazy(self) -> Result<WatchedConfig, OpenError> {
        let (config, bytes) = self.read()?;
        let limiter = config.connect_lazy()?;
        self.watch(config, bytes, limiter)
    }

    fn read(&self) -> Result<(Config, Vec<u8>), FileError> {
        Config::with_bytes(&self.path, self.in_code.clone())
    }

    fn watch(
        self,
        config: Config,
        bytes: Vec<u8>,
        limiter: Limiter,
    ) -> Result<WatchedConfig, OpenError> {
        let shown = Shown::new(&config);
        let error = Arc::new(ArcSwapOption::empty());
        let mut reloader = Reloader {
            path: self.path.clone(),
            seen: Ok(bytes),
            in_force: config,
            rules: limiter.rules_in_force(),
            shown: shown.clone(),
            on_reload: self.on_reload,
            error: Arc::clone(&error),
        };
        reloader.warn_if_unlimited();
        let watching = Watching::start(&self.path, move || reloader.look());
        limiter.keep(watching.map_err(OpenError::Thread)?);
        Ok(WatchedConfig {
            path: self.path,
            limiter,
            shown,
            error,
        })
    }
}

impl fmt::Debug for ConfigFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConfigFile").field(&self.path).finish()
    }
}

/// A limiter that is held to what its file says; made by [`ConfigFile::open`].
///
/// The file is watched for as long as the limiter is used: by this, by a [layer](Self::layer), or by
/// any other clone of the [limiter](Self::limiter). The watching ends with the last of them. So this
/// can be dropped once the layer is made.
#[must_use = "its layer or its limiter limits requests"]
pub struct WatchedConfig {
    path: PathBuf,
    limiter: Limiter,
    shown: Shown,
    error: Arc<ArcSwapOption<FileError>>,
}

impl WatchedConfig {
    /// The limiter; a reload changes its rules.
    pub fn limiter(&self) -> Limiter {
        self.limiter.clone()
    }

    /// A layer with the file's choice of quota headers and of responses to rejections; a reload
    /// changes them, except for what is chosen on the layer itself.
    pub fn layer(&self) -> RateLimitLayer {
        self.shown.layer(self.limiter())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why the file as it is now is not in force; `None` when it is.
    pub fn last_error(&self) -> Option<Arc<FileError>> {
        self.error.load_full()
    }
}

impl fmt::Debug for WatchedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedConfig")
            .field("path", &self.path)
            .field("limiter", &self.limiter)
            .finish_non_exhaustive()
    }
}

/// Why a [`ConfigFile`](super::ConfigFile) cannot be opened. `Display` and `Debug` are one line for
/// people that tells every cause, so that there is no [`source`](Error::source).
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read, or makes no sense.
    File(FileError),
    /// The store cannot be reached, or refuses.
    Store(StoreError),
    /// There can be no thread that watches the file.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            Self::Thread(error) => write!(
                f,
                "the thread that watches the file cannot be started: {}",
                OneLine(error)
            ),
        }
    }
}

debug_as_display!(OpenError);

impl Error for OpenError {}

impl From<FileError> for OpenError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<StoreError> for OpenError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
