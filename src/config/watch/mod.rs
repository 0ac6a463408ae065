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

/// A configuration file that is reloaded when it changes.
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
/// See [reload](crate::guide::configuration#reload) for what a reload replaces, keeps and refuses.
#[must_use = "`open` reads the file"]
pub struct ConfigFile {
    path: PathBuf,
    in_code: InCode,
    on_reload: Option<Hook>,
}

impl ConfigFile {
    /// The file at this path. [`open`](Self::open) reads it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            in_code: InCode::default(),
            on_reload: None,
        }
    }

    /// Adds a policy in code, which every reload keeps; see [`Config::policy`]. A file with a policy
    /// of the same name is refused.
    ///
    /// # Errors
    ///
    /// If the policy is invalid, or one was added with its name.
    pub fn policy(mut self, policy: Policy) -> Result<Self, ConfigError> {
        let others = Rules::new(self.in_code.policies.iter().cloned());
        self.in_code.add(policy, others)?;
        Ok(self)
    }

    /// Adds an observer of decisions and of the store; see [`Config::observe`].
    pub fn observe(mut self, observer: impl Observer) -> Self {
        self.in_code.observers.push(Arc::new(observer));
        self
    }

    /// Calls `hook` once for each change of the file: with `Ok` after a reload, with the error if the
    /// file was refused and the old limits stay in force.
    ///
    /// The hook runs on the thread that watches the file, which lives as long as the limiter. A hook
    /// that owns a clone of the limiter keeps both alive for ever.
    pub fn on_reload<F>(mut self, hook: F) -> Self
    where
        F: Fn(Result<(), &FileError>) + Send + Sync + 'static,
    {
        self.on_reload = Some(Box::new(hook));
        self
    }

    /// Reads the file, connects to its store, and watches it.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is invalid, if the store cannot be reached or refuses the
    /// connection, or if the watching thread cannot be started.
    pub async fn open(self) -> Result<WatchedConfig, OpenError> {
        let (config, bytes) = self.read()?;
        let limiter = config.connect().await?;
        self.watch(config, bytes, limiter)
    }

    /// Reads and watches the file, but connects to the store with the first decision; see
    /// [`Config::connect_lazy`].
    ///
    /// # Errors
    ///
    /// If the file cannot be read or is invalid, or if the watching thread cannot be started.
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

/// A limiter that follows its configuration file; made by [`ConfigFile::open`].
///
/// The file is watched until the last clone of the [limiter](Self::limiter) is dropped. Each
/// [layer](Self::layer) contains one, so this value can be dropped once the layer is made.
#[must_use = "its layer or its limiter limits requests"]
pub struct WatchedConfig {
    path: PathBuf,
    limiter: Limiter,
    shown: Shown,
    error: Arc<ArcSwapOption<FileError>>,
}

impl WatchedConfig {
    /// The limiter, whose rules each reload replaces.
    pub fn limiter(&self) -> Limiter {
        self.limiter.clone()
    }

    /// A layer with the file's quota headers and rejection responses. A reload changes both, unless
    /// the layer sets its own.
    pub fn layer(&self) -> RateLimitLayer {
        self.shown.layer(self.limiter())
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The error of the latest reload; `None` if the file as it is now is in force.
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

/// The error of opening a [`ConfigFile`](super::ConfigFile). `Display` and `Debug` are one line that
/// includes every cause, so there is no [`source`](Error::source).
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be read, or is invalid.
    File(FileError),
    /// The store cannot be reached, or refuses the connection.
    Store(StoreError),
    /// The thread that watches the file cannot be started.
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
