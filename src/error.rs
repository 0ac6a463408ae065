//! Errors: an invalid configuration, an invalid call, a store that fails.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::labels::labels;
use crate::one_line::OneLine;

/// `main` prints the `Debug` form of an error that it returns, and so does `unwrap`. So `Debug`
/// shows the same line as `Display`.
macro_rules! debug_as_display {
    ($($error:ty),+) => {$(
        impl fmt::Debug for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )+};
}
#[cfg(feature = "config")]
pub(crate) use debug_as_display;

debug_as_display!(ConfigError, CheckError, StoreError);

/// An invalid configuration. `Display` and `Debug` show one line with the field, the value that was
/// given and what was expected.
///
/// Your own extractors and matchers return it from [`validate`](crate::KeyExtractor::validate):
///
/// ```
/// use tower_throttle::{
///     ConfigError, Key, KeyError, KeyExtractor, Limit, Limiter, MINUTE, MemoryStore, Policy,
///     RequestHead,
/// };
///
/// /// The first digits of the account number in a header.
/// struct Branch {
///     digits: usize,
/// }
///
/// impl KeyExtractor for Branch {
///     fn extract(&self, request: &RequestHead<'_>) -> Result<Key, KeyError> {
///         let account = request.headers.get("x-account").ok_or(KeyError::Missing)?;
///         let branch = account.as_bytes().get(..self.digits);
///         branch.map(Key::from).ok_or(KeyError::Missing)
///     }
///
///     fn validate(&self) -> Result<(), ConfigError> {
///         match self.digits {
///             1..=6 => Ok(()),
///             digits => Err(ConfigError::out_of_range("digits", digits, "1 to 6")),
///         }
///     }
/// }
///
/// let policy = Policy::new("branch", Limit::gcra(100, MINUTE)).by(Branch { digits: 0 });
/// let error = Limiter::new(MemoryStore::new(), [policy]).unwrap_err();
/// assert_eq!(error.to_string(), "policy \"branch\": digits: got 0, expected 1 to 6");
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// A value is out of range.
    #[non_exhaustive]
    OutOfRange {
        /// The field.
        field: &'static str,
        /// What was given.
        given: String,
        /// What was expected.
        expected: &'static str,
    },
    /// An option was set that only other algorithms support.
    #[non_exhaustive]
    NotForThisAlgorithm {
        /// The option.
        field: &'static str,
        /// The algorithms that support it.
        belongs_to: &'static str,
    },
    /// A text cannot be parsed as a value of the field.
    #[non_exhaustive]
    Malformed {
        /// The field.
        field: &'static str,
        /// What was given.
        given: String,
        /// What is wrong with it, or what was expected.
        reason: String,
    },
    /// Two policies of one limiter have the same name, so they would share their counts.
    #[non_exhaustive]
    DuplicatePolicy {
        /// The name.
        name: String,
    },
    /// An error in a policy.
    #[non_exhaustive]
    InPolicy {
        /// The policy's name.
        name: String,
        /// What is wrong.
        source: Box<ConfigError>,
    },
}

impl ConfigError {
    /// A value is out of range. Shown as "`field`: got `given`, expected `expected`".
    pub fn out_of_range(
        field: &'static str,
        given: impl fmt::Display,
        expected: &'static str,
    ) -> Self {
        Self::OutOfRange {
            field,
            given: given.to_string(),
            expected,
        }
    }

    /// A text cannot be parsed as a value of the field. Shown as "`field`: got `given`: `reason`",
    /// with `given` in quotation marks.
    pub fn malformed(
        field: &'static str,
        given: impl Into<String>,
        reason: impl Into<String>,
    ) -> Self {
        Self::Malformed {
            field,
            given: given.into(),
            reason: reason.into(),
        }
    }

    pub(crate) fn not_for(field: &'static str, belongs_to: &'static str) -> Self {
        Self::NotForThisAlgorithm { field, belongs_to }
    }

