//! The runs of one key: each is a way in which some of its newest rows fit the beginning of the
//! pattern.
//!
//! The rows of a run follow one another, and those of a variable as well: a run is the number of
//! its first row and how many rows each variable has taken. So it costs a few numbers however long
//! it is, and runs share the rows, which are kept from the first row of the first run on.
//!
//! **Invariant:** runs stand in the order of their first rows, those that share one in the order in
//! which they came to be.
//!
//! ```text
//! pattern A B+ C, rows 10, 11, 12 taken:   Head { start: 10, variable: 1 (B) }, counts [1, 2, 0]
//! A = row 10, B = rows 11 and 12           the next row may be a B or a C
//! ```
//!
//! Row numbers count the rows of the key since it became known, so they never mean another row
//! while the key lives. `base` is the number of the first row that is still kept.

use std::collections::VecDeque;
use std::iter::repeat;
use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{ArrowPrimitiveType, Int64Type, UInt32Type, UInt64Type};
use arrow_array::{Array, Int64Array, UInt32Array, UInt64Array};
use thalweg_core::Result;

use super::spec::End;
use crate::aggregate::{StateColumns, StateRows, elements_of, lists};
use crate::rows::chunks::RowRef;

/// Where a run begins, and which variable takes its next row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// The number of its first row among those of the key.
    pub(super) start: u64,
    /// The time of that row.
    pub(super) time: i64,
    /// The variable that may take the next row.
    pub(super) variable: u32,
    /// Where the aggregates of its conditions stand, or [`NO_SLOT`].
    pub(super) slot: u32,
}

/// A run without aggregates.
pub(super) const NO_SLOT: u32 = u32::MAX;

/// Runs in their order.
#[derive(Default)]
pub(super) struct Runs {
    heads: Vec<Head>,
    /// For each run as many numbers as there are variables: how many rows they have taken.
    counts: Vec<u32>,
}

impl Runs {
    pub fn len(&self) -> usize {
        self.heads.len()
    }
    pub fn first(&self) -> Option<Head> {
        self.heads.first().copied()
    }
    pub fn at(&self, run: usize) -> (Head, &[u32]) {
        let width = self.counts.len() / self.heads.len();
        (self.heads[run], &self.counts[run * width..(run + 1) * width])
    }
    pub fn clear(&mut self) {
        self.heads.clear();
        self.counts.clear();
    }

    /// Adds a run behind all others.
    pub fn push(&mut self, head: Head, counts: &[u32]) {
        self.heads.push(head);
        self.counts.extend_from_slice(counts);
    }

    /// Adds a run behind those with its first row or an earlier one.
    pub fn insert(&mut self, head: Head, counts: &[u32]) {
        let place = self.heads.partition_point(|other| other.start <= head.start);
        self.heads.insert(place, head);
        let at = place * counts.len();
        self.counts.splice(at..at, counts.iter().copied());
    }

    /// Drops the runs that begin before this row, and leaves their slots.
    pub fn remove_before(&mut self, start: u64, left: &mut Vec<u32>) {
        self.remove_first(self.heads.partition_point(|head| head.start < start), left);
    }

    /// Drops the runs whose first row has this time or an earlier one.
    pub fn remove_begun_by(&mut self, time: i64, left: &mut Vec<u32>) {
        self.remove_first(self.heads.partition_point(|head| head.time <= time), left);
    }

    /// Drops the first runs.
    fn remove_first(&mut self, count: usize, left: &mut Vec<u32>) {
        if count > 0 {
            let width = self.counts.len() / self.heads.len();
            self.counts.drain(..count * width);
            let slots = self.heads.drain(..count).map(|head| head.slot);
            left.extend(slots.filter(|&slot| slot != NO_SLOT));
        }
    }

