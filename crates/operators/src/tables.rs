//! How operators tell what they keep, and take it back: small helpers around tables of state.
//!
//! A table ([`thalweg_core::snapshot`]) is made of columns by name; the first is always the virtual
//! partition. What is read back is looked for by name and type, and what is not there is an error of the
//! snapshot, never a panic.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch, RecordBatchOptions, UInt8Array};
use arrow_schema::Field;
use thalweg_core::snapshot::state_schema;
use thalweg_core::{Captured, Error, Restored, Result};

/// The virtual partition of keys with this hash: the one that [`partition_of`](crate::keys::partition_of)
/// gives to a range.
#[inline]
pub(crate) fn virtual_partition(hash: u64) -> u8 {
    (hash >> 56) as u8
}

/// The first column of a table whose rows belong to keys with these hashes.
pub(crate) fn owners(hashes: impl Iterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt8Array::from_iter_values(hashes.map(virtual_partition)))
}

/// The first column of a table of so many rows that are for all partitions.
pub(crate) fn for_all(rows: usize) -> ArrayRef {
    Arc::new(UInt8Array::new_null(rows))
}

/// Named columns behind their owners, as one batch of a table.
///
/// # Errors
/// If the columns are not of one length.
pub(crate) fn state_batch(
    owners: ArrayRef,
    columns: Vec<(String, ArrayRef)>,
) -> Result<RecordBatch> {
    let fields = columns.iter().map(|(name, c)| Field::new(name, c.data_type().clone(), true));
    let schema = state_schema(fields);
    let options = RecordBatchOptions::new().with_row_count(Some(owners.len()));
    let columns = std::iter::once(owners).chain(columns.into_iter().map(|(_, column)| column));
    Ok(RecordBatch::try_new_with_options(schema, columns.collect(), &options)?)
}

/// Names for columns of a table, in this order, such that none is another's or the beginning of another's
/// up to a dot, and none looks like one of the engine's own, which begin with `$`.
pub(crate) fn unique_names<'a>(wanted: impl Iterator<Item = &'a str>) -> Vec<String> {
    let begins = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let mut names: Vec<String> = Vec::new();
    for wanted in wanted {
        let wanted = if wanted.starts_with('$') { format!("${wanted}") } else { wanted.to_owned() };
        let mut name = wanted.clone();
        let mut number = 1;
        while names.iter().any(|other| begins(other, &name) || begins(&name, other)) {
            number += 1;
            name = format!("{wanted}#{number}");
        }
        names.push(name);
    }
    names
}

/// Tells a table that is one batch.
pub(crate) fn tell(captured: &mut Captured, name: &'static str, batch: RecordBatch) {
    captured.add(name, batch.schema(), vec![batch]);
}

/// The column of a table with this name.
///
/// # Errors
/// If it is not there.
pub(crate) fn column<'a>(batch: &'a RecordBatch, name: &str) -> Result<&'a ArrayRef> {
    batch.column_by_name(name).ok_or_else(|| does_not_fit(format!("there is no column '{name}'")))
}

/// The column of a table with this name and type.
///
/// # Errors
/// If it is not there, or of another type.
pub(crate) fn typed<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a PrimitiveArray<T>> {
    let column = column(batch, name)?;
    let wrong = || does_not_fit(format!("column '{name}' is of type {}", column.data_type()));
    column.as_primitive_opt().ok_or_else(wrong)
}

/// A number that is wanted at each row of a table.
///
/// # Errors
/// As [`typed`], and if there is a NULL.
pub(crate) fn numbers_of<'a, T: ArrowPrimitiveType>(
    batch: &'a RecordBatch,
    name: &str,
) -> Result<&'a [T::Native]> {
    let column = typed::<T>(batch, name)?;
    match column.nulls().map_or(0, |nulls| nulls.null_count()) {
        0 => Ok(column.values()),
        _ => Err(does_not_fit(format!("column '{name}' holds NULL"))),
    }
}

/// A number that a table holds once for each partition that wrote it, or not at all.
///
/// # Errors
/// As [`typed`].
pub(crate) fn numbers<T: ArrowPrimitiveType>(
    restored: &Restored,
    table: &str,
    name: &str,
) -> Result<Vec<T::Native>> {
    let batches = restored.table(table).iter();
    let values = batches.map(|batch| Ok(typed::<T>(batch, name)?.values().to_vec()));
    Ok(values.collect::<Result<Vec<_>>>()?.concat())
}

/// What a snapshot tells is not what the operator has told.
pub(crate) fn does_not_fit(what: String) -> Error {
    Error::data(format!("the state in the snapshot does not fit the operator: {what}"))
        .hint("the snapshot is damaged, or was written by another version")
}
