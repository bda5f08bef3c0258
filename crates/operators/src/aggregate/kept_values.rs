//! Any aggregate in windows over a changelog: the values of each group by arrival, from which the
//! result is computed when it is wanted.
//!
//! Of several equal values the oldest is retracted, as Flink does; one that is not there is
//! ignored. Where repeated values change nothing (DISTINCT, MIN and MAX), a group holds each value
//! once, with how often it is there.
//!
//! Arrivals are numbered by the column, so that groups which are merged stay in the sequence in
//! which their rows came. The numbers are captured for the same reason.
//!
//! It costs a row of a tree for each value, and the result of a group costs all of its values.
//! Counts and sums need none of it ([`Aggregate::retractable`](super::Aggregate::retractable)).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, UInt64Array};
use arrow_schema::DataType as Arrow;
use thalweg_core::{Error, Result};

use super::description::TypedAggregate;
use super::running::values::Values;
use super::state::{elements_of, lists};
use super::{Accumulator, RowOrder, StateColumns, StateRows, UpdateInput, concrete};

/// A value of a group: when it came, which it is, and how often it is there.
#[derive(Clone, Copy)]
struct Kept {
    arrival: u64,
    value: u32,
    times: u64,
}

/// The values of all groups.
pub(super) struct KeptValues {
    of: TypedAggregate,
    /// True if a group holds a value once, whose repetitions are counted.
    counts_repeats: bool,
    values: Values,
    by_arrival: BTreeMap<(u32, u64), u32>,
    /// How often a value is there, by group, value and arrival.
    by_value: BTreeMap<(u32, u32, u64), u64>,
    /// The number of the next arrival.
    next_arrival: u64,
}

impl KeptValues {
    pub fn new(of: TypedAggregate, distinct: bool) -> Result<Self> {
        // What is built here may be evaluated much later: a type that does not fit is found now.
        of.accumulator()?;
        Ok(KeptValues {
            counts_repeats: distinct || of.function.ignores_repeats_running(true),
            values: Values::new(of.types.argument.clone())?,
            of,
            by_arrival: BTreeMap::new(),
            by_value: BTreeMap::new(),
            next_arrival: 0,
        })
    }

    /// The rows whose value counts, with their groups.
    fn counted(&self, input: &UpdateInput<'_>) -> Result<(Vec<u32>, Vec<u32>)> {
        let nulls = super::values::nulls(input.column()?);
        let nulls = nulls.filter(|_| !self.of.function.takes_nulls());
        let rows = input.ids.iter().enumerate().map(|(place, &id)| (id, input.row(place)));
        Ok(rows.filter(|&(_, row)| nulls.is_none_or(|nulls| nulls.is_valid(row as usize))).unzip())
    }

    /// The entry of a value in a group that came first.
    fn oldest(&self, id: u32, value: u32) -> Option<Kept> {
        let mut alike = self.by_value.range((id, value, 0)..=(id, value, u64::MAX));
        alike.next().map(|(&(_, _, arrival), &times)| Kept { arrival, value, times })
    }

    fn insert(&mut self, id: u32, kept: Kept) {
        self.by_arrival.insert((id, kept.arrival), kept.value);
        self.by_value.insert((id, kept.value, kept.arrival), kept.times);
        self.values.hold(kept.value);
    }

    fn remove(&mut self, id: u32, kept: Kept) {
        self.by_arrival.remove(&(id, kept.arrival));
        self.by_value.remove(&(id, kept.value, kept.arrival));
        self.values.release(kept.value);
    }

    /// Adds a value to a group; one that is there already keeps the place of the older.
    fn add(&mut self, id: u32, kept: Kept) {
        self.next_arrival = self.next_arrival.max(kept.arrival + 1);
        let Some(known) = self.oldest(id, kept.value).filter(|_| self.counts_repeats) else {
            return self.insert(id, kept);
        };
        let times = known.times + kept.times;
        if known.arrival < kept.arrival {
            self.by_value.insert((id, known.value, known.arrival), times);
        } else {
            self.insert(id, Kept { times, ..kept });
            self.remove(id, known);
        }
    }

    /// The values of a group by arrival.
    fn of_group(&self, id: u32) -> impl Iterator<Item = Kept> {
        self.by_arrival.range((id, 0)..=(id, u64::MAX)).map(move |(&(_, arrival), &value)| {
            let times = self.by_value.get(&(id, value, arrival)).copied().unwrap_or(1);
            Kept { arrival, value, times }
        })
    }

    /// The values of these groups, each with the place of its group.
    fn of_groups(&self, ids: &[u32]) -> (Vec<u32>, Vec<Kept>) {
        let placed = ids.iter().enumerate();
        placed
            .flat_map(|(place, &id)| self.of_group(id).map(move |kept| (place as u32, kept)))
            .unzip()
    }

    fn column_of(&self, kept: &[Kept]) -> Result<ArrayRef> {
        self.values.column(&kept.iter().map(|kept| kept.value).collect::<Vec<_>>())
    }

    /// Adds values of another column: the value in a row belongs to the group next to it.
    fn add_all(&mut self, column: &ArrayRef, groups: &[u32], kept: &[Kept]) -> Result<()> {
        let values = self.values.intern(column, None)?;
        for ((&id, kept), value) in groups.iter().zip(kept).zip(values) {
            self.add(id, Kept { value, ..*kept });
        }
        Ok(())
    }

