//! LAG: the value of the row of the same key that came this many rows before.
//!
//! A key keeps as many rows as the offset, with the one column that is asked for.
//!
//! The trail of a key has at most `offset` rows. Once it has that many, the oldest is what the next
//! row asks for, and leaves as the next row enters.

use arrow_array::{ArrayRef, BooleanArray};
use arrow_select::zip::zip;
use thalweg_core::{Error, Result, TableSchema};

use super::spec::OverSpec;
use super::trail::Trail;
use crate::aggregate::{StateColumns, StateRows};
use crate::rows::chunks::RowRef;
use crate::rows::event_time::DueRows;

/// One LAG.
pub(super) struct Lag {
    column: usize,
    offset: u64,
    default: Option<usize>,
    trail: Trail,
}

impl Lag {
    pub fn new(
        spec: &OverSpec,
        column: usize,
        offset: u64,
        default: Option<usize>,
    ) -> Result<Self> {
        check_default(spec, column, default)?;
        let trail = Trail::new(TableSchema::new(vec![spec.input.columns[column].clone()]));
        Ok(Lag { column, offset, default, trail })
    }

    pub fn grow(&mut self, groups: usize) {
        self.trail.grow(groups);
    }

    pub fn run(&mut self, fired: &DueRows) -> Result<ArrayRef> {
        let own = ArrayRef::clone(&fired.columns[self.column]);
        if self.offset == 0 {
            return Ok(own);
        }
        let chunk = self.trail.add(vec![own], &fired.times);
        let mut before = Vec::with_capacity(fired.rows());
        for (row, (&id, &time)) in fired.ids.iter().zip(&fired.times).enumerate() {
            let is_full = self.trail.count(id) == self.offset;
            before.push(if is_full { self.trail.pop(id) } else { RowRef::NONE });
            self.trail.push(id, RowRef { chunk, row: row as u32 }, time);
        }
        let values = self.trail.gather(&before)?.swap_remove(0);
        self.trail.settle()?;
        or_default(values, &before, self.default.map(|column| &fired.columns[column]))
    }

    pub fn reset(&mut self, ids: &[u32]) -> Result<()> {
        ids.iter().for_each(|&id| self.trail.clear(id));
        self.trail.settle()
    }

    pub fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        self.trail.capture(ids, columns)
    }

    pub fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        self.trail.restore(ids, rows, self.offset)
    }

    pub fn bytes(&self) -> usize {
        self.trail.bytes()
    }
}

/// An error if what stands in for a value is of another type.
pub(super) fn check_default(spec: &OverSpec, column: usize, default: Option<usize>) -> Result<()> {
    match default {
        Some(other) if spec.data_type(other).arrow() != spec.data_type(column).arrow() => {
            Err(Error::internal("the default of LAG or LEAD is of another type than its values"))
        }
        _ => Ok(()),
    }
}

/// The values, and the default where there was no row.
pub(super) fn or_default(
    values: ArrayRef,
    rows: &[RowRef],
    default: Option<&ArrayRef>,
) -> Result<ArrayRef> {
    match default {
        Some(default) if !rows.iter().all(|row| row.is_some()) => {
            let is_row: BooleanArray = rows.iter().map(|row| Some(row.is_some())).collect();
            Ok(zip(&is_row, &values, default)?)
        }
        _ => Ok(values),
    }
}
