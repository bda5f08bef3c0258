//! FIRST_VALUE and LAST_VALUE of values that may be retracted: each group's values by arrival.
//!
//! Of several equal values the oldest is given back, as Flink does; one that is not there is
//! ignored. All groups share two trees: by (group, arrival), and by (group, value, arrival).
//!
//! Arrival numbers are not captured. Restored values get new ones in the same order, so new values
//! always stand behind restored ones.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::ArrayRef;
use thalweg_core::{DataType, Result};

use super::super::state::{elements_of, lists};
use super::super::{StateColumns, StateRows};
use super::values::{NO_VALUE, Values};
use super::{RunInput, RunningAggregate, is_taken};

/// The values of all groups by arrival.
pub(in crate::aggregate) struct Sequence {
    last: bool,
    values: Values,
    /// The result of each group.
    chosen: Vec<u32>,
    by_arrival: BTreeMap<(u32, u64), u32>,
    by_value: BTreeSet<(u32, u32, u64)>,
    arrivals: u64,
}

impl Sequence {
    pub fn new(argument: &DataType, last: bool) -> Result<Self> {
        Ok(Sequence {
            last,
            values: Values::new(argument.clone())?,
            chosen: Vec::new(),
            by_arrival: BTreeMap::new(),
            by_value: BTreeSet::new(),
            arrivals: 0,
        })
    }

    fn add(&mut self, id: u32, value: u32) {
        self.arrivals += 1;
        self.by_arrival.insert((id, self.arrivals), value);
        self.by_value.insert((id, value, self.arrivals));
        self.values.hold(value);
        let chosen = &mut self.chosen[id as usize];
        if self.last || *chosen == NO_VALUE {
            *chosen = value;
        }
    }

    fn retract(&mut self, id: u32, value: u32) {
        let oldest = self.by_value.range((id, value, 0)..=(id, value, u64::MAX)).next().copied();
        let Some(oldest) = oldest else { return self.values.pass(value) };
        self.by_value.remove(&oldest);
        self.by_arrival.remove(&(id, oldest.2));
        self.values.release(value);
        let mut left = self.by_arrival.range((id, 0)..=(id, u64::MAX));
        let chosen = if self.last { left.next_back() } else { left.next() };
        self.chosen[id as usize] = chosen.map_or(NO_VALUE, |(_, &value)| value);
    }

    fn clear(&mut self, id: u32) {
        if self.chosen[id as usize] == NO_VALUE {
            return;
        }
        self.chosen[id as usize] = NO_VALUE;
        while let Some((&(_, arrival), &value)) =
            self.by_arrival.range((id, 0)..=(id, u64::MAX)).next()
        {
            self.by_arrival.remove(&(id, arrival));
            self.by_value.remove(&(id, value, arrival));
            self.values.release(value);
        }
    }
}

impl RunningAggregate for Sequence {
    fn grow(&mut self, groups: usize) {
        if self.chosen.len() < groups {
            self.chosen.resize(groups, NO_VALUE);
        }
    }
    fn run(&mut self, input: &RunInput<'_>) -> Result<ArrayRef> {
        let values = self.values.intern(input.column()?, None)?;
        let taken = input.taken();
        let mut pairs = Vec::with_capacity(values.len() * 2);
        for (place, (&id, &value)) in input.ids.iter().zip(&values).enumerate() {
            let step = input.step(place);
            if step.begins() {
                self.clear(id);
            }
            pairs.push(self.chosen[id as usize]);
            match is_taken(taken.as_ref(), place) {
                true if step.retracts() => self.retract(id, value),
                true => self.add(id, value),
                false => self.values.pass(value),
            }
            pairs.push(self.chosen[id as usize]);
        }
        let column = self.values.column(&pairs)?;
        self.values.settle();
        Ok(column)
    }
    fn reset(&mut self, ids: &[u32]) {
        ids.iter().for_each(|&id| self.clear(id));
        self.values.settle();
    }
    /// Captures the values of each group by arrival. When they came says nothing beyond that, and
    /// the result follows.
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let mut values = Vec::new();
        let mut of_group = |&id: &u32| {
            let before = values.len();
            values.extend(self.by_arrival.range((id, 0)..=(id, u64::MAX)).map(|(_, &value)| value));
            values.len() - before
        };
        let lengths = ids.iter().map(&mut of_group).collect();
        columns.add("", lists(lengths, self.values.column(&values)?)?);
        Ok(())
    }
    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let (column, owners) = elements_of(rows.lists("", &self.values.arrow())?, ids);
        let values = self.values.intern(&column, None)?;
        owners.into_iter().zip(values).for_each(|(id, value)| self.add(id, value));
        Ok(())
    }
    fn bytes(&self) -> usize {
        // Entries of both trees, whose nodes are two thirds full, give or take.
        let in_trees = self.by_arrival.len() * (24 + 16) * 3 / 2;
        self.values.bytes() + self.chosen.capacity() * 4 + in_trees
    }
}