    fn forget(&mut self, ids: &[u32]) {
        let (places, kept) = self.of_groups(ids);
        for (place, kept) in places.into_iter().zip(kept) {
            self.remove(ids[place as usize], kept);
        }
        self.values.settle();
    }
}

impl Accumulator for KeptValues {
    fn grow(&mut self, _groups: usize) {}

    fn update(&mut self, input: &UpdateInput<'_>) -> Result<()> {
        let (ids, rows) = self.counted(input)?;
        let values = self.values.intern(input.column()?, Some(&rows))?;
        for (id, value) in ids.into_iter().zip(values) {
            self.add(id, Kept { arrival: self.next_arrival, value, times: 1 });
        }
        Ok(())
    }

    fn retract(&mut self, input: &UpdateInput<'_>) -> Result<()> {
        let (ids, rows) = self.counted(input)?;
        let values = self.values.intern(input.column()?, Some(&rows))?;
        for (id, value) in ids.into_iter().zip(values) {
            match self.oldest(id, value) {
                None => self.values.pass(value),
                Some(kept) if kept.times > 1 => {
                    self.by_value.insert((id, value, kept.arrival), kept.times - 1);
                }
                Some(kept) => self.remove(id, kept),
            }
        }
        self.values.settle();
        Ok(())
    }

    fn merge(&mut self, ids: &[u32], from: &dyn Accumulator) -> Result<()> {
        let from = concrete::<Self>(from)?;
        let theirs: Vec<u32> = (0..ids.len() as u32).collect();
        let (places, kept) = from.of_groups(&theirs);
        let groups: Vec<u32> = places.into_iter().map(|place| ids[place as usize]).collect();
        self.add_all(&from.column_of(&kept)?, &groups, &kept)
    }

    fn subtract(&mut self, _ids: &[u32], _from: &dyn Accumulator) -> Result<()> {
        Err(Error::internal("windows over a changelog retract rows and subtract no states"))
    }

    fn take(&mut self, ids: &[u32]) -> Result<Box<dyn Accumulator>> {
        let mut taken = KeptValues {
            counts_repeats: self.counts_repeats,
            ..Self::new(self.of.clone(), false)?
        };
        let (places, kept) = self.of_groups(ids);
        taken.add_all(&self.column_of(&kept)?, &places, &kept)?;
        self.forget(ids);
        Ok(Box::new(taken))
    }

    fn reset(&mut self, ids: &[u32]) {
        self.forget(ids);
    }

    fn clear(&mut self) {
        let held = std::mem::take(&mut self.by_arrival);
        held.into_values().for_each(|value| self.values.release(value));
        self.values.settle();
        self.by_value.clear();
    }

    fn evaluate(&self, ids: &[u32]) -> Result<ArrayRef> {
        let mut states = self.of.accumulator()?;
        states.grow(ids.len());
        let (places, kept) = self.of_groups(ids);
        let (argument, order) = (Some(&self.column_of(&kept)?), RowOrder::default());
        states.update(&UpdateInput { ids: &places, rows: None, argument, order })?;
        states.evaluate(&(0..ids.len() as u32).collect::<Vec<_>>())
    }

    fn bytes(&self) -> usize {
        // Entries of both trees, whose nodes are two thirds full, give or take.
        self.values.bytes() + self.by_arrival.len() * (20 + 24) * 3 / 2
    }

    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let lengths: Vec<usize> = ids.iter().map(|&id| self.of_group(id).count()).collect();
        let (_, kept) = self.of_groups(ids);
        columns.add("values", lists(lengths.clone(), self.column_of(&kept)?)?);
        let times: Int64Array = kept.iter().map(|kept| Some(kept.times as i64)).collect();
        columns.add("times", lists(lengths.clone(), Arc::new(times))?);
        let arrivals: UInt64Array = kept.iter().map(|kept| Some(kept.arrival)).collect();
        columns.add("arrivals", lists(lengths, Arc::new(arrivals))?);
        Ok(())
    }

    fn restore(&mut self, ids: &[u32], rows: &StateRows<'_>) -> Result<()> {
        let (values, groups) = elements_of(rows.lists("values", &self.values.arrow())?, ids);
        let (times, of_times) = elements_of(rows.lists("times", &Arrow::Int64)?, ids);
        let (arrivals, of_arrivals) = elements_of(rows.lists("arrivals", &Arrow::UInt64)?, ids);
        let (times, arrivals) =
            (times.as_primitive::<Int64Type>(), arrivals.as_primitive::<UInt64Type>());
        let is_whole = times.null_count() + arrivals.null_count() == 0
            && times.values().iter().all(|&times| times > 0)
            && arrivals.values().iter().all(|&arrival| arrival < u64::MAX);
        if groups != of_times || groups != of_arrivals || !is_whole {
            return Err(rows.damaged("times", "does not count the values"));
        }
        let kept: Vec<Kept> = arrivals
            .values()
            .iter()
            .zip(times.values())
            .map(|(&arrival, &times)| Kept { arrival, value: 0, times: times as u64 })
            .collect();
        self.add_all(&values, &groups, &kept)
    }
}
