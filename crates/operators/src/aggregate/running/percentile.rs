//! PERCENTILE row by row: the sorted values of each group.
//!
//! What is retracted without being there is ignored.

use arrow_array::ArrayRef;
use thalweg_core::Result;

use super::super::fold::Fold;
use super::super::percentile::{Fractions, Percentile, PercentileBuilder, doubles};
use super::super::{StateColumns, StateRows};
use super::{RunInput, RunningAggregate, is_taken};
use crate::gradual::grow;

/// The values of all groups, sorted.
pub(in crate::aggregate) struct SortedValues {
    fractions: Fractions,
    groups: Vec<Vec<f64>>,
    heap_bytes: usize,
}

impl SortedValues {
    pub fn new(fractions: Fractions) -> Self {
        SortedValues { fractions, groups: Vec::new(), heap_bytes: 0 }
    }
}

impl RunningAggregate for SortedValues {
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let values = doubles(input.column()?)?;
        let taken = input.taken();
        let mut results = PercentileBuilder::new(&self.fractions, input.ids.len() * 2);
        for (place, &id) in input.ids.iter().enumerate() {
            let group = &mut self.groups[id as usize];
            let step = input.step(place);
            if step.begins() {
                group.clear();
            }
            results.push(group);
            if is_taken(taken.as_ref(), place) {
                let value = values.value(place);
                let at = group.partition_point(|other| other.total_cmp(&value).is_lt());
                let before = group.capacity();
                if !step.retracts() {
                    group.insert(at, value);
                } else if group.get(at).is_some_and(|other| other.total_cmp(&value).is_eq()) {
                    group.remove(at);
                }
                self.heap_bytes += (group.capacity() - before) * 8;
            }
            results.push(group);
        }
        results.finish()
    }
    fn reset(&mut self, ids: &[u32]) {
        for &id in ids {
            let group = std::mem::take(&mut self.groups[id as usize]);
            self.heap_bytes -= group.capacity() * 8;
        }
    }
    fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Vec<f64>>() + self.heap_bytes
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        Percentile::new(self.fractions.clone()).capture(&self.groups, ids, columns)
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        Percentile::new(self.fractions.clone()).restore(&mut self.groups, ids, rows)?;
        for &id in ids {
            let group = &mut self.groups[id as usize];
            // They were captured in order; whoever relies on it must not depend on the snapshot.
            group.sort_by(f64::total_cmp);
            self.heap_bytes += group.capacity() * 8;
        }
        Ok(())
    }
}
