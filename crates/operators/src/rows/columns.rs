//! Columns picked from others, and batches made of them.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type};
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, make_array};
use arrow_schema::{DataType as Arrow, SchemaRef};
use arrow_select::take::take_arrays;
use thalweg_core::{DataType, Error, Result, TableSchema};

/// The types of those columns of a schema that are keys.
pub(crate) fn types_of(schema: &TableSchema, keys: &[usize]) -> Vec<DataType> {
    keys.iter().map(|&key| schema.columns[key].column_type.data_type.clone()).collect()
}

/// Those columns of a schema that are keys.
pub(crate) fn schema_of(schema: &TableSchema, keys: &[usize]) -> TableSchema {
    TableSchema::new(keys.iter().map(|&key| schema.columns[key].clone()).collect())
}

/// Columns that a specification names must be there.
pub(crate) fn check_columns(
    schema: &TableSchema,
    columns: impl IntoIterator<Item = usize>,
) -> Result<()> {
    match columns.into_iter().find(|&column| column >= schema.len()) {
        Some(column) => Err(Error::internal(format!("there is no input column {column}"))),
        None => Ok(()),
    }
}

/// Those of the columns that are keys.
pub(crate) fn keys_of(columns: &[ArrayRef], keys: &[usize]) -> Vec<ArrayRef> {
    keys.iter().map(|&key| ArrayRef::clone(&columns[key])).collect()
}

/// The same numbers as a column of another type: without a copy where the type is held by such
/// numbers, else as the narrower numbers that it is held by.
pub(crate) fn retyped(column: ArrayRef, to: &Arrow) -> ArrayRef {
    match (column.data_type(), to) {
        (from, to) if from == to => column,
        (Arrow::Int32, Arrow::Int8) => {
            Arc::new(column.as_primitive::<Int32Type>().unary::<_, Int8Type>(|v| v as i8))
        }
        (Arrow::Int32, Arrow::Int16) => {
            Arc::new(column.as_primitive::<Int32Type>().unary::<_, Int16Type>(|v| v as i16))
        }
        (Arrow::Int64, Arrow::Int32) => {
            Arc::new(column.as_primitive::<Int64Type>().unary::<_, Int32Type>(|v| v as i32))
        }
        (Arrow::Int64, Arrow::Int8 | Arrow::Int16) => retyped(retyped(column, &Arrow::Int32), to),
        (Arrow::Float64, Arrow::Float32) => {
            Arc::new(column.as_primitive::<Float64Type>().unary::<_, Float32Type>(|v| v as f32))
        }
        _ => {
            let data = column.to_data().into_builder().data_type(to.clone()).build();
            make_array(data.expect("both types are held by the same numbers"))
        }
    }
}

/// Rows of columns.
pub(crate) fn take_all(columns: &[ArrayRef], rows: &[u32]) -> Result<Vec<ArrayRef>> {
    let is_as_long = columns.first().is_some_and(|column| column.len() == rows.len());
    if is_as_long && rows.iter().zip(0..).all(|(&row, place)| row == place) {
        return Ok(columns.to_vec());
    }
    Ok(take_arrays(columns, &UInt32Array::from(rows.to_vec()), None)?)
}

/// A batch of these columns, with this many rows even if there is no column.
///
/// `SELECT COUNT(*)` reads no column: such batches have a length and nothing else, and
/// `RecordBatch::try_new` would reject them.
pub(crate) fn batch_of(
    schema: &SchemaRef,
    columns: Vec<ArrayRef>,
    rows: usize,
) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)?)
}