    pub(crate) fn in_policy(self, name: &str) -> Self {
        Self::InPolicy {
            name: name.to_owned(),
            source: Box::new(self),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange {
                field,
                given,
                expected,
            } => write!(f, "{field}: got {}, expected {expected}", OneLine(given)),
            Self::NotForThisAlgorithm { field, belongs_to } => {
                write!(f, "{field}: is an option of {belongs_to}")
            }
            Self::Malformed {
                field,
                given,
                reason,
            } => write!(f, "{field}: got {given:?}: {}", OneLine(reason)),
            Self::DuplicatePolicy { name } => write!(
                f,
                "policy {name:?}: the name is used twice, give each policy its own"
            ),
            Self::InPolicy { name, source } => write!(f, "policy {name:?}: {source}"),
        }
    }
}

impl Error for ConfigError {}

/// A call that the limiter cannot answer, such as one that names an unknown policy. `Display` and
/// `Debug` show one line.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckError {
    /// The limiter has no policy of this name.
    UnknownPolicy {
        /// The name asked for.
        name: String,
    },
    /// The policy's algorithm does not support waiting. Only GCRA, token buckets and leaky buckets
    /// can reserve permits in advance.
    CannotWait {
        /// The policy.
        name: String,
    },
    /// The policy has a concurrency limit. Its permits are returned when they are dropped, so there
    /// is no cost to settle.
    CannotSettle {
        /// The policy.
        name: String,
    },
    /// The policy counts what runs at the same time: its permits are places, of which nobody asks for
    /// as many as there are.
    CannotGrantPart {
        /// The policy.
        name: String,
    },
    /// The call names the same policy and key twice. Pass them once, with the sum of the costs.
    AskedTwice {
        /// The policy.
        name: String,
    },
}

impl CheckError {
    /// The name of the policy that the call named.
    pub fn policy(&self) -> &str {
        match self {
            Self::UnknownPolicy { name }
            | Self::CannotWait { name }
            | Self::CannotSettle { name }
            | Self::CannotGrantPart { name }
            | Self::AskedTwice { name } => name,
        }
    }
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownPolicy { name } => write!(f, "no policy is named {name:?}"),
            Self::CannotWait { name } => write!(
                f,
                "policy {name:?}: waiting needs a limit of gcra, token_bucket or leaky_bucket"
            ),
            Self::CannotSettle { name } => write!(
                f,
                "policy {name:?}: permits of a concurrency limit cannot be settled, drop them instead"
            ),
            Self::CannotGrantPart { name } => write!(
                f,
                "policy {name:?}: the permits of a concurrency limit are places, ask for them with admit"
            ),
            Self::AskedTwice { name } => write!(
                f,
                "policy {name:?}: the same key is given twice, give it once with the sum of the costs"
            ),
        }
    }
}

impl Error for CheckError {}

/// Why a store call failed.
///
/// Programs match on [`kind`](Self::kind). `Display` and `Debug` are for the operator: one line
/// with the kind, the server's answer and a remedy. The line names the server, the cluster node or
/// the Sentinel master. It names no server if the store uses your own connection pool.
///
/// The line already includes every cause, so [`source`](Error::source) returns `None` and error
/// reports repeat nothing. [`inner`](Self::inner) returns the cause for programs that look for a
/// certain one.
///
/// Clones share the cause: one failure may fail many calls. The text is written to logs, so it must
/// not contain secrets.
#[derive(Clone)]
pub struct StoreError {
    kind: StoreErrorKind,
    inner: Option<Arc<dyn Error + Send + Sync>>,
    scope: Scope,
}

/// What a failure says about the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Store,
    /// Only a part of the store failed: another part answered the same call.
    Part,
    ThisProcess,
}

/// An error, prefixed with the server's address.
#[cfg(feature = "redis")]
#[derive(Debug)]
struct OfServer {
    address: String,
    error: Option<Arc<dyn Error + Send + Sync>>,
}

#[cfg(feature = "redis")]
impl fmt::Display for OfServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Some(error) => write!(f, "{}: {}", OneLine(&self.address), OneLine(error)),
            None => OneLine(&self.address).fmt(f),
        }
    }
}

