//! `{ env = "REDIS_URL" }`: a text from an environment variable, so that the file holds no secret.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;

use super::FileError;
use super::fields::{Field, KnownNames};

/// The environment variables, by name.
pub(super) type Environment<'e> = &'e dyn Fn(&str) -> Option<OsString>;

const FIELDS: KnownNames = &["env"];

/// A text from the file or from a variable. Errors never show it: it may contain a password.
pub(super) struct Hidden<'t> {
    field: Field<'t>,
    variable: Option<&'t str>,
    text: Cow<'t, str>,
}

/// Whether POSIX allows this as a portable name.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(is_part) && text.starts_with(|first: char| !first.is_ascii_digit())
}

/// The variable's name, if it looks like one. Anything else may be a value that a template has put
/// here, and is not shown.
fn called(name: &str) -> Cow<'_, str> {
    let is_shown = !name.bytes().any(|byte| byte.is_ascii_lowercase());
    match is_shown {
        true => format!("the variable {name:?}").into(),
        false => "the variable of this name".into(),
    }
}

/// The expected text in the file, for the expected text in a variable.
fn or_a_variable(expected: &str) -> String {
    format!("{expected}, or a variable that holds one, such as {{ env = \"REDIS_URL\" }}")
}

impl<'t> Hidden<'t> {
    /// A text, or `{ env = "..." }`.
    pub(super) fn read(
        field: Field<'t>,
        environment: Environment<'_>,
        expected: &str,
    ) -> Result<Self, FileError> {
        if field.is_table() {
            return Self::of_variable(field, environment, expected);
        }
        Ok(Self {
            field,
            variable: None,
            text: Cow::Borrowed(field.text(or_a_variable(expected))?),
        })
    }

    /// The text that `{ env = "..." }` names.
    pub(super) fn of_variable(
        field: Field<'t>,
        environment: Environment<'_>,
        expected: &str,
    ) -> Result<Self, FileError> {
        let fields = field.table(FIELDS, expected)?;
        let field = fields.need("env", "env = \"THE_VARIABLE\"")?;
        let name = field.text("the name of a variable, such as \"REDIS_URL\"")?;
        let refuse = |problem: &str| {
            let remedy = format!("set it to {expected}");
            field.refuse(format_args!("{} {problem}, {remedy}", called(name)))
        };
        if !is_name(name) {
            // Not shown: it may be what the variable holds, put here by a template.
            return Err(field.refuse("expected the name of a variable, such as \"REDIS_URL\""));
        }
        let text = environment(name).ok_or_else(|| refuse("is not set"))?;
        let text = text.into_string();
        let text = text.map_err(|_not_shown| refuse("is not UTF-8"))?;
        if text.is_empty() {
            return Err(refuse("is empty"));
        }
        Ok(Self {
            field,
            variable: Some(name),
            text: Cow::Owned(text),
        })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn into_text(self) -> String {
        self.text.into_owned()
    }

    /// An error about the text that names the expected one.
    pub(super) fn expected(&self, problem: &str, expected: &str) -> FileError {
        let expected = match self.variable {
            Some(_) => Cow::Borrowed(expected),
            None => or_a_variable(expected).into(),
        };
        self.refuse(format_args!("{problem}, expected {expected}"))
    }

    /// An error about the text.
    pub(super) fn refuse(&self, problem: impl fmt::Display) -> FileError {
        match self.variable {
            Some(name) => {
                let problem = format!("{}: {problem}", called(name));
                self.field.refuse(problem)
            }
            None => self.field.refuse(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use crate::config::configuration::InCode;
    use crate::config::{Config, FileError, read};

    const SECRET: &str = "store = \"memory\"\nsecret = { env = \"LIMITS_SECRET\" }\npolicy = []\n";
    const STORE: &str = "store = { env = \"REDIS_URL\" }\npolicy = []\n";

    fn read(text: &str, value: Option<OsString>) -> Result<Config, FileError> {
        let environment = |name: &str| match name {
            "LIMITS_SECRET" | "REDIS_URL" => value.clone(),
            _ => None,
        };
        read::read(text, &environment, InCode::default(), None)
    }

    fn refusal(text: &str, value: Option<OsString>) -> String {
        read(text, value).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_variable_is_refused_with_what_it_should_hold() {
        let mut values = vec![(None, "is not set"), (Some(OsString::new()), "is empty")];
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStringExt as _;
            let no_text = OsString::from_vec(b"hunter2\xff".to_vec());
            values.push((Some(no_text), "is not UTF-8"));
        }
        for (value, problem) in values {
            assert_eq!(
                refusal(SECRET, value.clone()),
                format!(
                    "line 2: secret.env: the variable \"LIMITS_SECRET\" {problem}, set it to a \
                     value that the whole fleet shares, such as 32 random characters"
                )
            );
            let refused = refusal(STORE, value);
            let start = format!(
                "line 1: store.env: the variable \"REDIS_URL\" {problem}, set it to \"memory\", or "
            );
            assert!(refused.starts_with(&start), "{refused}");
        }
    }

    #[test]
    fn the_value_of_a_variable_is_never_shown() {
        let refused = refusal(STORE, Some("hunter2".into()));
        let start = "line 1: store.env: the variable \"REDIS_URL\": no store has this name";
        assert!(refused.starts_with(start), "{refused}");
        assert!(!refused.contains("hunter2"), "{refused}");
        for store in ["redsi://:hunter2@h", "redis://:hunter2@h:nope"] {
            let refused = refusal(STORE, Some(store.into()));
            let start =
                "line 1: store.env: the variable \"REDIS_URL\": the store's URL cannot be used";
            assert!(refused.starts_with(start), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }

        for (text, value) in [(STORE, "redis://:hunter2@h:1"), (SECRET, "hunter2")] {
            let config = read(text, Some(value.into())).unwrap();
            assert!(!format!("{config:?}").contains("hunter2"));
        }
    }

    #[test]
    fn a_variable_can_name_any_store() {
        for store in ["memory", "redis://h:1", "redis+unix:///run/redis.sock"] {
            let config = read(STORE, Some(store.into())).unwrap();
            let address = (store != "memory").then_some(store);
            assert_eq!(config.store.url(), address);
        }
    }
}
