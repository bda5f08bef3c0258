//! The loop that most running aggregates share: one small state per group, one typed value per row.
//!
//! A row does four things here: a group that begins is emptied, the result before is read, the
//! value is added or retracted, the result after is read. A row that FILTER rejects, or whose value
//! is NULL, does all but the third: it still has a pair of results, since its group has one row
//! more or fewer.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type};
use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

use super::super::values::{declared, with_one_nan};
use super::super::{StateColumns, StateRows};
use super::pairs::Pairs;
use super::{RunInput, RunningAggregate, Step};
use crate::gradual::Pages;

/// What an Arrow type's values are.
pub(in crate::aggregate) type Native<T> = <T as ArrowPrimitiveType>::Native;

/// How values of a type enter and leave one group's state, and what it gives.
pub(in crate::aggregate) trait Rule: Send + 'static {
    /// The type of the argument and of the result.
    type Value: ArrowPrimitiveType;
    /// The state of one group; the default is the empty one.
    type Group: Default + Clone + Send + 'static;
    /// Adds a value.
    fn add(&self, group: &mut Self::Group, value: Native<Self::Value>);
    /// Takes a value back that was added. Rules for inputs without retractions have none.
    fn retract(&self, _group: &mut Self::Group, _value: Native<Self::Value>) {
        debug_assert!(false, "a rule for inserts was asked to take a value back");
    }
    /// The result.
    fn result(&self, group: &Self::Group) -> Option<Native<Self::Value>>;
    /// Captures these groups ([`RunningAggregate::capture`]); their results are of this type.
    fn capture(
        &self,
        groups: &[Self::Group],
        result: &Arrow,
        columns: &mut StateColumns,
    ) -> Result<()>;
    /// The groups that were captured ([`RunningAggregate::restore`]), one for each row.
    fn restore(&self, result: &Arrow, rows: &StateRows<'_>) -> Result<Vec<Self::Group>>;
    /// Bytes that a state takes elsewhere.
    fn heap_bytes(&self, _group: &Self::Group) -> usize {
        0
    }
    /// True if states take bytes elsewhere.
    const ON_HEAP: bool = false;
}

/// A column of states that a [`Rule`] works on.
pub(in crate::aggregate) struct Column<R: Rule> {
    rule: R,
    result: Arrow,
    groups: Pages<R::Group>,
    /// What states take elsewhere.
    heap_bytes: usize,
}

impl<R: Rule> Column<R> {
    pub fn new(rule: R, result: Arrow) -> Self {
        Column { rule, result, groups: Pages::default(), heap_bytes: 0 }
    }

    #[inline(always)]
    fn step(
        &mut self,
        id: u32,
        step: Step,
        value: Option<Native<R::Value>>,
        pairs: &mut Pairs<R::Value>,
    ) {
        let group = &mut self.groups[id as usize];
        if R::ON_HEAP {
            self.heap_bytes -= self.rule.heap_bytes(group);
        }
        if step.begins() {
            *group = R::Group::default();
        }
        let before = self.rule.result(group);
        match value {
            Some(value) if step.retracts() => self.rule.retract(group, value),
            Some(value) => self.rule.add(group, value),
            None => {}
        }
        pairs.push(before, self.rule.result(group));
        if R::ON_HEAP {
            self.heap_bytes += self.rule.heap_bytes(group);
        }
    }

    fn replace(&mut self, id: u32, state: R::Group) {
        let group = &mut self.groups[id as usize];
        if R::ON_HEAP {
            self.heap_bytes += self.rule.heap_bytes(&state);
            self.heap_bytes -= self.rule.heap_bytes(group);
        }
        *group = state;
    }
}

