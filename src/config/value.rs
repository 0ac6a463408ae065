//! `Value`: values of other formats than TOML, and their conversion.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::fields::as_written;

/// A value of any format.
pub(super) enum Value {
    /// A field that is left out, which generated settings write as null.
    Null,
    /// Everything that TOML has as well.
    Plain(toml::Value),
    List(Vec<Self>),
    Table(Table),
}

/// In the order of the text, so that duplicate names are found.
#[derive(Default)]
pub(super) struct Table(Vec<(String, Value)>);

impl Table {
    /// Converts to TOML. An error names the policy and the field.
    pub(super) fn into_toml(self) -> Result<toml::Table, String> {
        let mut table = toml::Table::new();
        for (name, value) in self.0 {
            if table.contains_key(&name) {
                return Err(format!("{}: is given twice", as_written(&name)));
            }
            if let Some(value) = value.into_toml(&name)? {
                table.insert(name, value);
            }
        }
        Ok(table)
    }

    /// The name of this list item in errors: its field `name`, or else its number.
    fn called(&self, index: usize) -> String {
        let mut fields = self.0.iter();
        let named = fields.find_map(|(field, value)| match value {
            Value::Plain(toml::Value::String(name)) if field == "name" => Some(name),
            _ => None,
        });
        named.map_or_else(|| (index + 1).to_string(), |name| format!("{name:?}"))
    }
}

impl Value {
    /// `None` if it is left out.
    fn into_toml(self, field: &str) -> Result<Option<toml::Value>, String> {
        Ok(Some(match self {
            Self::Null => return Ok(None),
            Self::Plain(value) => value,
            Self::Table(table) => {
                let table = table.into_toml();
                toml::Value::Table(
                    table.map_err(|problem| format!("{}.{problem}", as_written(field)))?,
                )
            }
            Self::List(items) => {
                let items = items.into_iter().enumerate();
                let items = items.map(|(index, item)| item.into_item(field, index));
                toml::Value::Array(items.collect::<Result<_, _>>()?)
            }
        }))
    }

    fn into_item(self, field: &str, index: usize) -> Result<toml::Value, String> {
        if let Self::Table(table) = self {
            let called = table.called(index);
            let table = table.into_toml();
            let table =
                table.map_err(|problem| format!("{} {called}: {problem}", as_written(field)))?;
            return Ok(toml::Value::Table(table));
        }
        // Leaving the item out would hide a mistake.
        let missing = || {
            let field = as_written(field);
            format!("{field}: null cannot be an item of a list, leave it out")
        };
        self.into_toml(field)?.ok_or_else(missing)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

impl<'de> Deserialize<'de> for Table {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(AnyTable)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, a number, true, false, null, a list or a table")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Plain(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Plain(value.into()))
    }

    // A number beyond TOML's range becomes a float, as in other formats, and the field's reader
    // refuses it.
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        let whole = i64::try_from(value).map(toml::Value::Integer);
        Ok(Value::Plain(
            whole.unwrap_or_else(|_| (value as f64).into()),
        ))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        Ok(Value::Plain((value as f64).into()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(Value::Plain((value as f64).into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Plain(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Plain(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Plain(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Value, A::Error> {
        AnyTable.visit_map(fields).map(Value::Table)
    }
}

struct AnyTable;

impl<'de> Visitor<'de> for AnyTable {
    type Value = Table;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table with the fields of a file")
    }

    // How YAML reads an empty text.
    fn visit_unit<E>(self) -> Result<Table, E> {
        Ok(Table::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Table, A::Error> {
        let mut table = Vec::new();
        while let Some(field) = fields.next_entry()? {
            table.push(field);
        }
        Ok(Table(table))
    }
}
