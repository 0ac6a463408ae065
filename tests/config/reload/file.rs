//! A file that a test changes, and the outcomes of its reloads.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::routing::get;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tower_throttle::{ConfigFile, RateLimitLayer, WatchedConfig};

use support::web::GENEROUS;

/// The outcome of one reload: nothing, or the text of the error.
pub(crate) type Outcome = Result<(), String>;

/// A directory with a file in it.
pub(crate) struct Limits {
    directory: TempDir,
}

impl Limits {
    pub(crate) fn new(text: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let limits = Self { directory };
        limits.write(text);
        limits
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.directory().join("limits.toml")
    }

    /// Writes into the existing file.
    pub(crate) fn write(&self, text: &str) {
        fs::write(self.path(), text).unwrap();
    }

    /// Writes another file and moves it into place, as editors do.
    pub(crate) fn replace<T: AsRef<[u8]> + ?Sized>(&self, text: &T) {
        let other = self.directory().join("limits.toml.new");
        fs::write(&other, text).unwrap();
        fs::rename(other, self.path()).unwrap();
    }

    pub(crate) async fn open(&self) -> Watched {
        open(self.path()).await
    }
}

pub(crate) async fn open(path: PathBuf) -> Watched {
    watch(ConfigFile::new(path)).await
}

pub(crate) async fn watch(file: ConfigFile) -> Watched {
    let (sender, outcomes) = mpsc::unbounded_channel();
    let told = move |outcome: Result<(), &tower_throttle::FileError>| {
        let _ = sender.send(outcome.map_err(ToString::to_string));
    };
    let config = file.on_reload(told).open();
    Watched {
        config: config.await.unwrap(),
        outcomes,
    }
}

/// A file that is watched.
pub(crate) struct Watched {
    pub(crate) config: WatchedConfig,
    pub(crate) outcomes: UnboundedReceiver<Outcome>,
}

impl Watched {
    /// Waits until a change of the file was applied or refused.
    pub(crate) async fn outcome(&mut self) -> Outcome {
        let outcome = tokio::time::timeout(GENEROUS, self.outcomes.recv()).await;
        outcome.unwrap().unwrap()
    }

    /// Waits until a change of the file was applied.
    pub(crate) async fn reloaded(&mut self) {
        self.outcome().await.unwrap();
    }

    /// How many permits a policy has left for somebody.
    pub(crate) async fn remaining(&self, policy: &str) -> u64 {
        let limiter = self.config.limiter();
        limiter.peek(policy, "somebody").await.unwrap().remaining()
    }

    /// Whether somebody may have one.
    pub(crate) async fn is_allowed(&self, policy: &str) -> bool {
        let limiter = self.config.limiter();
        let decision = limiter.check(policy, "somebody").await.unwrap();
        decision.is_allowed()
    }
}

/// A server behind a layer, whose requests have a peer.
pub(crate) async fn serve(layer: RateLimitLayer) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = Router::new()
        .fallback(get(async || "hello"))
        .layer(layer)
        .into_make_service_with_connect_info::<SocketAddr>();
    tokio::spawn(async move { axum::serve(listener, app).await });
    format!("http://{address}")
}

/// One policy for everybody, and these other fields at the head of the file.
pub(crate) fn with(head: &str, limit: &str, more: &str) -> String {
    format!(
        "store = \"memory\"\n{head}\n[[policy]]\nname = \"client\"\nalgorithm = \"fixed-window\"\n\
         limit = \"{limit}\"\nkey = \"everybody\"\n{more}\n"
    )
}

pub(crate) fn limit(limit: &str) -> String {
    with("", limit, "")
}
