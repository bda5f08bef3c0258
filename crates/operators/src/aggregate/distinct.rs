//! `f(DISTINCT x)`: any aggregate behind a counted set of the values of each group.
//!
//! Values are interned once per column of states; each group counts how often it has seen each.
//! The inner aggregate sees a value when its count leaves 0, and loses it when a subtraction
//! brings the count back to 0, so distinct aggregates are as exact and invertible as the plain
//! ones. Where the inner aggregate depends on the order of values, values that move from one group
//! to another do so in the order in which the group first saw them.
//!
//! `COUNT(DISTINCT x)`, one group:
//!
//! ```text
//! step            counts        inner COUNT
//! add 7           7: 1          accumulates 7     1
//! add 7           7: 2                            1
//! subtract {7}    7: 1                            1
//! subtract {7}    none          loses 7           0
//! ```

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array};
use hashbrown::hash_map::{Entry, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use thalweg_core::shim::mix64;
use thalweg_core::{DataType, Error, Result};

use super::description::TypedAggregate;
use super::lists::ListBuilder;
use super::running::counted::{self, Counted};
use super::{Accumulator, RowOrder, StateColumns, StateRows, UpdateInput, concrete};
use crate::gradual::grow;
use crate::keys::KeyTable;

/// Value ids are small dense numbers: one mix spreads them.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(u32::from(byte)));
    }
    fn write_u32(&mut self, id: u32) {
        self.0 = mix64(self.0 ^ u64::from(id));
    }
}

/// What a group knows of a value.
#[derive(Clone, Copy)]
struct Sight {
    /// How often the group has seen it.
    times: u64,
    /// How many values the group had seen before. Means nothing once values were subtracted, which
    /// only exact aggregates do.
    rank: u32,
}

/// The values that a group has seen, by their ids.
type Seen = HashMap<u32, Sight, BuildHasherDefault<IdHasher>>;

pub(super) struct Distinct {
    of: TypedAggregate,
    values: KeyTable,
    /// In how many groups each value is.
    uses: Vec<u32>,
    groups: Vec<Seen>,
    inner: Box<dyn Accumulator>,
    value_ids: Vec<u32>,
}

impl Distinct {
    pub fn new(of: TypedAggregate, inner: Box<dyn Accumulator>) -> Result<Self> {
        Ok(Distinct {
            values: KeyTable::new(std::slice::from_ref(&of.types.argument))?,
            of,
            uses: Vec::new(),
            groups: Vec::new(),
            inner,
            value_ids: Vec::new(),
        })
    }

    fn empty(&self) -> Result<Self> {
        let inner = self.of.accumulator()?;
        Distinct::new(self.of.clone(), inner)
    }

    /// Counts a value; true if the group had not seen it.
    fn see(&mut self, id: u32, value: u32, times: u64) -> bool {
        let seen = &mut self.groups[id as usize];
        let rank = seen.len() as u32;
        match seen.entry(value) {
            Entry::Occupied(mut seen) => {
                seen.get_mut().times += times;
                false
            }
            Entry::Vacant(place) => {
                place.insert(Sight { times, rank });
                self.uses[value as usize] += 1;
                true
            }
        }
    }

    /// One group fewer has this value.
    fn lose(&mut self, value: u32) {
        let uses = &mut self.uses[value as usize];
        *uses -= 1;
        if *uses == 0 {
            self.values.release(value);
        }
    }

    /// The pairs of (place in `from`, value, count), with the values as a column.
    fn pairs(&self) -> Result<(Vec<(u32, u64)>, ArrayRef)> {
        let mut places = Vec::new();
        let mut values = Vec::new();
        for (place, seen) in self.groups.iter().enumerate() {
            for (value, times) in self.in_sequence(seen) {
                places.push((place as u32, times));
                values.push(value);
            }
        }
        Ok((places, self.values.take_keys(&values)?.swap_remove(0)))
    }

    /// The values of a group and how often it has seen each; where the order matters, in that in
    /// which it first saw them.
    fn in_sequence(&self, seen: &Seen) -> Vec<(u32, u64)> {
        let mut sights: Vec<(u32, Sight)> = seen.iter().map(|(&v, &sight)| (v, sight)).collect();
        if !self.of.is_exact() {
            sights.sort_unstable_by_key(|(_, sight)| sight.rank);
        }
        sights.into_iter().map(|(value, sight)| (value, sight.times)).collect()
    }

    /// Adds values to groups: a value, and how often its group has seen it, stand next to the
    /// group.
    fn add_pairs(
        &mut self,
        column: &ArrayRef,
        pairs: impl Iterator<Item = (u32, u64)>,
    ) -> Result<()> {
        let values = self.intern(column, None)?;
        let (mut new_ids, mut new_rows) = (Vec::new(), Vec::new());
        for (row, ((id, times), &value)) in pairs.zip(&values).enumerate() {
            if self.see(id, value, times) {
                new_ids.push(id);
                new_rows.push(row as u32);
            }
        }
        self.value_ids = values;
        let (argument, order) = (Some(column), RowOrder::default());
        self.inner.update(&UpdateInput { ids: &new_ids, rows: Some(&new_rows), argument, order })
    }

    /// Interns values and makes room to count them.
    fn intern(&mut self, column: &ArrayRef, rows: Option<&[u32]>) -> Result<Vec<u32>> {
        let mut ids = std::mem::take(&mut self.value_ids);
        ids.clear();
        self.values.intern(std::slice::from_ref(column), rows, &mut ids)?;
        self.uses.resize(self.values.id_limit(), 0);
        Ok(ids)
    }
}

impl Accumulator for Distinct {
    fn grow(&mut self, groups: usize) {
        grow(&mut self.groups, groups);
        self.inner.grow(groups);
    }

