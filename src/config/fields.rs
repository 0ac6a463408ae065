//! Reads a TOML table field by field, so that every error can name the line, the policy, the field
//! and the remedy. A derived `Deserialize` knows only the line.

use std::borrow::Cow;
use std::fmt;

use toml::Spanned;
use toml::de::{DeFloat, DeInteger, DeTable, DeValue};

use super::FileError;
use super::error::{Place, PolicyPlace, line_of};

/// The fields that a table can have.
pub(super) type KnownNames = &'static [&'static str];

/// One table without unknown fields.
pub(super) struct Fields<'t> {
    place: Place<'t>,
    table: &'t DeTable<'t>,
    known: KnownNames,
}

/// The name of a field as a file has to write it: in quotation marks unless it is a plain word.
pub(super) fn as_written(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    match !name.is_empty() && name.bytes().all(is_plain) {
        true => name.into(),
        false => format!("{name:?}").into(),
    }
}

/// An error about a text that is not TOML. Names the field of the line if that is a known one.
pub(super) fn not_toml(text: &str, error: &toml::de::Error, known: &[KnownNames]) -> FileError {
    let offset = error.span().map_or(0, |span| span.start);
    let line = line_of(text.as_bytes(), offset);
    let field = text
        .lines()
        .nth(line - 1)
        .and_then(|line| line.split_once('='))
        .map(|(field, _)| field.trim());
    match field {
        // Never the text after the equals sign: it may be a password. Nor unknown text before it:
        // in a list over several lines it may be an API key, and those often end in an equals sign.
        Some(field) if known.iter().any(|known| known.contains(&field)) => {
            FileError::at(line, format_args!("{field}: {}", error.message()))
        }
        _ => FileError::at(line, error.message()),
    }
}

impl<'t> Fields<'t> {
    /// The table of a whole file.
    pub(super) fn of_file(
        text: &'t str,
        table: &'t DeTable<'t>,
        known: KnownNames,
    ) -> Result<Self, FileError> {
        Self::of_table(Place::of_file(text), table, known)
    }

    /// The policies, each named by its field `name`, or else by its number.
    pub(super) fn policies(
        &self,
        name: &'static str,
        known: KnownNames,
    ) -> Result<Vec<Self>, FileError> {
        let Some(field) = self.get(name) else {
            return Ok(Vec::new());
        };
        let expected = format!("tables that begin with [[{name}]]");
        let Some(tables) = field.array() else {
            return Err(field.expected(expected));
        };
        let read = |(index, item): (usize, &'t Spanned<DeValue<'t>>)| {
            let table = item.get_ref().as_table();
            let table = table.ok_or_else(|| field.expected(&expected))?;
            let name = table.get("name").and_then(|name| name.get_ref().as_str());
            let policy = name.map_or(PolicyPlace::Nameless(index + 1), PolicyPlace::Named);
            let place = self.place.at(item.span()).in_policy(policy);
            Self::all_known(place, table, known, self.known)
        };
        tables.iter().enumerate().map(read).collect()
    }

    /// A field that is a table.
    pub(super) fn of_table(
        place: Place<'t>,
        table: &'t DeTable<'t>,
        known: KnownNames,
    ) -> Result<Self, FileError> {
        Self::all_known(place, table, known, &[])
    }

    /// Refuses unknown fields. `of_file` are the fields of the surrounding file: a field added at
    /// the end of the file belongs to the last policy, and the error says so.
    fn all_known(
        place: Place<'t>,
        table: &'t DeTable<'t>,
        known: KnownNames,
        of_file: KnownNames,
    ) -> Result<Self, FileError> {
        let mut names = table.keys();
        let unknown = names.find(|name| !known.contains(&name.get_ref().as_ref()));
        let Some(unknown) = unknown else {
            return Ok(Self {
                place,
                table,
                known,
            });
        };
        let (place, name) = (place.at(unknown.span()), unknown.get_ref().as_ref());
        let shown = as_written(name);
        if of_file.contains(&name) {
            let problem = "is a field of the whole file, write it above the first [[policy]]";
            return Err(place.refuse_field(&shown, problem));
        }
        let names = known.join(", ");
        let problem = format!("is not a field here, expected one of {names}");
        Err(place.refuse_field(&shown, problem))
    }

    pub(super) fn get(&self, name: &'static str) -> Option<Field<'t>> {
        Some(Field::new(self.place, name, self.table.get(name)?))
    }

    /// A required field; `example` is what to write.
    pub(super) fn need(&self, name: &'static str, example: &str) -> Result<Field<'t>, FileError> {
        let missing = || {
            let place = self.place;
            place.refuse_field(name, format_args!("is missing, write {example}"))
        };
        self.get(name).ok_or_else(missing)
    }

    /// An error in the line of a field of this table. Its text names the field itself.
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

    pub(super) fn number<N: TryFrom<u64>>(
        &self,
        expected: impl fmt::Display,
    ) -> Result<N, FileError> {
        self.value
            .as_integer()
            .and_then(|number| u64::from_str_radix(number.as_str(), number.radix()).ok())
            .and_then(|number| N::try_from(number).ok())
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
        known: KnownNames,
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

    /// An error that names the given value and the expected ones.
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
