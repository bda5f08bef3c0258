//! Aggregates without a typed loop, one row at a time: users' functions, and FIRST_VALUE and
//! LAST_VALUE of nested values that are only inserted. Slow, and right.
//!
//! `rows` numbers the rows, so that FIRST_VALUE and LAST_VALUE see them in order. It is captured
//! with each group and restored as the highest of all, since groups of several partitions may meet.

use arrow_array::types::UInt64Type;
use arrow_array::{Array, ArrayRef};
use thalweg_core::Result;

use super::super::{Accumulator, RowOrder, StateColumns, StateRows, UpdateInput};
use super::{RunInput, RunningAggregate, concatenated};

/// An accumulator that is asked before and after each row.
pub(in crate::aggregate) struct Stepwise {
    states: Box<dyn Accumulator>,
    /// NULLs are values to the function.
    takes_nulls: bool,
    rows: u64,
}

impl Stepwise {
    pub fn new(states: Box<dyn Accumulator>, takes_nulls: bool) -> Self {
        Stepwise { states, takes_nulls, rows: 0 }
    }
}

impl RunningAggregate for Stepwise {
    fn grow(&mut self, groups: usize) {
        self.states.grow(groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let column = input.column()?;
        let taken = if self.takes_nulls { input.filter.cloned() } else { input.taken() };
        let mut pairs = Vec::with_capacity(input.ids.len() * 2);
        for (place, id) in input.ids.iter().enumerate() {
            let id = std::slice::from_ref(id);
            let step = input.step(place);
            if step.begins() {
                self.states.reset(id);
            }
            let before = self.states.evaluate(id)?;
            if !super::is_taken(taken.as_ref(), place) {
                pairs.extend([ArrayRef::clone(&before), before]);
                continue;
            }
            self.rows += 1;
            let order = RowOrder { ordinal: self.rows, ..RowOrder::default() };
            let value = column.slice(place, 1);
            let row = UpdateInput { ids: id, rows: None, argument: Some(&value), order };
            if step.retracts() {
                self.states.retract(&row)?
            } else {
                self.states.update(&row)?
            }
            pairs.extend([before, self.states.evaluate(id)?]);
        }
        concatenated(&pairs, || self.states.evaluate(&[]))
    }
    fn reset(&mut self, ids: &[u32]) {
        self.states.reset(ids);
    }
    fn bytes(&self) -> usize {
        self.states.bytes()
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        self.states.capture(ids, columns)?;
        columns.add_numbers::<UInt64Type>("rows", ids.iter().map(|_| self.rows));
        Ok(())
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        self.states.restore(ids, rows)?;
        // New rows come behind those of every partition that has captured.
        let most = rows.numbers::<UInt64Type>("rows")?.iter().copied().max().unwrap_or(0);
        self.rows = self.rows.max(most);
        Ok(())
    }
}
