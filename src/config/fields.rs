//! Reads a TOML table field by field, so that every refusal can name the line, the policy, the
//! field and what would be right. A derived `Deserialize` knows the line alone.

use std::fmt;

use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeTable, DeValue};

use super::FileError;
use super::place::{Place, PolicyPlace, line_of};

/// The fields that a table can have.
pub(super) type Known = &'static [&'static str];

/// One table, none of whose fields is unknown.
pub(super) struct Fields<'t> {
    place: Place<'t>,
    table: &'t DeTable<'t>,
}

/// One field and its value.
#[derive(Clone, Copy)]
pub(super) struct Field<'t> {
    place: Place<'t>,
    name: &'static str,
    value: &'t DeValue<'t>,
}

/// An error about a text that is no TOML at all, with the field of its line when that has one.
pub(super) fn not_toml(text: &str, error: &toml::de::Error) -> FileError {
    let line = line_of(text, error.span().map_or(0, |span| span.start));
    let field = text
        .lines()
        .nth(line - 1)
        .and_then(|line| line.split_once('='))
        .map(|(field, _)| field.trim());
    match field {
        // Never what stands behind it: it may be a password. Nor text that is no field's name: with
        // a colon for the equals sign, or within quotes, it is a part of a value.
        Some(field) if field.bytes().all(is_name_byte) => {
            FileError::at(line, format_args!("{field}: {}", error.message()))
        }
        _ => FileError::at(line, error.message()),
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

impl<'t> Fields<'t> {
    /// The table that a whole file is.
    pub(super) fn of_file(
        text: &'t str,
        table: &'t DeTable<'t>,
        known: Known,
    ) -> Result<Self, FileError> {
        let place = Place::of_file(text);
        Self { place, table }.all_known(known)
    }

    /// Each policy, named by its field `name`, or else by its number.
    pub(super) fn policies(
        &self,
        name: &'static str,
        known: Known,
    ) -> Result<Vec<Self>, FileError> {
        let Some(field) = self.get(name) else {
            return Ok(Vec::new());
        };
        let expected = format!("tables that begin with [[{name}]]");
        let Some(tables) = field.value.as_array() else {
            return Err(field.expected(expected));
        };
        let read = |(index, item): (usize, &'t Spanned<DeValue<'t>>)| {
            let table = item.get_ref().as_table();
            let table = table.ok_or_else(|| field.expected(&expected))?;
            let name = table.get("name").and_then(|name| name.get_ref().as_str());
            let policy = name.map_or(PolicyPlace::Nameless(index + 1), PolicyPlace::Named);
            let place = self.place.at(item.span()).in_policy(policy);
            Self { place, table }.all_known(known)
        };
        tables.iter().enumerate().map(read).collect()
    }

    fn all_known(self, known: Known) -> Result<Self, FileError> {
        for name in self.table.keys() {
            let place = self.place.at(name.span());
            let name = name.get_ref().as_ref();
            if !known.contains(&name) {
                let names = known.join(", ");
                return Err(place.refuse_field(
                    name,
                    format_args!("is no field here, expected one of {names}"),
                ));
            }
        }
        Ok(self)
    }

    pub(super) fn get(&self, name: &'static str) -> Option<Field<'t>> {
        let value = self.table.get(name)?;
        Some(Field {
            place: self.place.at(value.span()),
            name,
            value: value.get_ref(),
        })
    }

    /// A field that has to be there; `example` is what to write.
    pub(super) fn need(&self, name: &'static str, example: &str) -> Result<Field<'t>, FileError> {
        let missing = || {
            let place = self.place;
            place.refuse_field(name, format_args!("is missing, write {example}"))
        };
        self.get(name).ok_or_else(missing)
    }

    /// An error whose text names a field of this table, in the line of that field.
    pub(super) fn refuse_at(&self, name: &'static str, problem: impl fmt::Display) -> FileError {
        match self.get(name) {
            Some(field) => field.here(problem),
            None => self.refuse(problem),
        }
    }

    /// An error about the table as a whole.
    pub(super) fn refuse(&self, problem: impl fmt::Display) -> FileError {
        self.place.refuse(problem)
    }
}

impl<'t> Field<'t> {
    pub(super) fn text(&self, expected: impl fmt::Display) -> Result<&'t str, FileError> {
        self.value.as_str().ok_or_else(|| self.expected(expected))
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

    /// The table that the field is, none of whose fields is unknown.
    pub(super) fn table(
        &self,
        known: Known,
        expected: impl fmt::Display,
    ) -> Result<Fields<'t>, FileError> {
        let table = self.value.as_table();
        let fields = Fields {
            place: self.place.in_table(self.name),
            table: table.ok_or_else(|| self.expected(expected))?,
        };
        fields.all_known(known)
    }

    pub(super) fn is_false(&self) -> bool {
        self.value.as_bool() == Some(false)
    }

    pub(super) fn is_text(&self) -> bool {
        self.value.is_str()
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.is_table()
    }

    /// The items of a list, each with its own place; `None` when this is no list.
    pub(super) fn items(&self) -> Option<Vec<Self>> {
        let item = |item: &'t Spanned<DeValue<'t>>| Self {
            place: self.place.at(item.span()),
            name: self.name,
            value: item.get_ref(),
        };
        Some(self.value.as_array()?.iter().map(item).collect())
    }

    /// One, or a list of them; `if_none` is what an empty list would come to.
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

    /// An error in this place whose text names the field itself.
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
            DeValue::Integer(number) => f.write_str(number.as_str()),
            DeValue::Float(number) => f.write_str(number.as_str()),
            DeValue::Boolean(value) => write!(f, "{value}"),
            DeValue::Datetime(time) => write!(f, "{time}"),
            DeValue::Array(_) => f.write_str("a list"),
            DeValue::Table(_) => f.write_str("a table"),
        }
    }
}
