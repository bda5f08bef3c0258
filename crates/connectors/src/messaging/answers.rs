//! Rows of a table that is looked up, where its peer keeps all columns but the keys.

use arrow_array::{RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_select::take::take;
use thalweg_core::lookup::LookupRequest;
use thalweg_core::{Error, Result, TableSchema};

/// Where the columns of answers come from.
pub struct AnswerColumns {
    /// The columns.
    pub schema: TableSchema,
    /// Which of the keys each is, if it is one.
    pub keys: Vec<Option<usize>>,
}

impl AnswerColumns {
    /// Those that are asked for.
    pub fn new(request: &LookupRequest) -> AnswerColumns {
        let schema = request.columns();
        let keys = schema.columns.iter().map(|c| request.keys.iter().position(|k| *k == c.name));
        AnswerColumns { keys: keys.collect(), schema }
    }

    /// Rows of keys: which key each is of, and its columns that are no keys, in order.
    ///
    /// # Errors
    /// If these are of other rows or columns.
    pub fn rows(
        &self,
        keys: &RecordBatch,
        rows: &UInt32Array,
        others: &RecordBatch,
    ) -> Result<RecordBatch> {
        let mut others = others.columns().iter().cloned();
        let missing = || Error::internal("a column was not decoded");
        let columns = self.keys.iter().map(|key| match *key {
            Some(at) => Ok(take(keys.column(at), rows, None)?),
            None => others.next().ok_or_else(missing),
        });
        let columns = columns.collect::<Result<_>>()?;
        let count = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.arrow(), columns, &count)?)
    }
}