    /// Captures the runs of several keys, whose rows are numbered from these on: for each key a
    /// list of each number of its runs. The states of aggregates are not captured: they start from
    /// scratch from the rows.
    pub fn capture(runs: &[(&Runs, u64)], state: &mut StateColumns) -> Result<()> {
        let heads = || runs.iter().flat_map(|(runs, base)| runs.heads.iter().zip(repeat(*base)));
        let lengths: Vec<usize> = runs.iter().map(|(runs, _)| runs.len()).collect();
        let start = UInt64Array::from_iter_values(heads().map(|(head, base)| head.start - base));
        state.add("start", lists(lengths.clone(), Arc::new(start))?);
        let time = Int64Array::from_iter_values(heads().map(|(head, _)| head.time));
        state.add("time_ms", lists(lengths.clone(), Arc::new(time))?);
        let variable = UInt32Array::from_iter_values(heads().map(|(head, _)| head.variable));
        state.add("variable", lists(lengths, Arc::new(variable))?);
        let counts = runs.iter().flat_map(|(runs, _)| runs.counts.iter().copied());
        let lengths = runs.iter().map(|(runs, _)| runs.counts.len()).collect();
        state.add("taken", lists(lengths, Arc::new(UInt32Array::from_iter_values(counts)))?);
        Ok(())
    }

    /// Restores what [`Runs::capture`] wrote of keys that have this many rows; the runs of each. A
    /// pattern has `variables` variables. A run of those that continue has taken all rows from its
    /// first.
    pub fn restore(
        state: &StateRows<'_>,
        rows: &[u64],
        variables: usize,
        are_open: bool,
    ) -> Result<Vec<Runs>> {
        let (starts, owners) = numbers_of::<UInt64Type>(state, "start", rows.len())?;
        let (times, of_times) = numbers_of::<Int64Type>(state, "time_ms", rows.len())?;
        let (standing, of_standing) = numbers_of::<UInt32Type>(state, "variable", rows.len())?;
        let (counts, of_counts) = numbers_of::<UInt32Type>(state, "taken", rows.len())?;
        let is_parallel = of_counts.iter().step_by(variables).eq(&owners);
        if of_times != owners || of_standing != owners || !is_parallel {
            return Err(state.damaged("taken", "does not belong to the runs"));
        }
        let mut runs: Vec<Runs> = rows.iter().map(|_| Runs::default()).collect();
        let each = starts.iter().zip(times).zip(standing).zip(counts.chunks(variables));
        for (key, (((&start, time), variable), counts)) in owners.into_iter().zip(each) {
            let (of_key, rows) = (&mut runs[key as usize], rows[key as usize]);
            let taken: u64 = counts.iter().map(|&count| u64::from(count)).sum();
            let end = start.saturating_add(taken);
            let fits = if are_open { end == rows } else { end <= rows };
            let ascends = of_key.heads.last().is_none_or(|last| last.start <= start);
            if !fits || !ascends || counts.len() != variables || variable as usize >= variables {
                return Err(state.damaged("start", "has runs that cannot be"));
            }
            of_key.push(Head { start, time, variable, slot: NO_SLOT }, counts);
        }
        Ok(runs)
    }

    fn bytes(&self) -> usize {
        self.heads.capacity() * size_of::<Head>() + self.counts.capacity() * 4
    }
}

/// The numbers of a column of lists, of which none is NULL, and to which of this many keys each
/// belongs.
fn numbers_of<T: ArrowPrimitiveType>(
    state: &StateRows<'_>,
    part: &str,
    keys: usize,
) -> Result<(Vec<T::Native>, Vec<u32>)> {
    let keys: Vec<u32> = (0..keys as u32).collect();
    let (numbers, owners) = elements_of(state.lists(part, &T::DATA_TYPE)?, &keys);
    match numbers.null_count() {
        0 => Ok((numbers.as_primitive::<T>().values().to_vec(), owners)),
        _ => Err(state.damaged(part, "holds NULL")),
    }
}

/// What is known of one key.
#[derive(Default)]
pub(super) struct Key {
    /// The rows that runs may still ask for.
    pub(super) rows: VecDeque<RowRef>,
    /// The number of the first of these.
    pub(super) base: u64,
    /// What may become a match.
    pub(super) runs: Runs,
    /// Matches that wait for runs that began earlier: those come first.
    pub(super) matches: Runs,
    /// Rows that wait for their time.
    pub(super) waiting: u32,
    /// When it is looked at for runs that took too long.
    pub(super) alarm: Option<i64>,
}

