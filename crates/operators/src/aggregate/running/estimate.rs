//! APPROX_COUNT_DISTINCT row by row, of values that are only inserted.
//!
//! Over an input with retractions the function is refused: a sketch cannot forget a value.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array};
use thalweg_core::Result;

use super::super::estimate::{DistinctEstimate, Sketch};
use super::super::fold::Fold;
use super::super::{StateColumns, StateRows};
use super::{RunInput, RunningAggregate, is_taken};
use crate::gradual::grow;
use crate::keys::hash_keys;

/// The sketches of all groups.
#[derive(Default)]
pub(in crate::aggregate) struct Sketches {
    groups: Vec<Sketch>,
    heap_bytes: usize,
}

impl RunningAggregate for Sketches {
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let column = input.column()?;
        let hashes = hash_keys(std::slice::from_ref(column), column.len())?;
        let taken = input.taken();
        let mut pairs = Vec::with_capacity(input.ids.len() * 2);
        for (place, (&id, &hash)) in input.ids.iter().zip(&hashes).enumerate() {
            let group = &mut self.groups[id as usize];
            let before = group.heap_bytes();
            if input.step(place).begins() {
                *group = Sketch::default();
            }
            pairs.push(group.estimate());
            if is_taken(taken.as_ref(), place) {
                group.add(hash);
            }
            pairs.push(group.estimate());
            self.heap_bytes = self.heap_bytes - before + group.heap_bytes();
        }
        Ok(Arc::new(Int64Array::from(pairs)))
    }
    fn reset(&mut self, ids: &[u32]) {
        for &id in ids {
            let group = std::mem::take(&mut self.groups[id as usize]);
            self.heap_bytes -= group.heap_bytes();
        }
    }
    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Sketch>() + self.heap_bytes
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        DistinctEstimate.capture(&self.groups, ids, columns)
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        DistinctEstimate.restore(&mut self.groups, ids, rows)?;
        let captured = ids.iter().map(|&id| self.groups[id as usize].heap_bytes());
        self.heap_bytes += captured.sum::<usize>();
        Ok(())
    }
}
