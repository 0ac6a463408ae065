//! `Field`: a request header of which one value is expected.

use http::{HeaderMap, HeaderName};

use crate::error::ConfigError;

/// A header of which one value is expected. Keeps the error of an invalid name until it is
/// validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field(Result<HeaderName, ConfigError>);

/// What a request says in a [`Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValue<'a> {
    Absent,
    /// The value without surrounding blanks.
    Once(&'a [u8]),
    Repeated,
}

impl Field {
    pub(crate) fn new(name: &str) -> Self {
        Self(HeaderName::try_from(name).map_err(|_| {
            ConfigError::malformed(
                "header",
                name,
                "a header's name is one or more letters, digits and characters of !#$%&'*+-.^_`|~",
            )
        }))
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        self.0.as_ref().map(drop).map_err(Clone::clone)
    }

    /// The name in lower case.
    pub(crate) fn name(&self) -> &str {
        self.0.as_ref().map_or("", HeaderName::as_str)
    }

    pub(crate) fn lines<'a>(
        &self,
        headers: &'a HeaderMap,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> {
        let lines = self.0.as_ref().ok().map(|name| headers.get_all(name));
        lines.into_iter().flatten().map(|line| line.as_bytes())
    }

    pub(crate) fn read<'a>(&self, headers: &'a HeaderMap) -> FieldValue<'a> {
        let Ok(name) = &self.0 else {
            return FieldValue::Absent;
        };
        let mut lines = headers.get_all(name).iter();
        match (lines.next(), lines.next()) {
            (None, _) => FieldValue::Absent,
            (Some(value), None) => FieldValue::Once(value.as_bytes().trim_ascii()),
            (Some(_), Some(_)) => FieldValue::Repeated,
        }
    }
}
