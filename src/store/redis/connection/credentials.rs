//! `RedisCredentials`: a user and a password that may change while connections are open.

use std::fmt;
use std::sync::Arc;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisConnectionInfo};
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::store::redis::error::of_question;
use crate::trace;

/// A user and a password for Redis that may change while a store is connected, such as the tokens
/// of AWS IAM or Microsoft Entra ID.
///
/// Clones share the credentials. Keep a clone, and [replace](Self::replace) the credentials before
/// they expire:
///
/// ```no_run
/// use std::time::Duration;
/// use tower_throttle::{RedisCredentials, RedisStore};
///
/// # async fn new_token() -> String { String::new() }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let credentials = RedisCredentials::new("limits", new_token().await);
/// let store = RedisStore::builder("rediss://cache.example.com:6379")
///     .credentials(credentials.clone())
///     .connect()
///     .await?;
/// tokio::spawn(async move {
///     loop {
///         tokio::time::sleep(Duration::from_secs(600)).await; // tokens last longer
///         credentials.replace("limits", new_token().await);
///     }
/// });
/// # Ok(())
/// # }
/// ```
///
/// Every new connection logs in with the newest credentials. When they are replaced, open connections
/// log in again with `AUTH`; no question waits for that. If the server refuses them, the connection
/// keeps its old login, and the refusal is logged with the feature `tracing`.
#[derive(Clone)]
pub struct RedisCredentials(Arc<watch::Sender<Login>>);

/// What is sent to the server.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Login {
    user: Option<String>,
    password: Option<String>,
}

impl RedisCredentials {
    /// These credentials. An empty `user` is the server's default user, who logs in with the
    /// password alone.
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self::of(Login::new(user.into(), password.into()))
    }

    /// Replaces the credentials for all connections of all stores that use them.
    pub fn replace(&self, user: impl Into<String>, password: impl Into<String>) {
        self.set(Login::new(user.into(), password.into()));
    }

    pub(super) fn of(login: Login) -> Self {
        Self(Arc::new(watch::Sender::new(login)))
    }

    fn set(&self, login: Login) {
        self.0.send_if_modified(|current| {
            let is_other = *current != login;
            *current = login;
            is_other
        });
    }

    /// Replaces them by what these others are now.
    #[cfg(feature = "config")]
    pub(super) fn replace_by(&self, others: &Self) {
        // Copied first: both may be the same.
        let login = others.0.borrow().clone();
        self.set(login);
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<Login> {
        self.0.subscribe()
    }
}

/// Does not show the credentials.
impl fmt::Debug for RedisCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisCredentials").finish_non_exhaustive()
    }
}

impl Login {
    fn new(user: String, password: String) -> Self {
        Self {
            user: Some(user).filter(|user| !user.is_empty()),
            password: Some(password),
        }
    }

    /// That of a URL.
    #[cfg(feature = "config")]
    pub(super) fn of(server: &RedisConnectionInfo) -> Self {
        Self {
            user: server.username().map(str::to_owned),
            password: server.password().map(str::to_owned),
        }
    }

    /// The same settings with this login. The client can add a user, but not take one away.
    pub(super) fn apply(&self, server: &RedisConnectionInfo) -> RedisConnectionInfo {
        let mut with_login = RedisConnectionInfo::default()
            .set_db(server.db())
            .set_protocol(server.protocol());
        if server.skip_set_lib_name() {
            with_login = with_login.set_skip_set_lib_name();
        }
        if let Some(user) = &self.user {
            with_login = with_login.set_username(user);
        }
        if let Some(password) = &self.password {
            with_login = with_login.set_password(password);
        }
        with_login
    }

    /// Logs an open connection in. `None` without credentials: a connection is not logged out.
    fn command(&self) -> Option<Cmd> {
        let password = self.password.as_ref()?;
        let mut auth = redis::cmd("AUTH");
        if let Some(user) = &self.user {
            auth.arg(user);
        }
        auth.arg(password);
        Some(auth)
    }
}

/// Logs a connection in again whenever its credentials change, until this is dropped.
pub(super) struct LoggedIn(AbortHandle);

impl LoggedIn {
    /// Runs on the current runtime, which serves the connection. `changes` has seen the login that
    /// the connection was made with.
    pub(super) fn keep(
        mut connection: MultiplexedConnection,
        mut changes: watch::Receiver<Login>,
    ) -> Self {
        let task = tokio::spawn(async move {
            while changes.changed().await.is_ok() {
                let command = changes.borrow_and_update().command();
                let Some(command) = command else { continue };
                let refused = command.query_async::<()>(&mut connection).await;
                // The next question notices a lost connection.
                if let Err(error) = refused
                    && !error.is_io_error()
                {
                    let error = of_question(error);
                    let causes = error.causes();
                    trace::warn!(
                        error = causes.as_deref(),
                        "rate limiting: the server refuses the new credentials, an open connection \
                         keeps the old"
                    );
                }
            }
        });
        Self(task.abort_handle())
    }
}

impl Drop for LoggedIn {
    fn drop(&mut self) {
        self.0.abort();
    }
}
