//! The same policies from a TOML file: [`Config`].
//!
//! ```
//! use tower_throttle::{Config, RateLimitLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let config: Config = r#"
//!     store = "memory"
//!
//!     [[policy]]
//!     name = "client"
//!     algorithm = "gcra"
//!     limit = "100/min"
//!     burst = 20
//!     key = "peer"
//! "#
//! .parse()?;
//! let limiter = config.connect().await?;
//! assert_eq!(limiter.peek("client", "somebody").await?.remaining(), 20);
//! let layer: RateLimitLayer = config.layer(limiter);
//! # Ok(())
//! # }
//! ```
//!
//! # The whole file
//!
//! | field | means | absent |
//! |---|---|---|
//! | `store` | `"memory"`, or a server as `"redis://127.0.0.1:6379"` | an error |
//! | `prefix` | what every key in Redis begins with | the store's default |
//! | `headers` | quota headers: a word or a list of words, see below | `"draft-11"` |
//! | `timeout` | the time that a decision may take, 1 ms to 60 s | `"50ms"` |
//! | `on_store_failure` | `"allow"` or `"deny"`; a policy may say otherwise | `"allow"` |
//! | `trusted_proxies` | the addresses and ranges of your proxies | none: the peer is the client |
//! | `client_address` | the one header they write: `"x-forwarded-for"`, `"forwarded"`, `"header:<name>"` | `"x-forwarded-for"` |
//! | `[[policy]]` | one policy, as often as needed | nothing is limited |
//!
//! # `headers`
//!
//! | word | means |
//! |---|---|
//! | `"draft-11"` | [`QuotaHeaders::DRAFT_11`] |
//! | `"draft-6"` | [`QuotaHeaders::DRAFT_6`] |
//! | `"x-ratelimit-delta"` | [`QuotaHeaders::X_RATELIMIT_DELTA`] |
//! | `"x-ratelimit-epoch"` | [`QuotaHeaders::X_RATELIMIT_EPOCH`] |
//! | `"denials"` | in a list, all its others on denials only; alone, `"draft-11"` on denials only |
//! | `"none"` | none |
//!
//! `headers = ["draft-11", "x-ratelimit-epoch"]` sends both; the two formats of `X-RateLimit`
//! cannot be combined.
//!
//! # Each `[[policy]]`
//!
//! | field | means | absent |
//! |---|---|---|
//! | `name` | its name in headers, answers and stored keys | an error |
//! | `algorithm` | `"gcra"`, `"token-bucket"`, `"leaky-bucket"`, `"fixed-window"`, `"sliding-counter"`, `"sliding-window"`, `"sliding-log"`, `"concurrency"`: see [`Limit`](crate::Limit) | an error |
//! | `limit` | permits in a time: `"10/s"`, `"100/min"`, `"5/15min"`, `"20/250ms"`, also `h`, `day`; token-bucket, leaky-bucket: the rate; concurrency: requests at the same time, as `20` | an error |
//! | `burst` | gcra: permits that can be taken at once | as many as the limit |
//! | `capacity` | token-bucket, leaky-bucket: permits that the bucket holds | as many as the limit |
//! | `delay` | leaky-bucket: requests leave one after the other; `false`: each that fits passes at once | `true` |
//! | `aligned` | fixed-window: windows begin at full minutes, hours, days | `false` |
//! | `slices` | sliding-window: counts for each window, 1 to 1000 | `10` |
//! | `lease` | concurrency: how long a request counts whose server was killed | `"30s"` |
//! | `key` | whose quota: `"client-addr"`, `"peer"`, `"header:<name>"`, `"user"` (a [`UserId`] extension), `"everybody"`; a list makes one key of all | an error |
//! | `on` | a route or a list: `"POST /login"`, `"/api/{*rest}"` | every request |
//! | `cost` | permits for each request, or `"header:<name>"` to read them | `1` |
//! | `count_status` | only requests that are answered with this HTTP status count: `401`, or a list | every request counts |
//! | `mode` | `"enforce"` | `"enforce"` |
//! | `max_wait` | gcra, token-bucket, leaky-bucket: a request that does not fit yet waits for up to so long, 1 ms to 24 h | it is denied |
//! | `penalty` | a subject that is denied too often is banned, see below | nobody is banned |
//! | `on_missing_key` | `"shared"`, `"reject"`, `"skip"` | `"shared"` |
//! | `on_store_failure` | as above, for this policy | the file's choice |
//!
//! What needs a closure, as [`Policy::settle`], [`Policy::limit_by`] and keys of your own, needs a
//! [`Policy`] in code.
//!
//! # Each `penalty`
//!
//! ```toml
//! penalty = { denials = 10, within = "15min", ban = "1h", longest = "24h" }
//! ```
//!
//! | field | means | absent |
//! |---|---|---|
//! | `denials` | so many denials bring a ban, 1 to 100 | an error |
//! | `within` | when they come in a time of this length | an error |
//! | `ban` | how long the ban is | an error |
//! | `longest` | each ban is twice as long as the one before, up to this | each is as long as the first |
//!
//! # Times
//!
//! A time is a whole number with `ms`, `s`, `min`, `h` or `day`: `"50ms"`, `"2s"`, `"15min"`.
//!
//! # What is wrong
//!
//! A field or a value that is wrong is refused with its line, its policy and what would be right.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use self::rejection::RejectionChoice;
use self::store::{StoreChoice, redis};
use crate::error::{StoreError, StoreErrorKind};
use crate::http::QuotaHeaders;
use crate::limiter::{Limiter, Rules};
use crate::observe::Observer;
use crate::store::Store;
use crate::store::memory::MemoryStore;
use crate::tower::RateLimitLayer;