    fn update(&mut self, input: &UpdateInput<'_>) -> Result<()> {
        let column = input.column()?;
        let nulls = super::values::nulls(column).filter(|_| !self.of.function.takes_nulls());
        let kept: Vec<(u32, u32)> = (0..input.ids.len())
            .map(|place| (input.ids[place], input.row(place)))
            .filter(|&(_, row)| nulls.is_none_or(|nulls| nulls.is_valid(row as usize)))
            .collect();
        let rows: Vec<u32> = kept.iter().map(|&(_, row)| row).collect();
        let values = self.intern(column, Some(&rows))?;
        let (mut new_ids, mut new_rows) = (Vec::new(), Vec::new());
        for (&(id, row), &value) in kept.iter().zip(&values) {
            if self.see(id, value, 1) {
                new_ids.push(id);
                new_rows.push(row);
            }
        }
        self.value_ids = values;
        self.inner.update(&UpdateInput { ids: &new_ids, rows: Some(&new_rows), ..*input })
    }

    fn merge(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        let (pairs, column) = concrete::<Self>(from)?.pairs()?;
        let pairs = pairs.into_iter().map(|(place, times)| (ids[place as usize], times));
        self.add_pairs(&column, pairs)
    }

    fn subtract(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        let (pairs, column) = concrete::<Self>(from)?.pairs()?;
        let values = self.intern(&column, None)?;
        let (mut gone_ids, mut gone_rows) = (Vec::new(), Vec::new());
        for (row, (&(place, times), &value)) in pairs.iter().zip(&values).enumerate() {
            let id = ids[place as usize];
            let Entry::Occupied(mut seen) = self.groups[id as usize].entry(value) else {
                return Err(Error::internal("a distinct value was subtracted that is not there"));
            };
            seen.get_mut().times -= times;
            if seen.get().times == 0 {
                seen.remove();
                self.lose(value);
                gone_ids.push(id);
                gone_rows.push(row as u32);
            }
        }
        self.value_ids = values;
        let mut gone = self.of.accumulator()?;
        gone.grow(gone_ids.len());
        let each: Vec<u32> = (0..gone_ids.len() as u32).collect();
        let (argument, order) = (Some(&column), RowOrder::default());
        gone.update(&UpdateInput { ids: &each, rows: Some(&gone_rows), argument, order })?;
        self.inner.subtract(&gone_ids, gone.as_ref())
    }

    fn take(&mut self, ids: &[u32]) -> Result<Box<dyn Accumulator>> {
        let mut taken = self.empty()?;
        taken.grow(ids.len());
        taken.inner = self.inner.take(ids)?;
        let mut pairs = Vec::new();
        for (place, &id) in ids.iter().enumerate() {
            let seen = std::mem::take(&mut self.groups[id as usize]);
            let seen = self.in_sequence(&seen).into_iter();
            pairs.extend(seen.map(|(value, times)| (place as u32, value, times)));
        }
        let values: Vec<u32> = pairs.iter().map(|&(_, value, _)| value).collect();
        let column = self.values.take_keys(&values)?.swap_remove(0);
        let theirs = taken.intern(&column, None)?;
        for (&(place, value, times), &theirs) in pairs.iter().zip(&theirs) {
            taken.see(place, theirs, times);
            self.lose(value);
        }
        Ok(Box::new(taken))
    }

    fn reset(&mut self, ids: &[u32]) {
        for &id in ids {
            for value in std::mem::take(&mut self.groups[id as usize]).into_keys() {
                self.lose(value);
            }
        }
        self.inner.reset(ids);
    }

    fn clear(&mut self) {
        self.values.clear();
        self.uses.clear();
        self.groups.clear();
        self.inner.clear();
    }

    fn evaluate(&self, ids: &[u32]) -> Result<ArrayRef> {
        self.inner.evaluate(ids)
    }

    /// Captures the values of each group, in the order in which it saw them where that matters, and
    /// how often it saw each. The inner states follow from them.
    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let groups = ids.iter().map(|&id| self.in_sequence(&self.groups[id as usize]));
        capture_values(columns, &self.of.types.argument, &self.values, groups)
    }

    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let Counted { values, ids, times } =
            counted::restore(rows, &self.of.types.argument.arrow(), ids)?;
        self.add_pairs(&values, ids.into_iter().zip(times))
    }

    fn bytes(&self) -> usize {
        let sets: usize = self.groups.iter().map(Seen::allocation_size).sum();
        let columns = self.groups.capacity() * size_of::<Seen>() + self.uses.capacity() * 4;
        self.values.bytes() + sets + columns + self.inner.bytes()
    }
}

/// Captures the values of some groups, each with how often the group has seen it. Sets with and
/// without such counts are captured alike: where nobody counts, a value has been seen once.
pub(super) fn capture_values(
    columns: &mut StateColumns,
    argument: &DataType,
    table: &KeyTable,
    groups: impl Iterator<Item = Vec<(u32, u64)>>,
) -> Result<()> {
    let mut values_of = ListBuilder::new(argument);
    let mut times_of = ListBuilder::new(&DataType::BigInt);
    let (mut values, mut times) = (Vec::new(), Vec::new());
    for seen in groups {
        values_of.push(seen.len());
        times_of.push(seen.len());
        values.extend(seen.iter().map(|&(value, _)| value));
        times.extend(seen.iter().map(|&(_, times)| times as i64));
    }
    let values = table.take_keys(&values)?.swap_remove(0);
    columns.add("values", values_of.finish(values)?);
    columns.add("times", times_of.finish(Arc::new(Int64Array::from(times)))?);
    Ok(())
}
