//! What the build side of a hash join tells of its state: the rows that have come, and whether it has
//! ended. The rows of a key stand in the order in which they came. Where nobody reads the columns of the
//! side, those of the key are told alone.
//!
//! A table that has been published is made and published again before any row is looked up. One that is
//! read again every so often is told as it is now.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{Field, Schema, SchemaRef};
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Column, Error, Restored, Result, TableSchema};

use super::Plan;
use super::build::{BuildPartition, State};
use super::table::Table;
use crate::join::bounded::pieces::keys_of;
use crate::tables::{for_all, is_set, kept_columns, kept_parts, kept_schema, state_batch, tell};

const ROWS: &str = "rows";
const PROGRESS: &str = "progress";
const IS_COMPLETE: &str = "is_complete";

/// What is told of the rows.
enum Told {
    /// Batches as they came.
    Batches(Vec<RecordBatch>),
    /// The table that is looked up.
    Table(Arc<Table>),
}

impl Plan {
    fn is_read(&self) -> bool {
        self.joined.reads(self.spec.build)
    }

    /// The columns that are told.
    fn told_columns(&self) -> TableSchema {
        let schema = self.spec.sides.schema(self.spec.build);
        if self.is_read() {
            return schema.clone();
        }
        let keys = self.keys(self.spec.build).iter();
        TableSchema::new(keys.map(|&key| Column::clone(&schema.columns[key])).collect())
    }

    /// Rows of the build side from those that are told: NULL in what nobody reads.
    fn build_rows(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let told = self.told_columns();
        let told = kept_columns(batch, &kept_schema(&[], &told), told.len())?;
        let schema = self.spec.sides.schema(self.spec.build);
        let keys = self.keys(self.spec.build);
        let column = |(place, of): (usize, &Column)| match keys.iter().position(|&k| k == place) {
            Some(key) => ArrayRef::clone(&told[key]),
            None => new_null_array(&of.column_type.data_type.arrow(), batch.num_rows()),
        };
        let columns = match self.is_read() {
            true => told,
            false => schema.columns.iter().enumerate().map(column).collect(),
        };
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let field = |of: &Column| Field::new(&of.name, of.column_type.data_type.arrow(), true);
        let nullable = Schema::new(schema.columns.iter().map(field).collect::<Vec<_>>());
        Ok(RecordBatch::try_new_with_options(Arc::new(nullable), columns, &options)?)
    }
}

impl Told {
    fn rows(self, plan: &Plan, schema: &SchemaRef) -> Result<Vec<RecordBatch>> {
        let build = plan.spec.build;
        match self {
            Told::Batches(batches) => {
                let told = |batch: &RecordBatch| match plan.is_read() {
                    true => batch.columns().to_vec(),
                    false => keys_of(batch.columns(), plan.keys(build)),
                };
                let parts =
                    batches.iter().map(|batch| kept_parts(&told(batch), batch.num_rows(), schema));
                Ok(parts.collect::<Result<Vec<_>>>()?.concat())
            }
            Told::Table(table) if plan.is_read() => {
                let (columns, rows) = table.columns();
                kept_parts(columns, rows, schema)
            }
            Told::Table(table) => kept_parts(&table.keys()?, table.key_count(), schema),
        }
    }
}

impl BuildPartition {
    /// Tells the rows.
    pub(super) fn tell(&self) -> Result<Captured> {
        let told = match &self.state {
            State::Collecting(rows) => Told::Batches(rows.batches().to_vec()),
            State::Done => Told::Table(self.shared.table()?),
            State::Making => return Err(Error::internal("a table that could not be made")),
        };
        let is_complete = matches!(told, Told::Table(_));
        let is_complete: ArrayRef = Arc::new(BooleanArray::from(vec![is_complete]));
        let schema = kept_schema(&[], &self.plan.told_columns());
        let (plan, of_table) = (Arc::clone(&self.plan), Arc::clone(&schema));
        let make =
            move || Ok(TableRows { rows: told.rows(&plan, &of_table)?, removed: Vec::new() });
        let mut captured = Captured::default();
        captured.add_later(ROWS, schema, Box::new(make));
        let columns = vec![(IS_COMPLETE.to_owned(), is_complete)];
        tell(&mut captured, PROGRESS, state_batch(for_all(1), columns)?);
        Ok(captured)
    }

    /// Takes the rows back.
    pub(super) fn take_back(&mut self, restored: &Restored) -> Result<()> {
        if let State::Collecting(rows) = &mut self.state {
            for batch in restored.table(ROWS) {
                rows.add(&self.plan, self.plan.build_rows(batch)?)?;
            }
        }
        let is_complete = is_set(restored, PROGRESS, IS_COMPLETE)?;
        if is_complete { self.complete() } else { Ok(()) }
    }
}
