//! What captures write of the build side of a hash join: the rows that have come, and whether it
//! has ended. `$serial` names a row; the rows of a key have them in the order in which they came.
//! Where nobody reads the columns of the side, those of the key are captured alone.
//!
//! Captures write the rows that have come since the one before, then the table once, since its rows
//! lie otherwise. A table that has been published is made and published again before any row is
//! looked up. One that is read again every so often is captured as it is now, once.

use std::sync::{Arc, Weak};

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array, new_null_array};
use arrow_schema::{DataType as Arrow, Field, Schema, SchemaRef};
use thalweg_core::snapshot::{CapturedTable, TableRows};
use thalweg_core::{Captured, Column, Error, Extent, Restored, Result, TableSchema};

use super::HashJoinPlan;
use super::build::{BuildPartition, State};
use super::table::Table;
use crate::capture::rows::{SERIAL, SERIAL_IDENTITY, by_serial};
use crate::rows::chunk_capture::together;
use crate::rows::columns::{batch_of, keys_of, schema_of};
use crate::tables::{
    KEPT_ROWS_MAX, add_table, for_all, is_set, kept_batch, kept_columns, kept_schema, state_batch,
};

const NUMBERED: &str = "numbered_rows";
const PROGRESS: &str = "progress";
const IS_COMPLETE: &str = "is_complete";

/// What a capture writes of the rows.
enum CapturedBuild {
    /// Batches as they came, and how many rows came before.
    Batches(Vec<RecordBatch>, u64),
    /// The table that is looked up.
    Table(Arc<Table>),
    /// Nothing has changed since the last capture.
    Nothing,
}

/// What the last capture wrote.
#[derive(Default)]
pub(super) enum LastCapture {
    #[default]
    Nothing,
    /// The first batches, by number, and how many rows they have.
    Batches(usize, u64),
    /// This table.
    Table(Weak<Table>),
}

impl HashJoinPlan {
    fn is_read(&self) -> bool {
        self.joined.reads(self.spec.build)
    }

    /// The columns that are captured.
    fn captured_columns(&self) -> TableSchema {
        let schema = self.spec.join.sides.schema(self.spec.build);
        if self.is_read() {
            return schema.clone();
        }
        schema_of(schema, self.spec.join.keys(self.spec.build))
    }

    fn numbered_schema(&self) -> SchemaRef {
        kept_schema(&[(SERIAL, Arrow::UInt64)], &self.captured_columns())
    }

    /// Rows of the table, the first of which has this serial.
    fn numbered(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        first: u64,
    ) -> impl Iterator<Item = Result<RecordBatch>> {
        let schema = self.numbered_schema();
        (0..rows).step_by(KEPT_ROWS_MAX).map(move |from| {
            let count = KEPT_ROWS_MAX.min(rows - from);
            let serials = (first + from as u64..).take(count);
            let own: ArrayRef = Arc::new(UInt64Array::from_iter_values(serials));
            let columns = columns.iter().map(|column| column.slice(from, count)).collect();
            kept_batch(&schema, for_all(count), vec![own], columns)
        })
    }

    /// Rows of the build side from those that are captured: NULL in what nobody reads.
    fn build_rows(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let captured = kept_columns(batch, &self.numbered_schema(), self.captured_columns().len())?;
        let schema = self.spec.join.sides.schema(self.spec.build);
        let keys = self.spec.join.keys(self.spec.build);
        let column = |(place, of): (usize, &Column)| match keys.iter().position(|&k| k == place) {
            Some(key) => ArrayRef::clone(&captured[key]),
            None => new_null_array(&of.column_type.data_type.arrow(), batch.num_rows()),
        };
        let columns = match self.is_read() {
            true => captured,
            false => schema.columns.iter().enumerate().map(column).collect(),
        };
        let field = |of: &Column| Field::new(&of.name, of.column_type.data_type.arrow(), true);
        let nullable = Schema::new(schema.columns.iter().map(field).collect::<Vec<_>>());
        batch_of(&Arc::new(nullable), columns, batch.num_rows())
    }
}

