//! The metadata columns of changes.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, StringViewArray, TimestampMicrosecondArray, TimestampMillisecondArray,
    UInt64Array, new_null_array,
};
use thalweg_core::connector::nearest_or_all;
use thalweg_core::text::{parse_timestamp, parse_timestamp_iso};
use thalweg_core::{Column, DataType, Error, Result};

use super::dialect::{ChangeOptions, Dialect};
use super::rows::{Images, Rows};

/// Where the values of a metadata column come from.
pub struct Source {
    /// The key of the object.
    pub key: &'static str,
    /// True if it stands next to the payload.
    pub is_outside: bool,
    form: Form,
    declared: DataType,
}

/// What stands under the key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    TextList,
    TextMap,
    IntMap,
    /// Milliseconds since 1970.
    Millis,
    /// A date and time as text.
    Time,
    /// An entry of the map, as text or as milliseconds.
    TextOf(&'static str),
    MillisOf(&'static str),
}

impl Source {
    /// The source of a metadata column.
    ///
    /// # Errors
    /// If there is no such key, or its values are of another type than the column.
    pub fn find(options: &ChangeOptions, key: &str, column: &Column) -> Result<Source> {
        use Dialect::{Canal, Debezium, Maxwell, Ogg};
        let dialect = options.dialect;
        let (found, form) = match (dialect, key) {
            (Debezium, "schema") => ("schema", Form::Text),
            (Debezium, "ingestion-timestamp") => ("ts_ms", Form::Millis),
            (Debezium, "source.timestamp") => ("source", Form::MillisOf("ts_ms")),
            (Debezium, "source.database") => ("source", Form::TextOf("db")),
            (Debezium, "source.schema") => ("source", Form::TextOf("schema")),
            (Debezium, "source.table") => ("source", Form::TextOf("table")),
            (Debezium, "source.properties") => ("source", Form::TextMap),
            (Maxwell | Canal, "database") => ("database", Form::Text),
            (Maxwell | Canal | Ogg, "table") => ("table", Form::Text),
            (Maxwell, "primary-key-columns") => ("primary_key_columns", Form::TextList),
            (Maxwell | Canal, "ingestion-timestamp") => ("ts", Form::Millis),
            (Canal, "sql-type") => ("sqlType", Form::IntMap),
            (Canal, "pk-names") => ("pkNames", Form::TextList),
            (Canal, "event-timestamp") => ("es", Form::Millis),
            (Ogg, "primary-keys") => ("primary_keys", Form::TextList),
            (Ogg, "ingestion-timestamp") => ("current_ts", Form::Time),
            (Ogg, "event-timestamp") => ("op_ts", Form::Time),
            _ => return Err(unknown(dialect, key)),
        };
        let declared = column.column_type.data_type.clone();
        let fits = match form {
            Form::Text | Form::TextOf(_) => declared.is_string(),
            Form::Millis | Form::MillisOf(_) => matches!(declared, DataType::TimestampLtz(0..=3)),
            Form::Time => matches!(declared, DataType::TimestampLtz(4..=6)),
            Form::TextList | Form::TextMap | Form::IntMap => {
                declared.arrow() == parts(form).arrow()
            }
        };
        if !fits {
            let description = dialect.description();
            let known = description.metadata.iter().find(|known| known.key == key);
            return Err(bad_metadata(key, column, known.map_or("", |known| known.data_type)));
        }
        Ok(Source { key: found, is_outside: found == "schema", form, declared })
    }

    /// The type as which the key's value is read.
    pub fn read_as(&self) -> DataType {
        match self.form {
            Form::Text | Form::Time => DataType::STRING,
            Form::Millis => DataType::BigInt,
            Form::TextOf(_) | Form::MillisOf(_) => parts(Form::TextMap),
            form => parts(form),
        }
    }

    /// The column: of each row, what its message says.
    pub fn column(&self, images: &Images, rows: &Rows) -> Result<ArrayRef> {
        let messages: Vec<u64> = rows.rows.iter().map(|row| row.message as u64).collect();
        let Some(values) = images.part(self.key) else {
            return Ok(new_null_array(&self.declared.arrow(), messages.len()));
        };
        let values: ArrayRef = match self.form {
            Form::Text | Form::TextList | Form::TextMap | Form::IntMap => values.clone(),
            Form::Millis => millis(values.as_primitive::<Int64Type>().iter()),
            Form::Time => {
                let read = |text: &str| {
                    let text = text.strip_suffix('Z').unwrap_or(text);
                    parse_timestamp(text, 6).or_else(|| parse_timestamp_iso(text, 6))
                };
                let times = values.as_string_view().iter().map(|text| read(text?));
                let times: TimestampMicrosecondArray = times.collect();
                Arc::new(times.with_timezone("UTC"))
            }
            Form::TextOf(entry) => Arc::new(entries(values, entry).collect::<StringViewArray>()),
            Form::MillisOf(entry) => {
                millis(entries(values, entry).map(|text| text?.parse::<i64>().ok()))
            }
        };
        Ok(arrow_select::take::take(values.as_ref(), &UInt64Array::from(messages), None)?)
    }
}

fn parts(form: Form) -> DataType {
    let text = || Box::new(DataType::STRING.nullable());
    let key = || Box::new(DataType::STRING.not_null());
    match form {
        Form::TextList => DataType::Array(text()),
        Form::IntMap => DataType::Map(key(), Box::new(DataType::Int.nullable())),
        _ => DataType::Map(key(), text()),
    }
}

fn millis(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<TimestampMillisecondArray>().with_timezone("UTC"))
}

/// The value of this key in each map.
fn entries<'a>(maps: &'a ArrayRef, key: &str) -> impl Iterator<Item = Option<&'a str>> {
    let maps = maps.as_map();
    let (keys, values) = (maps.keys().as_string_view(), maps.values().as_string_view());
    (0..maps.len()).map(move |row| {
        let mut entries = maps.offsets()[row] as usize..maps.offsets()[row + 1] as usize;
        let place = entries.find(|&entry| keys.value(entry) == key)?;
        (!maps.is_null(row) && !values.is_null(place)).then(|| values.value(place))
    })
}

fn unknown(dialect: Dialect, key: &str) -> Error {
    let known = dialect.description().metadata.iter().map(|metadata| metadata.key);
    Error::plan(format!("format '{}' has no metadata '{key}'", dialect.name()))
        .hint(nearest_or_all(key, known, "there are"))
}

/// The error of a metadata column.
fn bad_metadata(key: &str, column: &Column, expected: &str) -> Error {
    Error::plan(format!(
        "metadata '{key}' is {expected}, but column {} is {}",
        column.name, column.column_type.data_type
    ))
}
