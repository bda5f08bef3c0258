//! `f(DISTINCT x)` row by row: a counted set of values per group in front of any aggregate.
//!
//! The inner aggregate sees a value when a group gets it for the first time, and a retraction when
//! the group gives the last one back. What a group does not have it cannot give back: ignored.
//!
//! Invariant: the pairs of (group, value) that are counted stand in one arena, found by a hash
//! table and chained per group, so that a group that ends is cleared in the time its values take.
//!
//! A row whose value is already counted changes nothing in the inner aggregate, but it still has a
//! pair of results: both are the present result.

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBufferBuilder;
use thalweg_core::shim::mix64;
use thalweg_core::{DataType, Result};

use super::super::{StateColumns, StateRows};
use super::values::Values;
use super::{RunInput, RunningAggregate, counted, is_taken};
use crate::gradual::{GradualTable, Pages};

const NONE: u32 = u32::MAX;

/// A value of a group, and its neighbours in the chain of the group.
#[derive(Clone, Copy)]
struct CountedPair {
    group: u32,
    value: u32,
    times: u64,
    next: u32,
    previous: u32,
}

/// Counts (group, value) pairs.
#[derive(Default)]
struct PairCounts {
    arena: Pages<CountedPair>,
    free: Vec<u32>,
    table: GradualTable<u32>,
    /// The first pair of each group.
    heads: Pages<u32>,
}

fn hash(group: u32, value: u32) -> u64 {
    mix64(u64::from(group) << 32 | u64::from(value))
}

impl PairCounts {
    fn grow(&mut self, groups: usize) {
        self.heads.grow(groups, NONE);
    }

    fn find(&self, group: u32, value: u32) -> Option<u32> {
        let same = |&at: &u32| {
            let pair = self.arena[at as usize];
            pair.group == group && pair.value == value
        };
        self.table.find(hash(group, value), same).copied()
    }

    /// Counts this many more; true if they are the first.
    fn add(&mut self, group: u32, value: u32, times: u64) -> bool {
        if let Some(at) = self.find(group, value) {
            self.arena[at as usize].times += times;
            return false;
        }
        let head = self.heads[group as usize];
        let pair = CountedPair { group, value, times, next: head, previous: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.arena[at as usize] = pair;
                at
            }
            None => {
                self.arena.push(pair);
                self.arena.len() as u32 - 1
            }
        };
        if head != NONE {
            self.arena[head as usize].previous = at;
        }
        self.heads[group as usize] = at;
        let arena = &self.arena;
        let rehash = |&at: &u32| hash(arena[at as usize].group, arena[at as usize].value);
        self.table.insert_unique(hash(group, value), at, rehash);
        true
    }

    /// Counts one less, if it is there; true if it was the last.
    fn remove(&mut self, group: u32, value: u32) -> bool {
        let Some(at) = self.find(group, value) else { return false };
        let pair = &mut self.arena[at as usize];
        pair.times -= 1;
        if pair.times > 0 {
            return false;
        }
        self.unlink(at);
        true
    }

    fn unlink(&mut self, at: u32) {
        let CountedPair { group, value, next, previous, .. } = self.arena[at as usize];
        if next != NONE {
            self.arena[next as usize].previous = previous;
        }
        match previous {
            NONE => self.heads[group as usize] = next,
            _ => self.arena[previous as usize].next = next,
        }
        self.table.remove(hash(group, value), |&other| other == at);
        self.free.push(at);
    }

    /// Removes a pair of the group; its value.
    fn pop(&mut self, group: u32) -> Option<u32> {
        let at = self.heads[group as usize];
        if at == NONE {
            return None;
        }
        self.unlink(at);
        Some(self.arena[at as usize].value)
    }

    /// The values of a group and how often each is there.
    fn of_group(&self, group: u32) -> impl Iterator<Item = (u32, u64)> {
        let first = self.heads[group as usize];
        let behind = |&at: &u32| Some(self.arena[at as usize].next).filter(|&next| next != NONE);
        std::iter::successors(Some(first).filter(|&first| first != NONE), behind).map(|at| {
            let pair = &self.arena[at as usize];
            (pair.value, pair.times)
        })
    }

    fn bytes(&self) -> usize {
        self.arena.bytes() + self.heads.bytes() + self.free.capacity() * 4 + self.table.bytes()
    }
}

/// DISTINCT in front of an aggregate.
pub(in crate::aggregate) struct RunningDistinct {
    values: Values,
    /// NULL is a value to the inner aggregate.
    takes_nulls: bool,
    counts: PairCounts,
    inner: Box<dyn RunningAggregate>,
}

impl RunningDistinct {
    pub fn new(
        argument: &DataType,
        takes_nulls: bool,
        inner: Box<dyn RunningAggregate>,
    ) -> Result<Self> {
        let values = Values::new(argument.clone())?;
        Ok(RunningDistinct { values, takes_nulls, counts: PairCounts::default(), inner })
    }

    fn clear(&mut self, id: u32) {
        while let Some(value) = self.counts.pop(id) {
            self.values.release(value);
        }
    }

    /// True if the inner aggregate must know of this row.
    fn counts(&mut self, id: u32, value: u32, retracts: bool) -> bool {
        if !retracts {
            let first = self.counts.add(id, value, 1);
            if first {
                self.values.hold(value);
            }
            return first;
        }
        let gone = self.counts.remove(id, value);
        if gone {
            self.values.release(value);
        } else {
            self.values.pass(value);
        }
        gone
    }
}

impl RunningAggregate for RunningDistinct {
    fn grow(&mut self, groups: usize) {
        self.counts.grow(groups);
        self.inner.grow(groups);
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let values = self.values.intern(input.column()?, None)?;
        let taken = if self.takes_nulls { input.filter.cloned() } else { input.taken() };
        let mut passes = BooleanBufferBuilder::new(values.len());
        for (place, (&id, &value)) in input.ids.iter().zip(&values).enumerate() {
            let step = input.step(place);
            if step.begins() {
                self.clear(id);
            }
            let passed = match is_taken(taken.as_ref(), place) {
                true => self.counts(id, value, step.retracts()),
                false => {
                    self.values.pass(value);
                    false
                }
            };
            passes.append(passed);
        }
        self.values.settle();
        self.inner.run(&RunInput { filter: Some(&passes.finish()), ..*input })
    }
    fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.clear(id));
        self.values.settle();
        self.inner.reset(ids);
    }
    fn bytes(&self) -> usize {
        self.values.bytes() + self.counts.bytes() + self.inner.bytes()
    }
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let (mut values, mut times) = (Vec::new(), Vec::new());
        let mut of_group = |&id: &u32| {
            let before = values.len();
            for (value, counted) in self.counts.of_group(id) {
                values.push(value);
                times.push(counted as i64);
            }
            values.len() - before
        };
        let lengths = ids.iter().map(&mut of_group).collect();
        counted::capture(lengths, self.values.column(&values)?, times, columns)?;
        self.inner.capture(ids, columns)
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let captured = counted::restore(rows, &self.values.arrow(), ids)?;
        let values = self.values.intern(&captured.values, None)?;
        for ((&id, &value), &times) in captured.ids.iter().zip(&values).zip(&captured.times) {
            if !self.counts.add(id, value, times) {
                return Err(rows.damaged("values", "holds a value twice"));
            }
            self.values.hold(value);
        }
        self.inner.restore(ids, rows)
    }
}