#[cfg(feature = "redis")]
impl Error for OfServer {
    /// The source of the wrapped error, whose own text is shown with the address.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.as_deref().and_then(Error::source)
    }
}

/// The kinds of store failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The address, user name, password or permissions are wrong.
    Configuration,
    /// No connection: refused, unknown host, or too many clients. Nothing was counted.
    Unreachable,
    /// The connection broke after the command was sent. The request may have been counted, so the
    /// command is not repeated.
    Interrupted,
    /// No answer within the timeout. The request may have been counted, so the command is not
    /// repeated.
    TimedOut,
    /// The server rejects commands for now: it is loading, running a script or read-only, or its
    /// cluster is down. Nothing was counted.
    Busy,
    /// The server or the memory store has reached its memory limit. Nothing was counted.
    Full,
    /// Too many calls are already in flight. Nothing was counted.
    Overloaded,
    /// The circuit breaker is open after repeated failures, so the store was not called. Nothing
    /// was counted.
    BreakerOpen,
    /// The key holds a value that this crate did not write. Nothing was counted.
    CorruptValue,
    /// The reply has an unknown format. The request may have been counted.
    BadReply,
}

impl StoreError {
    /// An error with no further cause.
    pub fn new(kind: StoreErrorKind) -> Self {
        Self {
            kind,
            inner: None,
            scope: Scope::Store,
        }
    }

