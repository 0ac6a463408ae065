//! Reads a TOML table field by field, so that every error can name the line, the policy, the field
//! and what would be right. A derived `Deserialize` knows only the line.

use std::borrow::Cow;
use std::fmt;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::FileError;
use super::field::Field;
use super::place::{Place, PolicyPlace, line_of};

/// The fields that a table can have.
pub(super) type Known = &'static [&'static str];

/// One table without unknown fields.
pub(super) struct Fields<'t> {
    place: Place<'t>,
    table: &'t DeTable<'t>,
    known: Known,
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
pub(super) fn not_toml(text: &str, error: &toml::de::Error, known: &[Known]) -> FileError {
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
        known: Known,
    ) -> Result<Self, FileError> {
        Self::of_table(Place::of_file(text), table, known)
    }

    /// The policies, each named by its field `name`, or else by its number.
    pub(super) fn policies(
        &self,
        name: &'static str,
        known: Known,
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
        known: Known,
    ) -> Result<Self, FileError> {
        Self::all_known(place, table, known, &[])
    }

    /// Refuses unknown fields. `of_file` are the fields of the surrounding file: a field added at
    /// the end of the file belongs to the last policy, and the error says so.
    fn all_known(
        place: Place<'t>,
        table: &'t DeTable<'t>,
        known: Known,
        of_file: Known,
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
