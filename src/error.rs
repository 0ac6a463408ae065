//! Errors: a configuration that makes no sense, a question that cannot be asked, a store that gives
//! no answer.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::labels::labels;
use crate::one_line::OneLine;

/// `Debug` is what `main` prints of an error that it returns, and what `unwrap` prints: the same line as
/// `Display`.
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

/// A configuration that makes no sense. Tells the bad input and what would be right: `Display` and
/// `Debug` are one line for people.
///
/// Extractors and matchers of one's own make them, too, where they are
/// [validated](crate::KeyExtractor::validate):
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
        /// What would be right.
        expected: &'static str,
    },
    /// An option was set that only other algorithms have.
    #[non_exhaustive]
    NotForThisAlgorithm {
        /// The option.
        field: &'static str,
        /// The algorithms that have it.
        belongs_to: &'static str,
    },
    /// A text cannot be read as a value of the field.
    #[non_exhaustive]
    Malformed {
        /// The field.
        field: &'static str,
        /// What was given.
        given: String,
        /// What is wrong with it, or what would be right.
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
    /// A value is out of range: "`field`: got `given`, expected `expected`".
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

    /// A text cannot be read as a value of the field: "`field`: got `given`: `reason`", with what was
    /// given in quotation marks.
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

/// A question that the limiter cannot answer. `Display` and `Debug` are one line for people.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CheckError {
    /// The limiter has no policy of this name.
    UnknownPolicy {
        /// The name asked for.
        name: String,
    },
    /// The policy's limit does not support waiting: its algorithm does not hand out permits before
    /// they are available.
    CannotWait {
        /// The policy.
        name: String,
    },
    /// The policy counts what runs at the same time: its places are given back whole.
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
    /// One decision was to be made by a policy about the same key twice: ask once, for the sum.
    AskedTwice {
        /// The policy.
        name: String,
    },
}

impl CheckError {
    /// The policy that was asked.
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
                "policy {name:?}: only a limit of gcra, token_bucket or leaky_bucket can be waited for"
            ),
            Self::CannotSettle { name } => write!(
                f,
                "policy {name:?}: the places of a concurrency limit cannot be settled, only dropped"
            ),
            Self::CannotGrantPart { name } => write!(
                f,
                "policy {name:?}: the permits of a concurrency limit are places, ask for them with admit"
            ),
            Self::AskedTwice { name } => write!(
                f,
                "policy {name:?}: asked twice about the same key, ask once for the sum of the costs"
            ),
        }
    }
}

impl Error for CheckError {}

/// Why a store gave no answer.
///
/// [`kind`](Self::kind) is for the program. `Display` and `Debug` are for the operator, in one line: the
/// kind, what the server answered and what to do about it. They name the server, the node of a cluster
/// or Sentinel's master, but no server behind a pool of yours. As they tell every cause, there is no
/// [`source`](Error::source), so that a report with causes repeats nothing; a program that looks for a
/// certain cause finds it as [`inner`](Self::inner).
///
/// Clones share the cause, for example that of one failure that many questions met. Its text is in
/// logs, too, and must not contain secrets.
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
    /// Another part of the store has answered the same question.
    Part,
    ThisProcess,
}

/// An error with the address of the server in front.
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
    /// The source of the error that is shown with the address.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.as_deref().and_then(Error::source)
    }
}

