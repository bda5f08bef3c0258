//! ARRAY_AGG row by row: the values of each group by arrival, NULLs among them.
//!
//! Values are interned once per column of states, and a group is a list of their numbers. A result
//! is as long as its group, so to look a value up that is retracted costs no more than to show
//! what is left. Of several equal values the oldest is given back; one that is not there is
//! ignored.

use arrow_array::ArrayRef;
use thalweg_core::{DataType, Result};

use super::super::lists::ListBuilder;
use super::super::state::elements_of;
use super::super::{StateColumns, StateRows};
use super::values::Values;
use super::{RunInput, RunningAggregate, is_taken};
use crate::gradual::grow;

/// The values of all groups.
pub(in crate::aggregate) struct Elements {
    argument: DataType,
    skips_nulls: bool,
    values: Values,
    groups: Vec<Vec<u32>>,
    heap_bytes: usize,
}

impl Elements {
    pub fn new(argument: &DataType, skips_nulls: bool) -> Result<Self> {
        let values = Values::new(argument.clone())?;
        let argument = argument.clone();
        Ok(Elements { argument, skips_nulls, values, groups: Vec::new(), heap_bytes: 0 })
    }

    fn add(&mut self, id: u32, value: u32) {
        let group = &mut self.groups[id as usize];
        let before = group.capacity();
        group.push(value);
        self.heap_bytes += (group.capacity() - before) * 4;
        self.values.hold(value);
    }

    /// The oldest of equal values goes. The list is searched and moved, which costs no more than
    /// the result that shows all of it.
    fn retract(&mut self, id: u32, value: u32) {
        let group = &mut self.groups[id as usize];
        match group.iter().position(|&other| other == value) {
            None => self.values.pass(value),
            Some(place) => {
                group.remove(place);
                self.values.release(value);
            }
        }
    }

    fn clear(&mut self, id: u32) {
        let group = std::mem::take(&mut self.groups[id as usize]);
        self.heap_bytes -= group.capacity() * 4;
        group.into_iter().for_each(|value| self.values.release(value));
    }
}

impl RunningAggregate for Elements {
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let values = self.values.intern(input.column()?, None)?;
        let taken = if self.skips_nulls { input.taken() } else { input.filter.cloned() };
        let mut lists = ListBuilder::new(&self.argument);
        let mut elements = Vec::new();
        for (place, (&id, &value)) in input.ids.iter().zip(&values).enumerate() {
            let step = input.step(place);
            if step.begins() {
                self.clear(id);
            }
            let mut show = |group: &[u32]| {
                lists.push(group.len());
                elements.extend_from_slice(group);
            };
            show(&self.groups[id as usize]);
            match is_taken(taken.as_ref(), place) {
                true if step.retracts() => self.retract(id, value),
                true => self.add(id, value),
                false => self.values.pass(value),
            }
            show(&self.groups[id as usize]);
        }
        let results = lists.finish(self.values.column(&elements)?)?;
        self.values.settle();
        Ok(results)
    }
    fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.clear(id));
        self.values.settle();
    }
    fn bytes(&self) -> usize {
        let groups = self.groups.capacity() * size_of::<Vec<u32>>();
        self.values.bytes() + groups + self.heap_bytes
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let mut lists = ListBuilder::new(&self.argument);
        let mut elements = Vec::new();
        for &id in ids {
            let group = &self.groups[id as usize];
            lists.push(group.len());
            elements.extend_from_slice(group);
        }
        columns.add("", lists.finish(self.values.column(&elements)?)?);
        Ok(())
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let (column, owners) = elements_of(rows.lists("", &self.argument.arrow())?, ids);
        let values = self.values.intern(&column, None)?;
        owners.into_iter().zip(values).for_each(|(id, value)| self.add(id, value));
        Ok(())
    }
}
