//! MIN and MAX of values that may be retracted: a counted, sorted multiset per group.
//!
//! The best value stands next to the tree, so groups with one value have no tree, and a row that
//! does not touch the best one costs one descent. A value that is retracted without being there is
//! ignored.
//!
//! When the last copy of the best value is retracted, the next best moves out of the tree. That is
//! the only step that looks for another value.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, ArrowNativeTypeOp, PrimitiveArray};
use arrow_schema::DataType as Arrow;
use thalweg_core::Result;

use super::super::extremes::BytesKind;
use super::super::values::{declared, retyped, with_one_nan};
use super::super::{StateColumns, StateRows};
use super::bytes::{BytesBuilder, bytes_at};
use super::pairs::Pairs;
use super::{RunInput, RunningAggregate, counted, is_taken};
use crate::gradual::Pages;

/// A number in its total order.
#[derive(Clone, Copy)]
pub(in crate::aggregate) struct Ordered<N>(N);

impl<N: ArrowNativeTypeOp> Ord for Ordered<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.compare(other.0)
    }
}
impl<N: ArrowNativeTypeOp> PartialOrd for Ordered<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<N: ArrowNativeTypeOp> PartialEq for Ordered<N> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<N: ArrowNativeTypeOp> Eq for Ordered<N> {}

/// A value that is kept: what it takes beyond its own size.
pub(in crate::aggregate) trait RankedValue: Ord + Send + 'static {
    fn heap_bytes(&self) -> usize {
        0
    }
}
impl<N: ArrowNativeTypeOp + Send + 'static> RankedValue for Ordered<N> {}
impl RankedValue for Box<[u8]> {
    fn heap_bytes(&self) -> usize {
        self.len()
    }
}

/// The values of a group and how often each is there.
struct Ranked<V> {
    best: Option<(V, u64)>,
    /// All others.
    rest: BTreeMap<V, u64>,
}

impl<V> Default for Ranked<V> {
    fn default() -> Self {
        Ranked { best: None, rest: BTreeMap::new() }
    }
}

/// The groups of MIN or MAX, whatever the values are.
struct Groups<V> {
    max: bool,
    groups: Pages<Ranked<V>>,
    /// How many values stand in trees.
    in_trees: usize,
    /// What values take elsewhere.
    heap_bytes: usize,
}

impl<V: RankedValue> Groups<V> {
    fn new(max: bool) -> Self {
        Groups { max, groups: Pages::default(), in_trees: 0, heap_bytes: 0 }
    }

    fn grow(&mut self, groups: usize) {
        self.groups.grow_with(groups, Ranked::default);
    }

    fn best(&self, id: u32) -> Option<&V> {
        self.groups[id as usize].best.as_ref().map(|(value, _)| value)
    }

    /// Adds a value this many times.
    fn add<B: Ord + ?Sized>(&mut self, id: u32, value: &B, count: u64, own: impl FnOnce(&B) -> V)
    where
        V: Borrow<B>,
    {
        let group = &mut self.groups[id as usize];
        let better = if self.max { Ordering::Greater } else { Ordering::Less };
        match &mut group.best {
            Some((best, times)) => match value.cmp((*best).borrow()) {
                Ordering::Equal => *times += count,
                order if order == better => {
                    let value = own(value);
                    self.heap_bytes += value.heap_bytes();
                    let (best, times) = (std::mem::replace(best, value), *times);
                    group.best.iter_mut().for_each(|(_, times)| *times = count);
                    group.rest.insert(best, times);
                    self.in_trees += 1;
                }
                _ => {
                    if let Some(times) = group.rest.get_mut(value) {
                        *times += count;
                        return;
                    }
                    let value = own(value);
                    self.heap_bytes += value.heap_bytes();
                    group.rest.insert(value, count);
                    self.in_trees += 1;
                }
            },
            None => {
                let value = own(value);
                self.heap_bytes += value.heap_bytes();
                group.best = Some((value, count));
            }
        }
    }

    /// A value that is neither the best nor in the tree is not there: nothing changes.
    fn retract<B: Ord + ?Sized>(&mut self, id: u32, value: &B)
    where
        V: Borrow<B>,
    {
        let group = &mut self.groups[id as usize];
        let Some((best, times)) = &mut group.best else { return };
        if (*best).borrow() == value {
            *times -= 1;
            if *times == 0 {
                self.heap_bytes -= best.heap_bytes();
                let next = if self.max { group.rest.pop_last() } else { group.rest.pop_first() };
                self.in_trees -= usize::from(next.is_some());
                group.best = next;
            }
            return;
        }
        let Some(times) = group.rest.get_mut(value) else { return };
        *times -= 1;
        if *times == 0
            && let Some((gone, _)) = group.rest.remove_entry(value)
        {
            self.heap_bytes -= gone.heap_bytes();
            self.in_trees -= 1;
        }
    }

    fn clear(&mut self, id: u32) {
        let group = &mut self.groups[id as usize];
        let Some((best, _)) = group.best.take() else { return };
        let rest = std::mem::take(&mut group.rest);
        self.in_trees -= rest.len();
        let of_rest: usize = rest.keys().map(V::heap_bytes).sum();
        self.heap_bytes -= best.heap_bytes() + of_rest;
    }