/// The kinds of failure of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The address, the user, the password or the rights are wrong.
    Configuration,
    /// No connection: refused, unknown host, too many clients. Nothing was counted.
    Unreachable,
    /// The connection broke after the question was sent: it may have been counted, so it is not
    /// asked again.
    Interrupted,
    /// No answer within the deadline: it may have been counted, so it is not asked again.
    TimedOut,
    /// The server refuses for now: loading, a script running, a cluster down, read-only. Nothing
    /// was counted.
    Busy,
    /// The server, or the memory store, is at its memory bound. Nothing was counted.
    Full,
    /// As many questions as allowed are already in flight. Nothing was counted.
    Overloaded,
    /// The store was not asked, because it had failed too often: the circuit breaker is open.
    /// Nothing was counted.
    BreakerOpen,
    /// The key holds a value that this crate did not write. Nothing was counted.
    CorruptValue,
    /// The answer has an unknown shape: it may have been counted.
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

    /// An error with this cause.
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

    /// The same, if the cause is this process: it says nothing about the store.
    #[cfg(feature = "redis")]
    pub(crate) fn of_this_process(self) -> Self {
        Self {
            scope: Scope::ThisProcess,
            ..self
        }
    }

    /// The same, if another part of the store has answered the same question.
    #[cfg(feature = "redis")]
    pub(crate) fn of_part(self) -> Self {
        Self {
            scope: Scope::Part,
            ..self
        }
    }

    /// Whether it says nothing about the store.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.scope == Scope::ThisProcess
    }

    /// Whether another part of the store works.
    pub(crate) fn is_of_part(&self) -> bool {
        self.scope == Scope::Part
    }

    /// The same, naming the server, unless it names one already.
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

    /// The error that was the cause, whose text is a part of this one's.
    pub fn inner(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.inner.as_deref()
    }

    /// All its causes, in one text on one line.
    pub(crate) fn causes(&self) -> Option<String> {
        let mut causes: Option<String> = None;
        let mut beneath = self
            .inner
            .as_deref()
            .map(|inner| inner as &(dyn Error + 'static));
        while let Some(cause) = beneath {
            // Some errors repeat the text of their causes.
            let said = OneLine(cause).to_string();
            causes = match causes {
                None => Some(said),
                Some(causes) if causes.contains(&said) => Some(causes),
                Some(causes) => Some(format!("{causes}: {said}")),
            };
            beneath = cause.source();
        }
        causes
    }
}

labels! {
    /// Its name, as a label of metrics; `Display` is a sentence.
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
    /// Whether the question may have been counted all the same.
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
            Self::Busy => "the store refuses questions for now",
            Self::Full => "the store has reached its memory limit",
            Self::Overloaded => "too many questions to the store are in flight",
            Self::BreakerOpen => "the store failed too often and is not asked for a while",
            Self::CorruptValue => "the key holds a value that is not ours",
            Self::BadReply => "the store's answer has an unknown shape",
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
    fn an_error_of_a_store_tells_each_cause_once_in_one_line() {
        for (says, told) in [
            ("no route", "no route: out of order"),
            ("no route (out of order)", "no route (out of order)"),
            (
                "no\nERROR route\u{1b}[2J\u{202e}",
                "no\\nERROR route\\u{1b}[2J\\u{202e}: out of order",
            ),
        ] {
            let cause = Outer(says, io::Error::other("out of order"));
            let error = StoreError::with_source(StoreErrorKind::Unreachable, cause);
            let line = format!("the store cannot be reached: {told}");
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

    /// Whoever wrote it, it is one line, on which all of it can be seen.
    #[test]
    fn what_others_said_is_shown_on_one_line() {
        let said = "x\r\nERROR forged\u{1b}[2K\u{202e}";
        let malformed = ConfigError::malformed("field", said, said);
        let store = StoreError::with_source(StoreErrorKind::Unreachable, said);
        #[cfg(feature = "redis")]
        let store = store.of_server(said);
        for shown in [
            malformed.to_string(),
            malformed.in_policy(said).to_string(),
            ConfigError::out_of_range("field", said, "another").to_string(),
            ConfigError::DuplicatePolicy { name: said.into() }.to_string(),
            CheckError::UnknownPolicy { name: said.into() }.to_string(),
            CheckError::CannotWait { name: said.into() }.to_string(),
            store.causes().unwrap(),
        ] {
            assert!(shown.contains("ERROR forged"), "{shown}");
            let is_seen = |c: char| !c.is_control() && c != '\u{202e}';
            assert!(shown.chars().all(is_seen), "{shown:?}");
        }
    }
}
