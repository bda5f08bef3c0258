//! `f(DISTINCT x)` where states are only ever added to and dropped as a whole: any aggregate behind
//! the set of the values of each group.
//!
//! Unlike [`Distinct`](super::distinct) it does not count how often a group has seen a value, so it
//! cannot subtract. What it keeps is flat: one table of values, and the pairs of group and value in
//! one other; a group's pairs are chained, newest first. As long as there is one group at most, as
//! in windows without keys, the values are its pairs and there is no other table: since values are
//! numbered in the order in which they come, a value is new to the group exactly if its number is
//! the next one.
//!
//! **Invariants.** Values are interned in the order in which they are then seen. With one group
//! at most, `pairs` and `seen` are empty and the group has exactly the values below `known`.
//!
//! What is taken or reset leaves its values behind until everything is cleared. Once states were
//! added whose values are others ([`Accumulator::merge_apart`]), there are results, but the values
//! are not all here: whoever asks for them, or adds more, gets an error.

use arrow_array::ArrayRef;
use thalweg_core::shim::mix64;
use thalweg_core::{Error, Result};

use super::description::TypedAggregate;
use super::distinct::capture_values;
use super::running::counted::{self, Counted};
use super::{Accumulator, RowOrder, StateColumns, StateRows, UpdateInput, concrete, joined};
use crate::gradual::{Entry, GradualTable, Pages};
use crate::keys::KeyTable;

/// The end of a chain.
const NONE: u32 = u32::MAX;

/// A value of a group, and the pair of the group before it.
#[derive(Clone, Copy)]
struct SeenPair {
    value: u32,
    before: u32,
}

pub(super) struct DistinctSet {
    of: TypedAggregate,
    values: KeyTable,
    /// How many values the only group has.
    known: u32,
    /// The newest pair of each group.
    newest: Vec<u32>,
    pairs: Pages<SeenPair>,
    /// The pairs in which a group has a value, each as one number.
    seen: GradualTable<u64>,
    inner: Box<dyn Accumulator>,
    /// True if the inner states know of values that are not here.
    is_partial: bool,
    value_ids: Vec<u32>,
}

impl DistinctSet {
    pub fn new(of: TypedAggregate, inner: Box<dyn Accumulator>) -> Result<Self> {
        Ok(DistinctSet {
            values: KeyTable::new(std::slice::from_ref(&of.types.argument))?,
            of,
            known: 0,
            newest: Vec::new(),
            pairs: Pages::default(),
            seen: GradualTable::default(),
            inner,
            is_partial: false,
            value_ids: Vec::new(),
        })
    }

    fn check_whole(&self) -> Result<()> {
        match self.is_partial {
            true => Err(Error::internal("a set of distinct values was asked for values elsewhere")),
            false => Ok(()),
        }
    }

    /// The places where a group has not had the value, which it now has.
    fn see(&mut self, groups: &[u32], values: &[u32]) -> Vec<u32> {
        if self.newest.len() <= 1 {
            return self.see_in_only_group(values);
        }
        let see = |(place, (&group, &value))| self.see_pair(group, value).then_some(place);
        (0..).zip(groups.iter().zip(values)).filter_map(see).collect()
    }

    /// The same without a branch: which values are new cannot be predicted.
    fn see_in_only_group(&mut self, values: &[u32]) -> Vec<u32> {
        let mut new = vec![0; values.len()];
        let first = self.known;
        for (place, &value) in (0..).zip(values) {
            new[(self.known - first) as usize] = place;
            self.known += u32::from(value == self.known);
        }
        new.truncate((self.known - first) as usize);
        new
    }

    fn see_pair(&mut self, group: u32, value: u32) -> bool {
        let pair = joined(group, value);
        match self.seen.entry(mix64(pair), |&other| other == pair, |&other| mix64(other)) {
            Entry::Occupied(_) => false,
            Entry::Vacant(place) => {
                place.insert(pair);
                let newest = &mut self.newest[group as usize];
                self.pairs.push(SeenPair { value, before: *newest });
                *newest = self.pairs.len() as u32 - 1;
                true
            }
        }
    }

    /// The values of a group in the order in which they came.
    fn values_of(&self, group: u32) -> Vec<u32> {
        if self.newest.len() <= 1 {
            return (0..self.known).collect();
        }
        let mut values = Vec::new();
        let mut next = self.newest[group as usize];
        while let Some(pair) = self.pairs.get(next as usize) {
            values.push(pair.value);
            next = pair.before;
        }
        values.reverse();
        values
    }

    /// Adds the values of the rows named, or all, to the groups `ids`.
    fn add(
        &mut self,
        ids: &[u32],
        rows: Option<&[u32]>,
        column: &ArrayRef,
        order: RowOrder,
    ) -> Result<()> {
        self.check_whole()?;
        let mut values = std::mem::take(&mut self.value_ids);
        values.clear();
        self.values.intern(std::slice::from_ref(column), rows, &mut values)?;
        let mut new = self.see(ids, &values);
        self.value_ids = values;
        let new_ids: Vec<u32> = new.iter().map(|&place| ids[place as usize]).collect();
        if let Some(rows) = rows {
            new.iter_mut().for_each(|place| *place = rows[*place as usize]);
        }
        let (rows, argument) = (Some(&new[..]), Some(column));
        self.inner.update(&UpdateInput { ids: &new_ids, rows, argument, order })
    }

