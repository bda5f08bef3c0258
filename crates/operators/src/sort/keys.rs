//! Sort keys as bytes that compare as Flink orders values.
//!
//! Rows are compared as bytes only. NULLs stand first for ascending keys and last for descending
//! ones, unless the query says otherwise.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::SortOptions;
use thalweg_core::{Error, Result, TableSchema};

use crate::aggregate::with_one_nan;

/// One term of an ORDER BY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortKey {
    /// Position of the column.
    pub column: usize,
    /// `DESC`
    pub descending: bool,
    /// `NULLS FIRST` or `NULLS LAST`; by default NULL is the smallest value, as in Flink.
    pub nulls_first: Option<bool>,
}

impl SortKey {
    /// `ASC`, NULL first.
    pub fn ascending(column: usize) -> Self {
        SortKey { column, descending: false, nulls_first: None }
    }
    /// `DESC`, NULL last.
    pub fn descending(column: usize) -> Self {
        SortKey { column, descending: true, nulls_first: None }
    }
    fn options(&self) -> SortOptions {
        let nulls_first = self.nulls_first.unwrap_or(!self.descending);
        SortOptions { descending: self.descending, nulls_first }
    }
}

/// Turns the key columns of batches into comparable bytes.
pub(crate) struct KeyEncoder {
    columns: Vec<usize>,
    converter: RowConverter,
}

impl KeyEncoder {
    pub fn new(keys: &[SortKey], schema: &TableSchema) -> Result<Self> {
        let mut fields = Vec::with_capacity(keys.len());
        for key in keys {
            let column = &schema.columns[key.column];
            let field =
                SortField::new_with_options(column.column_type.data_type.arrow(), key.options());
            if !RowConverter::supports_fields(std::slice::from_ref(&field)) {
                return Err(Error::unsupported(format!(
                    "ORDER BY column '{}' of type {}",
                    column.name, column.column_type
                ))
                .hint("order by a column of a simple type"));
            }
            fields.push(field);
        }
        let columns = keys.iter().map(|key| key.column).collect();
        Ok(KeyEncoder { columns, converter: RowConverter::new(fields)? })
    }

    pub fn encode(&self, batch: &RecordBatch) -> Result<Rows> {
        let columns: Vec<ArrayRef> =
            self.columns.iter().map(|&column| with_one_nan(batch.column(column))).collect();
        Ok(self.converter.convert_columns(&columns)?)
    }
}
