//! `Field`: one value of the file, with what is needed to report an error in it.

use std::fmt;

use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeValue};

use super::FileError;
use super::fields::{Fields, Known};
use super::place::Place;

/// One field and its value.
#[derive(Clone, Copy)]
pub(super) struct Field<'t> {
    place: Place<'t>,
    name: &'static str,
    value: &'t DeValue<'t>,
}

impl<'t> Field<'t> {
    /// A field of the table at this place.
    pub(super) fn new(
        table: Place<'t>,
        name: &'static str,
        value: &'t Spanned<DeValue<'t>>,
    ) -> Self {
        Self {
            place: table.at(value.span()),
            name,
            value: value.get_ref(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn text(&self, expected: impl fmt::Display) -> Result<&'t str, FileError> {
        self.as_text().ok_or_else(|| self.expected(expected))
    }

    pub(super) fn number(&self, expected: impl fmt::Display) -> Result<u32, FileError> {
        self.value
            .as_integer()
            .and_then(|number| u32::from_str_radix(number.as_str(), number.radix()).ok())
            .ok_or_else(|| self.expected(expected))
    }

    /// A number that need not be whole.
    pub(super) fn fraction(&self, expected: impl fmt::Display) -> Result<f64, FileError> {
        let whole = self.value.as_integer().map(DeInteger::as_str);
        let text = whole.or(self.value.as_float().map(DeFloat::as_str));
        let number = text.and_then(|text| text.parse().ok());
        number.ok_or_else(|| self.expected(expected))
    }

    pub(super) fn boolean(&self) -> Result<bool, FileError> {
        let expected = || self.expected("true or false");
        self.value.as_bool().ok_or_else(expected)
    }

    /// The field as a table without unknown fields.
    pub(super) fn table(
        &self,
        known: Known,
        expected: impl fmt::Display,
    ) -> Result<Fields<'t>, FileError> {
        let table = self.value.as_table();
        let table = table.ok_or_else(|| self.expected(expected))?;
        Fields::of_table(self.place.in_table(self.name), table, known)
    }

    /// The value if it is a boolean.
    pub(super) fn as_boolean(&self) -> Option<bool> {
        self.value.as_bool()
    }

    /// The value if it is a text.
    pub(super) fn as_text(&self) -> Option<&'t str> {
        self.value.as_str()
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    pub(super) fn array(&self) -> Option<&'t [Spanned<DeValue<'t>>]> {
        Some(self.value.as_array()?)
    }

    /// The items of a list, each with its own place; `None` if this is no list.
    pub(super) fn items(&self) -> Option<Vec<Self>> {
        let items = self.array()?.iter();
        let item = |item| Self::new(self.place, self.name, item);
        Some(items.map(item).collect())
    }

    /// A single value or a list of them. `if_none` says what an empty list would mean.
    pub(super) fn one_or_more<T>(
        &self,
        one: impl Fn(&Self) -> Result<T, FileError>,
        if_none: &str,
    ) -> Result<Vec<T>, FileError> {
        match self.items() {
            Some(items) if items.is_empty() => {
                Err(self.refuse(format_args!("the list is empty, so {if_none}")))
            }
            Some(items) => items.iter().map(one).collect(),
            None => Ok(vec![one(self)?]),
        }
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, FileError> {
        let words: Vec<_> = choices
            .iter()
            .map(|(word, _)| format!("{word:?}"))
            .collect();
        let expected = format!("one of {}", words.join(", "));
        let word = self.text(&expected)?;
        let chosen = choices.iter().find(|(choice, _)| *choice == word);
        chosen
            .map(|(_, choice)| *choice)
            .ok_or_else(|| self.expected(expected))
    }

    /// An error that says what was given and what would be right.
    pub(super) fn expected(&self, expected: impl fmt::Display) -> FileError {
        self.refuse(format_args!(
            "got {}, expected {expected}",
            Given(self.value)
        ))
    }

    /// An error about this field.
    pub(super) fn refuse(&self, problem: impl fmt::Display) -> FileError {
        self.place.refuse_field(self.name, problem)
    }

    /// An error at this place whose text names the field itself.
    pub(super) fn here(&self, problem: impl fmt::Display) -> FileError {
        self.place.refuse(problem)
    }
}

/// A value as an error shows it.
struct Given<'a>(&'a DeValue<'a>);

impl fmt::Display for Given<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            DeValue::String(text) => write!(f, "{text:?}"),
            DeValue::Integer(number) => write!(f, "{number}"),
            DeValue::Float(number) => f.write_str(number.as_str()),
            DeValue::Boolean(value) => write!(f, "{value}"),
            DeValue::Datetime(time) => write!(f, "{time}"),
            DeValue::Array(_) => f.write_str("a list"),
            DeValue::Table(_) => f.write_str("a table"),
        }
    }
}