    /// The values of these groups, with the place of the group among them for each.
    fn values_of_all(&self, groups: impl Iterator<Item = u32>) -> Result<(Vec<u32>, ArrayRef)> {
        self.check_whole()?;
        let (mut places, mut values) = (Vec::new(), Vec::new());
        for (place, group) in groups.enumerate() {
            values.extend(self.values_of(group));
            places.resize(values.len(), place as u32);
        }
        Ok((places, self.values.take_keys(&values)?.swap_remove(0)))
    }

    /// Adds values to groups of a set whose inner states have them already.
    fn adopt(&mut self, groups: &[u32], column: &ArrayRef) -> Result<()> {
        let mut values = Vec::with_capacity(groups.len());
        self.values.intern(std::slice::from_ref(column), None, &mut values)?;
        self.see(groups, &values);
        Ok(())
    }
}

impl Accumulator for DistinctSet {
    fn grow(&mut self, groups: usize) {
        if self.newest.len() < groups {
            let was_one = self.newest.len() <= 1;
            self.newest.resize(groups, NONE);
            if was_one && groups > 1 {
                // The only group's values become pairs like those of others.
                (0..std::mem::take(&mut self.known)).for_each(|value| {
                    self.see_pair(0, value);
                });
            }
        }
        self.inner.grow(groups);
    }

    fn update(&mut self, input: &UpdateInput<'_>) -> Result<()> {
        let column = input.column()?;
        let nulls = super::values::nulls(column).filter(|_| !self.of.function.takes_nulls());
        let Some(nulls) = nulls else {
            return self.add(input.ids, input.rows, column, input.order);
        };
        let (ids, rows): (Vec<u32>, Vec<u32>) = (0..input.ids.len())
            .map(|place| (input.ids[place], input.row(place)))
            .filter(|&(_, row)| nulls.is_valid(row as usize))
            .unzip();
        self.add(&ids, Some(&rows), column, input.order)
    }

    fn merge(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        let from = concrete::<Self>(from)?;
        let groups = from.newest.len() as u32;
        let (mut places, column) = from.values_of_all(0..groups)?;
        places.iter_mut().for_each(|place| *place = ids[*place as usize]);
        self.add(&places, None, &column, RowOrder::default())
    }

    /// From here on `is_partial` refuses rows and questions for values; only results may be asked
    /// for.
    fn merge_apart(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        self.is_partial = true;
        self.inner.merge_apart(ids, concrete::<Self>(from)?.inner.as_ref())
    }

    fn distinct_values(&self) -> usize {
        self.values.len()
    }

    fn subtract(&mut self, _ids: &[u32], _from: &dyn Accumulator) -> Result<()> {
        Err(Error::internal("a set of distinct values was asked to subtract"))
    }

    fn take(&mut self, ids: &[u32]) -> Result<Box<dyn Accumulator>> {
        self.check_whole()?;
        let inner = self.of.accumulator()?;
        let mut taken = DistinctSet::new(self.of.clone(), inner)?;
        taken.grow(ids.len());
        taken.inner = self.inner.take(ids)?;
        if self.newest.len() <= 1 && ids.len() == 1 {
            std::mem::swap(&mut taken.values, &mut self.values);
            taken.known = std::mem::take(&mut self.known);
            return Ok(Box::new(taken));
        }
        let (places, column) = self.values_of_all(ids.iter().copied())?;
        taken.adopt(&places, &column)?;
        self.reset(ids);
        Ok(Box::new(taken))
    }

    fn reset(&mut self, ids: &[u32]) {
        self.inner.reset(ids);
        if self.newest.len() <= 1 && !ids.is_empty() {
            self.values.clear();
            self.known = 0;
            self.is_partial = false;
            return;
        }
        for &group in ids {
            for value in self.values_of(group) {
                let pair = joined(group, value);
                self.seen.remove(mix64(pair), |&other| other == pair);
            }
            self.newest[group as usize] = NONE;
        }
    }

    fn clear(&mut self) {
        self.values.clear();
        self.known = 0;
        self.newest.clear();
        self.pairs.clear();
        self.seen.clear();
        self.inner.clear();
        self.is_partial = false;
    }

    fn evaluate(&self, ids: &[u32]) -> Result<ArrayRef> {
        self.inner.evaluate(ids)
    }

    /// Captures what a counted set would capture that has seen each value once.
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        self.check_whole()?;
        let once = |value| (value, 1);
        let groups = ids.iter().map(|&id| self.values_of(id).into_iter().map(once).collect());
        capture_values(columns, &self.of.types.argument, &self.values, groups)
    }

    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let argument = self.of.types.argument.arrow();
        let Counted { values, ids, .. } = counted::restore(rows, &argument, ids)?;
        self.add(&ids, None, &values, RowOrder::default())
    }

    fn bytes(&self) -> usize {
        let pairs = self.pairs.bytes() + self.seen.bytes();
        let columns = (self.newest.capacity() + self.value_ids.capacity()) * 4;
        self.values.bytes() + pairs + columns + self.inner.bytes()
    }
}