mod access;
mod deserialize;
mod error;
mod fields;
mod file;
mod fixed;
mod headers;
mod key;
mod limit;
mod penalty;
mod place;
mod policy;
mod proxies;
mod rate;
mod rejection;
mod routes;
mod store;
mod unsound;
mod variable;
mod watch;

pub use self::error::FileError;
pub use self::key::UserId;
pub use self::watch::{ConfigFile, OpenError, WatchedConfig};

/// A configuration, read and checked. See the [module](self) for the format.
#[derive(Clone)]
pub struct Config {
    store: StoreChoice,
    secret: Option<String>,
    headers: QuotaHeaders,
    rejection: RejectionChoice,
    timeout: Option<Duration>,
    rules: Rules,
    observers: Vec<Arc<dyn Observer>>,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or names the line, the policy and the field that is wrong,
    /// and what would be right.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, FileError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| FileError::unreadable(path, source))?;
        Self::from_toml(&text).map_err(|error| error.in_file(path))
    }

    /// Checks a text; the same as `parse`.
    ///
    /// # Errors
    ///
    /// Names the line, the policy and the field that is wrong, and what would be right.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        file::read(text, &variable_of_this_process, None)
    }

    /// As [`from_toml`](Self::from_toml), to take the place of another in a running service.
    fn succeeding(in_force: &Self, text: &str) -> Result<Self, FileError> {
        file::read(text, &variable_of_this_process, Some(in_force))
    }

    /// Tells somebody what is decided and how the store fares, see
    /// [`LimiterBuilder::observe`](crate::LimiterBuilder::observe); called several times, each of
    /// them.
    #[must_use]
    pub fn observe(mut self, observer: impl Observer) -> Self {
        self.observers.push(Arc::new(observer));
        self
    }

    /// Connects to the store and puts the policies over it.
    ///
    /// # Errors
    ///
    /// When the store cannot be reached or refuses. The address is not shown: it may hold a
    /// password.
    pub async fn connect(&self) -> Result<Limiter, StoreError> {
        match &self.store {
            StoreChoice::Memory => self.limiter(MemoryStore::new()),
            StoreChoice::Redis { url, prefix } => {
                let store = redis(url, prefix.as_deref());
                self.limiter(store.connect().await?)
            }
        }
    }

    /// As [`connect`](Self::connect), but connects with the first decision: the service starts
    /// even when the store is down, and the failure modes decide until it is up.
    ///
    /// # Errors
    ///
    /// When the store's address cannot be read.
    pub fn connect_lazy(&self) -> Result<Limiter, StoreError> {
        match &self.store {
            StoreChoice::Memory => self.limiter(MemoryStore::new()),
            StoreChoice::Redis { url, prefix } => {
                let store = redis(url, prefix.as_deref());
                self.limiter(store.connect_lazy()?)
            }
        }
    }

    fn limiter(&self, store: impl Store) -> Result<Limiter, StoreError> {
        let mut limiter = Limiter::builder(store).rules(self.rules.clone());
        if let Some(timeout) = self.timeout {
            limiter = limiter.timeout(timeout);
        }
        if let Some(secret) = &self.secret {
            limiter = limiter.key_secret(secret);
        }
        for observer in &self.observers {
            limiter = limiter.observe(Arc::clone(observer));
        }
        // Reading the file has built this very limiter once, over no store.
        limiter
            .build()
            .map_err(|error| StoreError::with_source(StoreErrorKind::Configuration, error))
    }

    /// The choice of quota headers.
    pub fn headers(&self) -> QuotaHeaders {
        self.headers
    }

    /// The layer of a limiter, with the choice of quota headers and of responses to rejections.
    pub fn layer(&self, limiter: Limiter) -> RateLimitLayer {
        RateLimitLayer::new(limiter)
            .headers(self.headers)
            .on_rejection(self.rejection)
    }
}

fn variable_of_this_process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

impl FromStr for Config {
    type Err = FileError;

    fn from_str(text: &str) -> Result<Self, FileError> {
        Self::from_toml(text)
    }
}

/// Leaves the store's address and the secret out.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}
