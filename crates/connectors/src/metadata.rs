//! Metadata columns of messages: which types fit, and their arrays.

use std::sync::Arc;

use arrow_array::{ArrayRef, MapArray, StringViewArray, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::DataType as Arrow;
use thalweg_core::connector::{MetadataDescription, nearest_or_all};
use thalweg_core::{DataType, Error, Result};

/// True if a column of this type can hold metadata whose type is written so.
pub fn fits(wanted: &str, data_type: &DataType) -> bool {
    match (wanted, data_type) {
        ("STRING", data_type) => data_type.is_string(),
        ("BOOLEAN", DataType::Boolean) => true,
        ("INT", DataType::Int | DataType::BigInt) | ("BIGINT", DataType::BigInt) => true,
        ("TIMESTAMP_LTZ(3)", DataType::TimestampLtz(3) | DataType::Timestamp(3)) => true,
        ("MAP<STRING, BYTES>", DataType::Map(key, value)) => {
            key.data_type.is_string()
                && matches!(value.data_type, DataType::Varbinary(_) | DataType::Binary(_))
        }
        ("MAP<STRING, STRING>", DataType::Map(key, value)) => {
            key.data_type.is_string() && value.data_type.is_string()
        }
        _ => false,
    }
}

/// The error of a metadata column of this name, where there are these.
pub fn unknown<'a>(table: &str, key: &str, known: impl Iterator<Item = &'a str> + Clone) -> Error {
    Error::plan(format!("table {table} has no metadata '{key}'")).hint(nearest_or_all(
        key,
        known,
        "there are",
    ))
}

/// Checks that a column of this type can hold metadata.
///
/// # Errors
/// If it can't.
pub fn check(
    table: &str,
    known: &MetadataDescription,
    column: &str,
    data_type: &DataType,
) -> Result<()> {
    match fits(known.data_type, data_type) {
        true => Ok(()),
        false => Err(unfit(table, known, column, data_type)),
    }
}

/// The error of a column whose type cannot hold this metadata.
pub fn unfit(table: &str, known: &MetadataDescription, column: &str, found: &DataType) -> Error {
    let MetadataDescription { key, data_type, .. } = known;
    Error::plan(format!(
        "table {table}: metadata '{key}' is {data_type}, but column {column} is {found}"
    ))
}

/// Maps of names to values, of which `column` makes a column. Of those with one name the last.
///
/// # Errors
/// If the type is no map, or not of these.
pub fn maps<'a, V: 'a>(
    rows: impl Iterator<Item = &'a [(String, V)]>,
    column: impl FnOnce(Vec<&'a V>) -> ArrayRef,
    data_type: &DataType,
) -> Result<ArrayRef> {
    let (mut lengths, mut names, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for pairs in rows {
        let before = names.len();
        for (at, (name, value)) in pairs.iter().enumerate() {
            if pairs[at + 1..].iter().all(|(later, _)| later != name) {
                names.push(name);
                values.push(value);
            }
        }
        lengths.push(names.len() - before);
    }
    let names = Arc::new(StringViewArray::from_iter_values(names));
    let Arrow::Map(entry, _) = data_type.arrow() else {
        return Err(Error::internal("a type of maps is none"));
    };
    let Arrow::Struct(fields) = entry.data_type() else {
        return Err(Error::internal("a map has no entries"));
    };
    let entries = StructArray::try_new(fields.clone(), vec![names, column(values)], None)?;
    let offsets = OffsetBuffer::from_lengths(lengths);
    Ok(Arc::new(MapArray::try_new(entry, offsets, entries, None, false)?))
}
