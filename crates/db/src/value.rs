//! Values and rows, between Rust types and both drivers.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use tokio_postgres::Statement as Prepared;

use crate::Error;
use kernel::clock::{Day, Month, Time};
use kernel::ids::{CallerId, Id, IdText, Kind};
use kernel::money::{Nano, Pico, Ppm};

/// A value that both databases can hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    Null,
    /// BIGINT; also booleans (0 and 1), times (unix milliseconds), days (since 1970-01-01), months (since
    /// 1970-01) and amounts (nano).
    Int(i64),
    /// TEXT.
    Text(String),
    /// BLOB on SQLite, BYTEA on PostgreSQL.
    Blob(Vec<u8>),
    /// TEXT, shared and bound without a copy. For parameters only, like the variants below: results have
    /// [`Value::Text`] and [`Value::Blob`].
    Shared(Arc<str>),
    /// TEXT, a literal of the program.
    Word(&'static str),
    /// TEXT of an id, without allocation.
    Id(IdText),
    /// BLOB of a hash, without allocation.
    Hash([u8; 32]),
}

impl Value {
    /// Returns the UTF-8 bytes of a TEXT value.
    pub(super) fn as_text(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text.as_bytes()),
            Self::Shared(text) => Some(text.as_bytes()),
            Self::Word(text) => Some(text.as_bytes()),
            Self::Id(text) => Some(text.as_bytes()),
            Self::Null | Self::Int(_) | Self::Blob(_) | Self::Hash(_) => None,
        }
    }

    /// Returns the bytes of a BLOB value.
    pub(super) fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Blob(bytes) => Some(bytes),
            Self::Hash(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Implements `From` for [`Value`]: one type and expression per line.
macro_rules! into_value {
    ($($from:ty: $value:ident => $into:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($value: $from) -> Self {
                $into
            }
        }
    )*};
}

into_value! {
    i64: v => Self::Int(v);
    i32: v => Self::Int(i64::from(v));
    u32: v => Self::Int(i64::from(v));
    bool: v => Self::Int(i64::from(v));
    Time: v => Self::Int(v.unix_ms());
    Day: v => Self::Int(v.unix_days());
    Month: v => Self::Int(v.unix_months());
    String: v => Self::Text(v);
    &String: v => Self::Text(v.clone());
    &str: v => Self::Text(v.to_owned());
    Vec<u8>: v => Self::Blob(v);
    &[u8]: v => Self::Blob(v.to_vec());
    [u8; 32]: v => Self::Hash(v);
    &[u8; 32]: v => Self::Hash(*v);
    Arc<str>: v => Self::Shared(v);
    &Arc<str>: v => Self::Shared(Arc::clone(v));
}

impl<K: Kind> From<Id<K>> for Value {
    fn from(id: Id<K>) -> Self {
        Self::Id(id.short_text())
    }
}

impl From<CallerId> for Value {
    fn from(id: CallerId) -> Self {
        Self::Id(id.short_text())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A type that a column can be read into.
pub trait FromValue: Sized {
    /// `true` if the column's values are words defined by the program. Errors contain an unknown word, but no
    /// other value, because it may be a secret.
    const IS_WORD: bool = false;
    /// Converts the value; `None` if it has a different type or is out of range.
    fn from_value(value: &Value) -> Option<Self>;
}

/// Implements [`FromValue`]: one type, pattern and expression of type `Option` per line.
macro_rules! from_value {
    ($($into:ty: $pattern:pat => $value:expr;)*) => {$(
        impl FromValue for $into {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $pattern => $value,
                    _ => None,
                }
            }
        }
    )*};
}

from_value! {
    i64: Value::Int(v) => Some(*v);
    u32: Value::Int(v) => Self::try_from(*v).ok();
    u64: Value::Int(v) => Self::try_from(*v).ok();
    bool: Value::Int(v @ (0 | 1)) => Some(*v == 1);
    Time: Value::Int(v) => Some(Self::from_unix_ms(*v));
    Day: Value::Int(v) => Some(Self::from_unix_days(*v));
    Month: Value::Int(v) => Some(Self::from_unix_months(*v));
    Nano: Value::Int(v) => Some(Self::from_units(i128::from(*v)));
    Pico: Value::Int(v) => Some(Self::from_units(i128::from(*v)));
    Ppm: Value::Int(v) => Some(Self::from_units(i128::from(*v)));
    String: Value::Text(v) => Some(v.clone());
    Vec<u8>: Value::Blob(v) => Some(v.clone());
    [u8; 32]: Value::Blob(v) => Self::try_from(v.as_slice()).ok();
}

