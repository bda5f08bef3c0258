//! Constant rows as a source: VALUES, and SELECT without FROM.
//!
//! The position is the number of rows emitted, so a job that resumes continues behind them.
//! Expressions are evaluated once per row when it is emitted, so `SELECT NOW()` reads the clock
//! then.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch};
use arrow_schema::Schema;
use thalweg_core::connector::Waker;
use thalweg_core::counter::{row_position, rows_before};
use thalweg_core::shim::SharedClock;
use thalweg_core::{Result, Source, SourceBatch, SourcePoll, TableSchema};
use thalweg_expr::Expr;

/// A source of constant rows.
pub(super) struct ValuesSource {
    rows: Vec<Vec<Expr>>,
    schema: TableSchema,
    clock: SharedClock,
    next: usize,
}

impl ValuesSource {
    /// A source of these rows. A row without columns becomes one with a column that nobody reads.
    pub(super) fn new(rows: Vec<Vec<Expr>>, schema: TableSchema, clock: SharedClock) -> Self {
        ValuesSource { rows, schema, clock, next: 0 }
    }

    fn batch(&self, rows: &[Vec<Expr>]) -> Result<RecordBatch> {
        if self.schema.is_empty() {
            return unit_rows(rows.len());
        }
        let wall_ms = self.clock.wall_ms();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.schema.len());
        for column in 0..self.schema.len() {
            let values = rows.iter().map(|row| row[column].evaluate_constant(wall_ms));
            let values = values.collect::<Result<Vec<ArrayRef>>>()?;
            let values: Vec<&dyn arrow_array::Array> = values.iter().map(AsRef::as_ref).collect();
            columns.push(arrow_select::concat::concat(&values)?);
        }
        Ok(RecordBatch::try_new(self.schema.arrow(), columns)?)
    }
}

/// Rows with one column that nobody reads.
fn unit_rows(rows: usize) -> Result<RecordBatch> {
    let field = arrow_schema::Field::new("unit", arrow_schema::DataType::Boolean, true);
    let column: ArrayRef = Arc::new(BooleanArray::from(vec![true; rows]));
    Ok(RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![column])?)
}

impl Source for ValuesSource {
    fn name(&self) -> String {
        "values".to_string()
    }
    fn start(&mut self, _waker: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let end = self.rows.len().min(self.next.saturating_add(rows_max.max(1)));
        if self.next >= end {
            return Ok(SourcePoll::End);
        }
        let batch = self.batch(&self.rows[self.next..end])?;
        self.next = end;
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }
    fn is_bounded(&self) -> bool {
        true
    }
    fn position(&self) -> Option<String> {
        Some(row_position(self.next as u64))
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        self.next = usize::try_from(rows_before(position)?).unwrap_or(usize::MAX);
        Ok(())
    }
}