impl Key {
    /// One more than the number of the newest row.
    pub fn end(&self) -> u64 {
        self.base + self.rows.len() as u64
    }

    /// Where a row is kept.
    pub fn row(&self, number: u64) -> RowRef {
        self.rows[(number - self.base) as usize]
    }

    /// True if nothing is known that a new key would not know.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0 && self.runs.len() == 0 && self.matches.len() == 0
    }

    /// The number of the first row that anything may ask for.
    pub fn needed_from(&self) -> u64 {
        let first = |runs: &Runs| runs.first().map_or(u64::MAX, |head| head.start);
        first(&self.runs).min(first(&self.matches)).min(self.end())
    }

    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<RowRef>() + self.runs.bytes() + self.matches.bytes()
    }
}

/// The rows that a run has taken, and perhaps one more that is tried.
#[derive(Clone, Copy)]
pub(super) struct Taken<'a> {
    /// The number of the first row.
    pub(super) start: u64,
    /// How many rows each variable has.
    pub(super) counts: &'a [u32],
    /// The variable for which the next row is tried, if one is: it counts as that variable's last.
    pub(super) tried: Option<usize>,
}

impl Taken<'_> {
    /// The numbers of the rows of a variable, or of all.
    pub fn rows(&self, variable: Option<usize>) -> Range<u64> {
        let count = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        let Some(variable) = variable else {
            let all = count(self.counts) + u64::from(self.tried.is_some());
            return self.start..self.start + all;
        };
        let from = self.start + count(&self.counts[..variable]);
        let tried = u64::from(self.tried == Some(variable));
        from..from + u64::from(self.counts[variable]) + tried
    }

    /// The number of one row of a variable, counted from an end.
    pub fn row(&self, variable: Option<usize>, end: End, offset: u32) -> Option<u64> {
        let rows = self.rows(variable);
        let offset = u64::from(offset);
        let is_there = offset < rows.end - rows.start;
        is_there.then(|| match end {
            End::First => rows.start + offset,
            End::Last => rows.end - 1 - offset,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn starts(runs: &Runs) -> Vec<(u64, u32)> {
        (0..runs.len()).map(|run| (runs.at(run).0.start, runs.at(run).1[1])).collect()
    }

    #[test]
    fn runs_stay_in_the_order_of_their_first_rows() {
        let head = |start| Head { start, time: start as i64, variable: 0, slot: start as u32 };
        let mut runs = Runs::default();
        for (start, mark) in [(5, 0), (3, 1), (5, 2), (4, 3), (3, 4)] {
            runs.insert(head(start), &[9, mark]);
        }
        assert_eq!(starts(&runs), [(3, 1), (3, 4), (4, 3), (5, 0), (5, 2)]);
        let mut left = Vec::new();
        runs.remove_before(4, &mut left);
        assert_eq!(starts(&runs), [(4, 3), (5, 0), (5, 2)]);
        runs.remove_begun_by(4, &mut left);
        assert_eq!(starts(&runs), [(5, 0), (5, 2)]);
        runs.remove_first(1, &mut left);
        assert_eq!(starts(&runs), [(5, 2)]);
        assert_eq!(left, [3, 3, 4, 5]);
        runs.remove_before(6, &mut left);
        assert_eq!(runs.first(), None);
    }

    #[test]
    fn a_row_that_is_tried_is_the_last_of_its_variable_and_of_all() {
        let taken = Taken { start: 10, counts: &[2, 0, 0], tried: Some(1) };
        assert_eq!(taken.rows(Some(0)), 10..12);
        assert_eq!(taken.rows(Some(1)), 12..13);
        assert!(taken.rows(Some(2)).is_empty());
        assert_eq!(taken.rows(None), 10..13);
        assert_eq!(taken.row(Some(0), End::First, 1), Some(11));
        assert_eq!(taken.row(Some(0), End::Last, 1), Some(10));
        assert_eq!(taken.row(Some(0), End::Last, 2), None);
        assert_eq!(taken.row(None, End::Last, 0), Some(12));
    }
}