impl<K: Kind> FromValue for Id<K> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::parse(text),
            _ => None,
        }
    }
}

impl FromValue for CallerId {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Text(text) => Self::parse(text),
            _ => None,
        }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    const IS_WORD: bool = T::IS_WORD;
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Null => Some(None),
            value => T::from_value(value).map(Some),
        }
    }
}

/// Implements `as_str`, [`FromValue`] and `Into<Value>` for an enum that derives [`strum::EnumString`] and
/// [`strum::IntoStaticStr`]: a column contains its word.
///
/// [`strum::EnumString`]: https://docs.rs/strum/latest/strum/derive.EnumString.html
/// [`strum::IntoStaticStr`]: https://docs.rs/strum/latest/strum/derive.IntoStaticStr.html
#[macro_export]
macro_rules! words {
    ($type:ident) => {
        impl $type {
            /// Returns the word in the database.
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        }

        impl $crate::FromValue for $type {
            const IS_WORD: bool = true;
            fn from_value(value: &$crate::Value) -> Option<Self> {
                match value {
                    $crate::Value::Text(word) => word.parse().ok(),
                    _ => None,
                }
            }
        }

        impl From<$type> for $crate::Value {
            fn from(value: $type) -> Self {
                Self::Word(value.as_str())
            }
        }
    };
}

/// A row of a result.
#[derive(Clone)]
pub struct Row {
    /// Shared by all rows of the result.
    columns: Columns,
    values: Vec<Value>,
    /// The index after the last column that was read: most columns are read in order.
    next: Cell<usize>,
}

/// The names of a result's columns.
#[derive(Clone)]
pub(super) enum Columns {
    Named(Arc<[String]>),
    /// The names in the prepared statement.
    Prepared(Prepared),
}

impl Columns {
    /// Returns the index of a column, given a guess.
    fn position(&self, name: &str, guess: usize) -> Option<usize> {
        match self {
            Self::Named(names) => match names.get(guess) {
                Some(column) if column == name => Some(guess),
                _ => names.iter().position(|column| column == name),
            },
            Self::Prepared(statement) => match statement.columns().get(guess) {
                Some(column) if column.name() == name => Some(guess),
                _ => statement.columns().iter().position(|column| column.name() == name),
            },
        }
    }
}

impl fmt::Debug for Columns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(names) => f.debug_list().entries(names.iter()).finish(),
            Self::Prepared(statement) => {
                f.debug_list().entries(statement.columns().iter().map(|column| column.name())).finish()
            }
        }
    }
}

/// Shows column names only, because values may be secrets.
impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("columns", &self.columns).finish_non_exhaustive()
    }
}

impl Row {
    pub(super) fn new(columns: Columns, values: Vec<Value>) -> Self {
        Self { columns, values, next: Cell::new(0) }
    }

    /// Returns the value of a column.
    ///
    /// # Errors
    /// [`Error::Internal`] if the column is missing or has a different type.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T, Error> {
        let position = self.columns.position(column, self.next.get());
        let value = position.and_then(|position| {
            self.next.set(position + 1);
            self.values.get(position)
        });
        let value = value.ok_or_else(|| Error::Internal(format!("the result has no column {column}")))?;
        T::from_value(value).ok_or_else(|| unreadable::<T>(column, value))
    }

    /// Returns the value at an index.
    fn at<T: FromValue>(&self, position: usize) -> Result<T, Error> {
        let value = self.values.get(position);
        let value = value.ok_or_else(|| Error::Internal(format!("the result has no column {position}")))?;
        T::from_value(value).ok_or_else(|| unreadable::<T>(&position.to_string(), value))
    }
}

fn unreadable<T: FromValue>(column: &str, value: &Value) -> Error {
    Error::Internal(match value {
        Value::Text(word) if T::IS_WORD => format!("column {column} is {word:?}"),
        _ => format!("column {column} isn't readable as {}", std::any::type_name::<T>()),
    })
}

/// A type that a row can be read into.
pub trait FromRow: Sized {
    /// Reads the row.
    fn from_row(row: &Row) -> Result<Self, Error>;
}

/// Implements [`FromRow`] for a struct. Each field is read from the column with its name, from the column
/// whose name is given as a literal, or by a function that takes the row.
///
/// ```
/// struct Owner {
///     user_id: i64,
/// }
/// db::row!(Owner { user_id });
///
/// struct Wallet {
///     owner: Owner,
///     currency: String,
///     posted: i64,
/// }
/// db::row!(Wallet { owner: db::FromRow::from_row, currency, posted: "posted_nano" });
/// ```
#[macro_export]
macro_rules! row {
    ($type:ident { $($field:ident $(: $column:literal)? $(: $read:path)?),+ $(,)? }) => {
        impl $crate::FromRow for $type {
            fn from_row(row: &$crate::Row) -> Result<Self, $crate::Error> {
                Ok(Self { $($field: $crate::row!(@ row $field $(: $column)? $(: $read)?)),+ })
            }
        }
    };
    (@ $row:ident $field:ident) => { $row.get(stringify!($field))? };
    (@ $row:ident $field:ident : $column:literal) => { $row.get($column)? };
    (@ $row:ident $field:ident : $read:path) => { $read($row)? };
}