    /// An error with this cause. The cause's text becomes part of this error's text.
    pub fn with_source(
        kind: StoreErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            kind,
            inner: Some(Arc::from(source.into())),
            scope: Scope::Store,
        }
    }

    /// Marks the failure as one of this process, which says nothing about the store.
    #[cfg(feature = "redis")]
    pub(crate) fn of_this_process(self) -> Self {
        Self {
            scope: Scope::ThisProcess,
            ..self
        }
    }

    /// Marks the failure as one of a part of the store: another part answered the same call.
    #[cfg(feature = "redis")]
    pub(crate) fn of_part(self) -> Self {
        Self {
            scope: Scope::Part,
            ..self
        }
    }

    /// Whether this process caused the failure, so that it says nothing about the store.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.scope == Scope::ThisProcess
    }

    /// Whether another part of the store answered the same call.
    pub(crate) fn is_of_part(&self) -> bool {
        self.scope == Scope::Part
    }

    /// Adds the server's address, unless the error has one already.
    #[cfg(feature = "redis")]
    pub(crate) fn of_server(self, address: impl fmt::Display) -> Self {
        let inner = self.inner.as_deref();
        if inner.is_some_and(|inner| inner.is::<OfServer>()) {
            return self;
        }
        let address = address.to_string();
        let inner = OfServer {
            address,
            error: self.inner,
        };
        Self {
            inner: Some(Arc::new(inner)),
            ..self
        }
    }

    /// The kind of failure.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// The cause. Its text is already part of this error's text.
    pub fn inner(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.inner.as_deref()
    }

    /// All causes, joined to one line.
    pub(crate) fn causes(&self) -> Option<String> {
        let mut causes: Option<String> = None;
        let mut beneath = self
            .inner
            .as_deref()
            .map(|inner| inner as &(dyn Error + 'static));
        while let Some(cause) = beneath {
            // Some errors repeat the text of their causes.
            let text = OneLine(cause).to_string();
            causes = match causes {
                None => Some(text),
                Some(causes) if causes.contains(&text) => Some(causes),
                Some(causes) => Some(format!("{causes}: {text}")),
            };
            beneath = cause.source();
        }
        causes
    }
}

labels! {
    /// The name, used as a metrics label. `Display` shows a sentence instead.
    StoreErrorKind {
        Configuration = "configuration",
        Unreachable = "unreachable",
        Interrupted = "interrupted",
        TimedOut = "timed_out",
        Busy = "busy",
        Full = "full",
        Overloaded = "overloaded",
        BreakerOpen = "breaker_open",
        CorruptValue = "corrupt_value",
        BadReply = "bad_reply",
    }
}

impl StoreErrorKind {
    /// Whether the store may have counted the request despite the failure.
    pub(crate) fn may_have_counted(self) -> bool {
        matches!(self, Self::Interrupted | Self::TimedOut | Self::BadReply)
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Configuration => "the store is configured wrongly",
            Self::Unreachable => "the store cannot be reached",
            Self::Interrupted => "the connection to the store broke before the answer",
            Self::TimedOut => "the store did not answer within the deadline",
            Self::Busy => "the store rejects commands for now",
            Self::Full => "the store has reached its memory limit",
            Self::Overloaded => "too many calls to the store are in flight",
            Self::BreakerOpen => "the store failed repeatedly and is not called for a while",
            Self::CorruptValue => "the key holds a value that this crate did not write",
            Self::BadReply => "the store's reply has an unknown format",
        })
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.causes() {
            Some(causes) => write!(f, "{}: {causes}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl Error for StoreError {}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    /// Has a cause, and may repeat its text.
    #[derive(Debug)]
    struct Outer(&'static str, io::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.1)
        }
    }

    #[test]
    fn a_store_error_shows_each_cause_once_on_one_line() {
        for (cause, shown) in [
            ("no route", "no route: out of order"),
            ("no route (out of order)", "no route (out of order)"),
            (
                "no\nERROR route\u{1b}[2J\u{202e}",
                "no\\nERROR route\\u{1b}[2J\\u{202e}: out of order",
            ),
        ] {
            let cause = Outer(cause, io::Error::other("out of order"));
            let error = StoreError::with_source(StoreErrorKind::Unreachable, cause);
            let line = format!("the store cannot be reached: {shown}");
            assert_eq!(error.to_string(), line);
            assert_eq!(format!("{error:?}"), line, "as `main` prints it");
            assert_eq!(format!("{error:#?}"), line);
            assert!(error.source().is_none(), "a report repeats nothing");
            assert!(error.inner().unwrap().is::<Outer>());
        }
        let alone = StoreError::new(StoreErrorKind::Busy);
        assert_eq!(format!("{alone:?}"), StoreErrorKind::Busy.to_string());
        assert!(alone.inner().is_none());
    }

    #[test]
    fn errors_that_main_returns_are_printed_as_a_line_for_people() {
        let given = "a\nb";
        let errors: [Box<dyn Error>; 4] = [
            ConfigError::out_of_range("cost", given, "1 to 9").into(),
            ConfigError::malformed("route", given, given)
                .in_policy(given)
                .into(),
            CheckError::UnknownPolicy { name: given.into() }.into(),
            CheckError::CannotWait { name: given.into() }.into(),
        ];
        for error in errors {
            let line = error.to_string();
            assert_eq!(format!("{error:?}"), line);
            assert!(line.contains("a\\nb") && !line.contains('\n'), "{line}");
        }
    }

    /// Foreign text cannot add or hide a log line.
    #[test]
    fn foreign_text_is_shown_on_one_line() {
        let foreign = "x\r\nERROR forged\u{1b}[2K\u{202e}";
        let malformed = ConfigError::malformed("field", foreign, foreign);
        let store = StoreError::with_source(StoreErrorKind::Unreachable, foreign);
        #[cfg(feature = "redis")]
        let store = store.of_server(foreign);
        for shown in [
            malformed.to_string(),
            malformed.in_policy(foreign).to_string(),
            ConfigError::out_of_range("field", foreign, "another").to_string(),
            ConfigError::DuplicatePolicy {
                name: foreign.into(),
            }
            .to_string(),
            CheckError::UnknownPolicy {
                name: foreign.into(),
            }
            .to_string(),
            CheckError::CannotWait {
                name: foreign.into(),
            }
            .to_string(),
            store.causes().unwrap(),
        ] {
            assert!(shown.contains("ERROR forged"), "{shown}");
            let is_seen = |c: char| !c.is_control() && c != '\u{202e}';
            assert!(shown.chars().all(is_seen), "{shown:?}");
        }
    }
}
