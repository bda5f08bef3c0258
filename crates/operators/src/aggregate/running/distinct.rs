//! `f(DISTINCT x)` row by row: a counted set of values per group in front of any aggregate.
//!
//! The inner aggregate sees a value when a group gets it for the first time, and a retraction when
//! the group gives the last one back. What a group does not have it cannot give back: ignored.
//!
//! Invariant: the pairs of (group, value) stand in one hash table with their counts, so that a
//! value that has been seen costs one look-up, and are chained per group, so that a group that
//! ends is cleared in the time its values take.
//!
//! A row whose value is already counted changes nothing in the inner aggregate, but it still has a
//! pair of results: both are the present result.

use arrow_array::ArrayRef;
use arrow_buffer::BooleanBuffer;
use thalweg_core::shim::mix64;
use thalweg_core::{DataType, Result};

use super::super::{StateColumns, StateRows, joined};
use super::values::Values;
use super::{RunInput, RunningAggregate, counted, is_taken};
use crate::gradual::{Entry, GradualTable, Pages};

const NONE: u32 = u32::MAX;

/// A value of a group and how often the group has it.
#[derive(Clone, Copy)]
struct CountedPair {
    pair: u64,
    /// The lower half of the number.
    times: u32,
    /// Where its neighbours are.
    at: u32,
}

/// The neighbours of a value in the chain of its group.
#[derive(Clone, Copy)]
struct PairLink {
    value: u32,
    next: u32,
    previous: u32,
    /// The upper half of how often the group has the value.
    times_high: u32,
}

/// Counts (group, value) pairs.
#[derive(Default)]
struct PairCounts {
    table: GradualTable<CountedPair>,
    links: Pages<PairLink>,
    free: Vec<u32>,
    /// The first link of each group.
    heads: Pages<u32>,
}

impl PairCounts {
    fn grow(&mut self, groups: usize) {
        self.heads.grow(groups, NONE);
    }

    /// Counts this many more; true if they are the first.
    #[inline(always)]
    fn add(&mut self, group: u32, value: u32, times: u64) -> bool {
        let PairCounts { table, links, free, heads } = self;
        let pair = joined(group, value);
        let is_it = |counted: &CountedPair| counted.pair == pair;
        let place = match table.entry(mix64(pair), is_it, |counted| mix64(counted.pair)) {
            Entry::Vacant(place) => place,
            Entry::Occupied(counted) => {
                let times = u64::from(counted.times) + times;
                counted.times = times as u32;
                if times >> 32 > 0 {
                    links[counted.at as usize].times_high += (times >> 32) as u32;
                }
                return false;
            }
        };
        let head = &mut heads[group as usize];
        let times_high = (times >> 32) as u32;
        let link = PairLink { value, next: *head, previous: NONE, times_high };
        let at = free.pop().unwrap_or(links.len() as u32);
        links.put(at as usize, link);
        if *head != NONE {
            links[*head as usize].previous = at;
        }
        *head = at;
        place.insert(CountedPair { pair, times: times as u32, at });
        true
    }

    /// Counts one less, if it is there; true if it was the last.
    fn remove(&mut self, group: u32, value: u32) -> bool {
        let pair = joined(group, value);
        let found = self.table.find_mut(mix64(pair), |counted| counted.pair == pair);
        let Some(CountedPair { times, at, .. }) = found else { return false };
        let (at, high) = (*at, &mut self.links[*at as usize].times_high);
        let left = joined(*high, *times) - 1;
        (*high, *times) = ((left >> 32) as u32, left as u32);
        if left == 0 {
            self.unlink(group, at);
        }
        left == 0
    }

    fn unlink(&mut self, group: u32, at: u32) {
        let PairLink { value, next, previous, .. } = self.links[at as usize];
        if next != NONE {
            self.links[next as usize].previous = previous;
        }
        match previous {
            NONE => self.heads[group as usize] = next,
            _ => self.links[previous as usize].next = next,
        }
        let pair = joined(group, value);
        self.table.remove(mix64(pair), |counted| counted.pair == pair);
        self.free.push(at);
    }

    /// Removes a pair of the group; its value.
    fn pop(&mut self, group: u32) -> Option<u32> {
        let at = self.heads[group as usize];
        if at == NONE {
            return None;
        }
        self.unlink(group, at);
        Some(self.links[at as usize].value)
    }

    /// The values of a group and how often each is there.
    fn of_group(&self, group: u32) -> impl Iterator<Item = (u32, u64)> {
        let link = |at: u32| self.links.get(at as usize);
        let first = link(self.heads[group as usize]);
        std::iter::successors(first, move |of| link(of.next)).map(move |of| {
            let pair = joined(group, of.value);
            let counted = self.table.find(mix64(pair), |counted| counted.pair == pair);
            let low = counted.expect("what is in a chain is in the table").times;
            (of.value, joined(of.times_high, low))
        })
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.heads.bytes() + self.free.capacity() * 4 + self.table.bytes()
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
        let mut passes = Vec::with_capacity(values.len());
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
            passes.push(passed);
        }
        self.values.settle();
        self.inner.run(&RunInput { filter: Some(&BooleanBuffer::from(passes)), ..*input })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of_group(counts: &PairCounts, group: u32) -> Vec<(u32, u64)> {
        counts.of_group(group).collect()
    }

    #[test]
    fn values_are_counted_beyond_32_bits() {
        let (mut counts, most) = (PairCounts::default(), u64::from(u32::MAX));
        counts.grow(2);
        assert!(counts.add(1, 7, most));
        assert!(!counts.add(1, 7, 2));
        assert!(counts.add(1, 8, 5 * most));
        assert_eq!(of_group(&counts, 1), [(8, 5 * most), (7, most + 2)]);
        (0..3).for_each(|_| assert!(!counts.remove(1, 7)));
        assert_eq!(of_group(&counts, 1), [(8, 5 * most), (7, most - 1)]);
        assert_eq!(of_group(&counts, 0), []);
    }

    #[test]
    fn a_value_goes_with_its_last_row() {
        let mut counts = PairCounts::default();
        counts.grow(2);
        for value in [3, 4, 5, 4] {
            counts.add(0, value, 1);
            counts.add(1, value, 1);
        }
        let removed = [4, 4, 4, 3, 9].map(|value| counts.remove(0, value));
        assert_eq!(removed, [false, true, false, true, false]);
        assert_eq!(of_group(&counts, 0), [(5, 1)]);
        assert!(counts.add(0, 4, 1), "it is new again");
        assert_eq!(std::iter::from_fn(|| counts.pop(0)).collect::<Vec<_>>(), [4, 5]);
        assert_eq!(of_group(&counts, 1), [(5, 1), (4, 2), (3, 1)]);
    }
}