/// Implements [`FromRow`] for tuples, by the order of the columns.
macro_rules! from_row_tuple {
    ($($type:ident $position:literal),+) => {
        impl<$($type: FromValue),+> FromRow for ($($type,)+) {
            fn from_row(row: &Row) -> Result<Self, Error> {
                Ok(($(row.at::<$type>($position)?,)+))
            }
        }
    };
}

from_row_tuple!(A 0);
from_row_tuple!(A 0, B 1);
from_row_tuple!(A 0, B 1, C 2);
from_row_tuple!(A 0, B 1, C 2, D 3);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_other_types_and_ranges_are_refused() {
        assert_eq!(u32::from_value(&Value::Int(i64::from(u32::MAX))), Some(u32::MAX));
        assert_eq!(u32::from_value(&Value::Int(-1)), None);
        assert_eq!(u64::from_value(&Value::Int(-1)), None);
        assert_eq!(bool::from_value(&Value::Int(2)), None);
        assert_eq!(String::from_value(&Value::Null), None);
        assert_eq!(<Option<String>>::from_value(&Value::Null), Some(None));
        assert_eq!(<Option<String>>::from_value(&Value::Int(1)), None);
        assert_eq!(<[u8; 32]>::from_value(&Value::Blob(vec![0; 31])), None);
    }

    #[test]
    fn error_names_the_column() {
        let row = Row::new(Columns::Named(Arc::from(["a".to_owned()])), vec![Value::Int(1)]);
        assert_eq!(row.get::<i64>("a"), Ok(1));
        assert!(row.get::<i64>("b").unwrap_err().to_string().contains('b'));
        assert!(row.get::<String>("a").unwrap_err().to_string().contains("String"));
        assert_eq!(<(i64,)>::from_row(&row), Ok((1,)));
        assert!(<(i64, i64)>::from_row(&row).is_err());
    }

    #[test]
    fn unknown_words_are_named() {
        #[derive(Clone, Copy, PartialEq, Debug, strum::EnumString, strum::IntoStaticStr)]
        #[strum(serialize_all = "snake_case")]
        enum Pace {
            VerySlow,
        }
        crate::words!(Pace);
        let row = |value| Row::new(Columns::Named(Arc::from(["pace".to_owned()])), vec![value]);
        assert_eq!(Value::from(Pace::VerySlow), Value::Word("very_slow"));
        assert_eq!(row(Value::Text("very_slow".into())).get("pace"), Ok(Pace::VerySlow));
        assert_eq!(row(Value::Null).get("pace"), Ok(None::<Pace>));
        let unknown = row(Value::Text("fast".into()));
        let message = "column pace is \"fast\"";
        assert!(unknown.get::<Pace>("pace").unwrap_err().to_string().contains(message));
        assert!(unknown.get::<Option<Pace>>("pace").unwrap_err().to_string().contains(message));
        assert!(!unknown.get::<i64>("pace").unwrap_err().to_string().contains("fast"));
    }

    #[test]
    fn fields_are_read_from_columns_and_by_functions() {
        #[derive(PartialEq, Debug)]
        struct Inner {
            a: i64,
        }
        #[derive(PartialEq, Debug)]
        struct Outer {
            inner: Inner,
            b: Option<String>,
            named: u32,
            twice: i64,
        }
        fn twice(row: &Row) -> Result<i64, Error> {
            Ok(2 * row.get::<i64>("a")?)
        }
        crate::row!(Inner { a });
        crate::row!(Outer { inner: Inner::from_row, b, named: "c", twice: twice });
        let columns = |names: [&str; 3]| Columns::Named(Arc::from(names.map(str::to_owned)));
        let values = vec![Value::Int(1), Value::Null, Value::Int(3)];
        let row = Row::new(columns(["a", "b", "c"]), values.clone());
        assert_eq!(Outer::from_row(&row), Ok(Outer { inner: Inner { a: 1 }, b: None, named: 3, twice: 2 }));
        let row = Row::new(columns(["a", "b", "named"]), values);
        assert!(Outer::from_row(&row).unwrap_err().to_string().contains("no column c"));
    }
}