impl CapturedBuild {
    fn rows(self, plan: &HashJoinPlan) -> Result<Vec<RecordBatch>> {
        let (build, schema) = (plan.spec.build, plan.numbered_schema());
        match self {
            CapturedBuild::Nothing => Ok(Vec::new()),
            CapturedBuild::Batches(batches, mut next) => {
                let mut numbered = Vec::new();
                for batch in &batches {
                    let columns = match plan.is_read() {
                        true => batch.columns().to_vec(),
                        false => keys_of(batch.columns(), plan.spec.join.keys(build)),
                    };
                    let rows = plan.numbered(&columns, batch.num_rows(), next);
                    numbered.extend(rows.collect::<Result<Vec<_>>>()?);
                    next += batch.num_rows() as u64;
                }
                together(&schema, numbered.into_iter().map(Ok))
            }
            CapturedBuild::Table(table) if plan.is_read() => {
                let (columns, rows) = table.columns();
                plan.numbered(columns, rows, 0).collect()
            }
            CapturedBuild::Table(table) => {
                plan.numbered(&table.keys()?, table.key_count(), 0).collect()
            }
        }
    }
}

impl BuildPartition {
    /// Captures the rows.
    pub(super) fn capture_state(&mut self, extent: Extent) -> Result<Captured> {
        let last = match extent {
            Extent::Full => LastCapture::Nothing,
            Extent::Incremental => std::mem::take(&mut self.last_capture),
        };
        let (build, extent) = self.rows_since(last)?;
        let is_complete: ArrayRef = Arc::new(BooleanArray::from(vec![self.is_complete()]));
        let plan = Arc::clone(&self.plan);
        let make = move || Ok(TableRows { rows: build.rows(&plan)?, removed: Vec::new() });
        let mut captured = Captured::default();
        captured.tables.push(CapturedTable {
            name: NUMBERED,
            schema: self.plan.numbered_schema(),
            extent,
            identity_columns: SERIAL_IDENTITY,
            kept_from: None,
            rows: Box::new(make),
        });
        let columns = vec![(IS_COMPLETE.to_owned(), is_complete)];
        add_table(&mut captured, PROGRESS, state_batch(for_all(1), columns)?);
        Ok(captured)
    }

    /// What to capture after this last capture, and whether it is incremental.
    fn rows_since(&mut self, last: LastCapture) -> Result<(CapturedBuild, Extent)> {
        match &self.state {
            State::Collecting(rows) => {
                let (batches, count) = (rows.batches(), rows.count());
                self.last_capture = LastCapture::Batches(batches.len(), count);
                Ok(match last {
                    LastCapture::Batches(count, first) => (
                        CapturedBuild::Batches(batches[count..].to_vec(), first),
                        Extent::Incremental,
                    ),
                    _ => (CapturedBuild::Batches(batches.to_vec(), 0), Extent::Full),
                })
            }
            State::Done => {
                let table = self.shared.table()?;
                self.last_capture = LastCapture::Table(Arc::downgrade(&table));
                Ok(match last {
                    LastCapture::Table(last) if last.ptr_eq(&Arc::downgrade(&table)) => {
                        (CapturedBuild::Nothing, Extent::Incremental)
                    }
                    _ => (CapturedBuild::Table(table), Extent::Full),
                })
            }
            State::Making => Err(Error::internal("a table that could not be made")),
        }
    }

    /// Takes the rows back.
    pub(super) fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        if let State::Collecting(rows) = &mut self.state {
            for batch in by_serial(restored.table(NUMBERED))? {
                rows.add(&self.plan, self.plan.build_rows(&batch)?)?;
            }
        }
        let is_complete = is_set(restored, PROGRESS, IS_COMPLETE)?;
        if is_complete { self.complete() } else { Ok(()) }
    }
}
