//! LEAD: rows wait for the rows of their key that come behind them.
//!
//! A row that has been fired is held back with all its other columns until as many rows of its key
//! have been fired as the farthest LEAD asks for; at the end of the input what is held leaves with
//! defaults. Rows of a key leave in their order, at the time of the row that they waited for.
//!
//! What is held is never forgotten: `state_ttl_ms` has no effect with LEAD.
//!
//! Why the operator then passes no watermark on: a row that is held back has an old time and may
//! leave long after the watermark that fired it.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;
use std::sync::Arc;
use thalweg_core::{Column, Result, TableSchema};

use super::neighbor::{check_default, or_default};
use super::spec::{OverFunction, OverSpec};
use super::trail::Trail;
use crate::aggregate::{StateColumns, StateRows};
use crate::rows::chunks::RowRef;

/// One LEAD.
struct Lead {
    column: usize,
    offset: u64,
    default: Option<usize>,
    /// For each row that leaves the row that it asks for.
    rows: Vec<RowRef>,
}

/// Rows that are held back.
pub(super) struct Held {
    schema: SchemaRef,
    width: usize,
    /// For each call its LEAD, if it is one.
    calls: Vec<Option<Lead>>,
    farthest: u64,
    trail: Trail,
    leaving: Vec<RowRef>,
}

impl Held {
    /// What holds rows back, if a call does.
    pub fn new(spec: &OverSpec, schema: SchemaRef) -> Result<Option<Self>> {
        let mut kept: Vec<Column> = spec.input.columns.clone();
        let mut calls = Vec::with_capacity(spec.calls.len());
        for call in &spec.calls {
            let OverFunction::Lead { column, offset, default } = call.function else {
                kept.push(Column::new(&call.name, call.result.clone()));
                calls.push(None);
                continue;
            };
            check_default(spec, column, default)?;
            calls.push(Some(Lead { column, offset, default, rows: Vec::new() }));
        }
        let Some(farthest) = calls.iter().flatten().map(|lead| lead.offset).max() else {
            return Ok(None);
        };
        let trail = Trail::new(TableSchema::new(kept));
        let width = spec.input.len();
        Ok(Some(Held { schema, width, calls, farthest, trail, leaving: Vec::new() }))
    }

    pub fn grow(&mut self, groups: usize) {
        self.trail.grow(groups);
    }

    /// Takes rows that were fired, with all other results; what leaves, and when.
    pub fn take(
        &mut self,
        columns: Vec<ArrayRef>,
        ids: &[u32],
        times: &[i64],
    ) -> Result<(RecordBatch, Vec<i64>)> {
        let chunk = self.trail.add(columns, times);
        let mut leave_at = Vec::with_capacity(ids.len());
        for (row, (&id, &time)) in ids.iter().zip(times).enumerate() {
            self.trail.push(id, RowRef { chunk, row: row as u32 }, time);
            if self.trail.count(id) > self.farthest {
                self.pop(id);
                leave_at.push(time);
            }
        }
        Ok((self.leave()?, leave_at))
    }

    /// Everything that these keys still hold leaves: no row comes any more.
    pub fn finish(&mut self, ids: &[u32]) -> Result<(RecordBatch, Vec<i64>)> {
        for &id in ids {
            while self.trail.count(id) > 0 {
                self.pop(id);
            }
        }
        let leave_at = vec![i64::MAX; self.leaving.len()];
        Ok((self.leave()?, leave_at))
    }

    /// The keys that hold rows.
    pub fn keys(&self) -> Vec<u32> {
        self.trail.keys()
    }

    /// The oldest row of a key leaves.
    fn pop(&mut self, id: u32) {
        let (first, count) = (self.trail.first(id), self.trail.count(id));
        for lead in self.calls.iter_mut().flatten() {
            let mut row = first;
            if lead.offset >= count {
                row = RowRef::NONE;
            } else {
                (0..lead.offset).for_each(|_| row = self.trail.next(row));
            }
            lead.rows.push(row);
        }
        self.leaving.push(self.trail.pop(id));
    }

    fn leave(&mut self) -> Result<RecordBatch> {
        let held = self.trail.gather(&self.leaving)?;
        let (input, mut others) = (&held[..self.width], held[self.width..].iter());
        let mut columns = input.to_vec();
        for call in &mut self.calls {
            let Some(lead) = call else {
                columns.extend(others.next().cloned());
                continue;
            };
            let values = self.trail.gather_column(&lead.rows, lead.column)?;
            let default = lead.default.map(|column| &input[column]);
            columns.push(or_default(values, &lead.rows, default)?);
            lead.rows.clear();
        }
        self.leaving.clear();
        self.trail.settle()?;
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    pub fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        self.trail.capture(ids, columns)
    }

    pub fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        self.trail.restore(ids, rows, self.farthest)
    }

    pub fn bytes(&self) -> usize {
        self.trail.bytes()
    }
}
