//! Columns picked from others, and batches made of them.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use thalweg_core::Result;

/// Those of the columns that are keys.
pub(crate) fn keys_of(columns: &[ArrayRef], keys: &[usize]) -> Vec<ArrayRef> {
    keys.iter().map(|&key| ArrayRef::clone(&columns[key])).collect()
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