    /// The values of a group and how often each is there, the best one first.
    fn of_group(&self, id: u32) -> impl Iterator<Item = (&V, u64)> {
        let group = &self.groups[id as usize];
        let best = group.best.iter().map(|(value, times)| (value, *times));
        best.chain(group.rest.iter().map(|(value, times)| (value, *times)))
    }

    fn capture<'a>(
        &'a self,
        ids: &[u32],
        columns: &mut StateColumns,
        column: impl FnOnce(Vec<&'a V>) -> ArrayRef,
    ) -> Result<()> {
        let (mut values, mut times) = (Vec::new(), Vec::new());
        let mut lengths = Vec::with_capacity(ids.len());
        for &id in ids {
            let before = values.len();
            for (value, counted) in self.of_group(id) {
                values.push(value);
                times.push(counted as i64);
            }
            lengths.push(values.len() - before);
        }
        counted::capture(lengths, column(values), times, columns)
    }

    fn bytes(&self) -> usize {
        // Nodes of a tree are two thirds full, give or take.
        let in_trees = self.in_trees * (size_of::<V>() + 8) * 3 / 2;
        self.groups.bytes() + in_trees + self.heap_bytes
    }
}

/// Of numbers.
pub(in crate::aggregate) struct RankedNumbers<T: ArrowPrimitiveType> {
    groups: Groups<Ordered<T::Native>>,
    result: Arrow,
    types: PhantomData<fn() -> T>,
}

impl<T: ArrowPrimitiveType> RankedNumbers<T>
where
    T::Native: Send,
{
    pub fn new(max: bool, result: Arrow) -> Self {
        RankedNumbers { groups: Groups::new(max), result, types: PhantomData }
    }
}

impl<T: ArrowPrimitiveType> RunningAggregate for RankedNumbers<T>
where
    T::Native: Send,
{
    fn grow(&mut self, groups: usize) {
        self.groups.grow(groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let column = with_one_nan(input.column()?);
        let (declared, taken) = (declared::<T>(&column)?, input.taken());
        let values = declared.values();
        let mut pairs = Pairs::<T>::new(input.ids.len());
        for (place, &id) in input.ids.iter().enumerate() {
            let step = input.step(place);
            if step.begins() {
                self.groups.clear(id);
            }
            let before = self.groups.best(id).map(|best| best.0);
            match Ordered(values[place]) {
                _ if !is_taken(taken.as_ref(), place) => {}
                value if step.retracts() => self.groups.retract(id, &value),
                value => self.groups.add(id, &value, 1, |&value| value),
            }
            pairs.push(before, self.groups.best(id).map(|best| best.0));
        }
        Ok(pairs.finish(&self.result))
    }
    fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.groups.clear(id));
    }
    fn bytes(&self) -> usize {
        self.groups.bytes()
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let array = |values: Vec<&Ordered<T::Native>>| -> ArrayRef {
            let values = values.into_iter().map(|value| value.0);
            let values = PrimitiveArray::<T>::from_iter_values(values);
            retyped(Arc::new(values), &self.result)
        };
        self.groups.capture(ids, columns, array)
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let captured = counted::restore(rows, &self.result, ids)?;
        if captured.values.null_count() > 0 {
            return Err(rows.damaged("values", "holds NULL"));
        }
        let declared = declared::<T>(&captured.values)?;
        let values = declared.values();
        for ((&id, &value), &times) in captured.ids.iter().zip(values).zip(&captured.times) {
            self.groups.add(id, &Ordered(value), times, |&value| value);
        }
        Ok(())
    }
}

/// Of strings, binaries and booleans.
pub(in crate::aggregate) struct RankedBytes {
    groups: Groups<Box<[u8]>>,
    kind: BytesKind,
}

impl RankedBytes {
    pub fn new(max: bool, kind: BytesKind) -> Self {
        RankedBytes { groups: Groups::new(max), kind }
    }
}

impl RunningAggregate for RankedBytes {
    fn grow(&mut self, groups: usize) {
        self.groups.grow(groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let column = input.column()?;
        let taken = input.taken();
        let mut pairs = BytesBuilder::new(self.kind, column.len() * 2);
        for (place, &id) in input.ids.iter().enumerate() {
            let step = input.step(place);
            if step.begins() {
                self.groups.clear(id);
            }
            pairs.push(self.groups.best(id).map(|best| &best[..]))?;
            match bytes_at(self.kind, column, place) {
                _ if !is_taken(taken.as_ref(), place) => {}
                value if step.retracts() => self.groups.retract(id, value),
                value => self.groups.add(id, value, 1, |value| value.into()),
            }
            pairs.push(self.groups.best(id).map(|best| &best[..]))?;
        }
        Ok(pairs.finish())
    }
    fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.groups.clear(id));
    }
    fn bytes(&self) -> usize {
        self.groups.bytes()
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let array = |values: Vec<&Box<[u8]>>| {
            self.kind.array(values.into_iter().map(|value| Some(&value[..])))
        };
        self.groups.capture(ids, columns, array)
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let captured = counted::restore(rows, &self.kind.arrow(), ids)?;
        if captured.values.null_count() > 0 {
            return Err(rows.damaged("values", "holds NULL"));
        }
        for (row, (&id, &times)) in captured.ids.iter().zip(&captured.times).enumerate() {
            let value = bytes_at(self.kind, &captured.values, row);
            self.groups.add(id, value, times, |value| value.into());
        }
        Ok(())
    }
}