impl<R: Rule> RunningAggregate for Column<R> {
    fn grow(&mut self, groups: usize) {
        self.groups.grow_with(groups, R::Group::default);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let column = with_one_nan(input.column()?);
        let values = declared::<R::Value>(&column)?;
        let mut pairs = Pairs::<R::Value>::new(input.ids.len());
        let rows = input.ids.iter().zip(values.values());
        match (input.taken(), input.steps) {
            (None, None) => {
                for (&id, &value) in rows {
                    self.step(id, Step::ADDS, Some(value), &mut pairs);
                }
            }
            (None, Some(steps)) => {
                for ((&id, &value), &step) in rows.zip(steps) {
                    self.step(id, step, Some(value), &mut pairs);
                }
            }
            (Some(taken), _) => {
                for (place, ((&id, &value), taken)) in rows.zip(taken.iter()).enumerate() {
                    self.step(id, input.step(place), taken.then_some(value), &mut pairs);
                }
            }
        }
        Ok(pairs.finish(&self.result))
    }
    fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.replace(id, R::Group::default()));
    }
    fn bytes(&self) -> usize {
        self.groups.bytes() + self.heap_bytes
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let captured: Vec<R::Group> =
            ids.iter().map(|&id| self.groups[id as usize].clone()).collect();
        self.rule.capture(&captured, &self.result, columns)
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let captured = self.rule.restore(&self.result, rows)?;
        ids.iter().zip(captured).for_each(|(&id, group)| self.replace(id, group));
        Ok(())
    }
}

/// Remembers the result of each group, for rules that work hard for it: it is found once per row
/// and not twice. Only for results that are NULL while a group is empty.
pub(in crate::aggregate) struct Remembering<R>(pub(in crate::aggregate) R);

impl<R: Rule> Rule for Remembering<R> {
    type Value = R::Value;
    type Group = (R::Group, Option<Native<R::Value>>);

    fn add(&self, group: &mut Self::Group, value: Native<R::Value>) {
        self.0.add(&mut group.0, value);
        group.1 = self.0.result(&group.0);
    }
    fn retract(&self, group: &mut Self::Group, value: Native<R::Value>) {
        self.0.retract(&mut group.0, value);
        group.1 = self.0.result(&group.0);
    }
    fn result(&self, group: &Self::Group) -> Option<Native<R::Value>> {
        group.1
    }
    fn capture(
        &self,
        groups: &[Self::Group],
        result: &Arrow,
        columns: &mut StateColumns,
    ) -> Result<()> {
        let captured: Vec<R::Group> = groups.iter().map(|(group, _)| group.clone()).collect();
        self.0.capture(&captured, result, columns)
    }
    fn restore(&self, result: &Arrow, rows: &StateRows<'_>) -> Result<Vec<Self::Group>> {
        let with_result = |group| {
            let result = self.0.result(&group);
            (group, result)
        };
        Ok(self.0.restore(result, rows)?.into_iter().map(with_result).collect())
    }
    fn heap_bytes(&self, group: &Self::Group) -> usize {
        self.0.heap_bytes(&group.0)
    }
    const ON_HEAP: bool = R::ON_HEAP;
}

/// `COUNT(*)` and `COUNT(x)`.
#[derive(Default)]
pub(in crate::aggregate) struct Count {
    groups: Pages<i64>,
}

impl Count {
    #[inline(always)]
    fn step(&mut self, id: u32, step: Step, taken: bool, pairs: &mut Vec<i64>) {
        let group = &mut self.groups[id as usize];
        let before = if step.begins() { 0 } else { *group };
        let change = if step.retracts() { -1 } else { 1 };
        *group = before + if taken { change } else { 0 };
        pairs.extend_from_slice(&[before, *group]);
    }
}

impl RunningAggregate for Count {
    fn grow(&mut self, groups: usize) {
        self.groups.grow(groups, 0);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let mut pairs = Vec::with_capacity(input.ids.len() * 2);
        match (input.taken(), input.steps) {
            (None, None) => {
                input.ids.iter().for_each(|&id| self.step(id, Step::ADDS, true, &mut pairs));
            }
            (taken, _) => {
                for (place, &id) in input.ids.iter().enumerate() {
                    let counts = super::is_taken(taken.as_ref(), place);
                    self.step(id, input.step(place), counts, &mut pairs);
                }
            }
        }
        Ok(Arc::new(Int64Array::new(pairs.into(), None)))
    }
    fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.groups[id as usize] = 0);
    }
    fn bytes(&self) -> usize {
        self.groups.bytes()
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        columns.add_numbers::<Int64Type>("", ids.iter().map(|&id| self.groups[id as usize]));
        Ok(())
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        for (&id, &count) in ids.iter().zip(rows.numbers::<Int64Type>("")?) {
            self.groups[id as usize] = count;
        }
        Ok(())
    }
}
