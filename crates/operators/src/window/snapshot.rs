//! The states of windows in tables of state, and back.
//!
//! A row is the state of one key in one slice (or session, or window of so many rows): the virtual
//! partition of the key, the bounds, the key by the names and types of the input's columns, how many
//! rows there are, and the columns of each aggregate ([`StateColumns`]). Columns of the engine's own
//! begin with `$`.
//!
//! Two tables tell aligned windows, which come and go with the watermark:
//!
//! | table | a row is | bounds |
//! |---|---|---|
//! | `slices` | a key's part of a slice that is in no window so far | the ends of the first and the last window that hold it |
//! | `entered` | a key's part of a slice of the window that leaves next | the same; the first is the window that leaves next, and `$place` tells which part was added up first |
//!
//! Where any partition takes any row, several may tell a key's part of one slice; the parts are merged
//! when they come back. What follows from that is not told: references to keys, sums over slices, the
//! tree, the order of groups.
//!
//! Windows that share no slice are told in the same way, each as one slice; so it does not matter which
//! of the implementations goes on with them. They do not count rows that no result counts: a key then
//! has one row.

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int64Type};
use arrow_array::{ArrayRef, Int64Array, PrimitiveArray, RecordBatch};
use arrow_select::concat::concat_batches;
use thalweg_core::snapshot::TableRows;
use thalweg_core::{Captured, Restored, Result};

use super::judge::SliceKey;
use super::slices::{Calls, Partial, Slices};
use crate::aggregate::{Accumulator, StateColumns, StateRows};
use crate::keys::KeyTable;
use crate::tables::{does_not_fit, numbers_of, state_batch};

/// The table of slices that are in no window so far.
pub(super) const SLICES: &str = "slices";
/// The table of what the window consists of that leaves next.
pub(super) const ENTERED: &str = "entered";

/// The ends of the first and of the last window that hold a slice, in milliseconds.
const FIRST_END: &str = "$first_end";
const LAST_END: &str = "$last_end";
/// The number of a part among those of the same last end.
const PLACE: &str = "$place";
/// How many rows a key has there.
const ROWS: &str = "$rows";

/// Batches with fewer rows are put together when they are written.
const BATCH_ROWS: usize = 16 * 1024;

/// States of some keys: those of `keys[i]` stand at `places[i]` of the columns.
pub(super) struct States<'a> {
    pub(super) keys: &'a [u32],
    pub(super) places: Cow<'a, [u32]>,
    /// Empty where rows are not counted.
    pub(super) counts: &'a [i64],
    pub(super) accumulators: &'a [Box<dyn Accumulator>],
}

impl<'a> States<'a> {
    /// Columns that are indexed by key.
    pub(super) fn by_key(
        keys: &'a [u32],
        counts: &'a [i64],
        accumulators: &'a [Box<dyn Accumulator>],
    ) -> Self {
        States { keys, places: Cow::Borrowed(keys), counts, accumulators }
    }

    pub(super) fn of(partial: &'a Partial) -> Self {
        let places = (0..partial.ids.len() as u32).collect();
        let Partial { ids: keys, counts, accumulators } = partial;
        States { keys, places, counts, accumulators }
    }
}

/// Columns that say which part of the state rows are, by name.
pub(super) type Marks = Vec<(String, ArrayRef)>;

/// A mark with a number per row.
pub(super) fn mark<T: ArrowPrimitiveType>(
    name: &str,
    numbers: impl IntoIterator<Item = T::Native>,
) -> (String, ArrayRef) {
    (name.to_owned(), Arc::new(PrimitiveArray::<T>::from_iter_values(numbers)))
}

impl Calls {
    /// The rows that tell these states.
    pub(super) fn tell(
        &self,
        keys: &KeyTable,
        marks: Marks,
        states: &States<'_>,
    ) -> Result<RecordBatch> {
        let (owners, named) = self.told_keys.tell(keys, states.keys)?;
        let count = |&place: &u32| states.counts.get(place as usize).copied().unwrap_or(1);
        let counts = states.places.iter().map(count);
        let counts: ArrayRef = Arc::new(Int64Array::from_iter_values(counts));
        let mut told = StateColumns::default();
        for (name, accumulator) in self.told_names.iter().zip(states.accumulators) {
            told.begin(name);
            accumulator.tell(&states.places, &mut told)?;
        }
        let mut columns = marks;
        columns.extend(named);
        columns.push((ROWS.to_owned(), counts));
        columns.extend(told.finish());
        state_batch(owners, columns)
    }

    /// The rows of a table without any.
    pub(super) fn tell_none(&self, marks: Marks) -> Result<RecordBatch> {
        let accumulators = self.accumulators()?;
        let keys = KeyTable::new(&self.key_types)?;
        self.tell(&keys, marks, &States::by_key(&[], &[], &accumulators))
    }

    /// The key columns of some rows, and their states, which have no ids yet.
    pub(super) fn recall(&self, rows: &RecordBatch) -> Result<(Vec<ArrayRef>, Partial)> {
        let places: Vec<u32> = (0..rows.num_rows() as u32).collect();
        let (mut counts, mut accumulators) = (Vec::new(), self.accumulators()?);
        self.recall_at(rows, &places, places.len(), &mut counts, &mut accumulators)?;
        let partial = Partial { ids: Vec::new(), counts, accumulators };
        Ok((self.told_keys.columns(rows)?, partial))
    }

    /// Takes the states of some rows back to these places, which are empty, in columns of so many groups.
    pub(super) fn recall_at(
        &self,
        rows: &RecordBatch,
        places: &[u32],
        groups: usize,
        counts: &mut Vec<i64>,
        accumulators: &mut [Box<dyn Accumulator>],
    ) -> Result<()> {
        counts.resize(groups, 0);
        for (&place, &count) in places.iter().zip(numbers_of::<Int64Type>(rows, ROWS)?) {
            if count <= 0 {
                return Err(does_not_fit(format!("column '{ROWS}' counts no rows")));
            }
            counts[place as usize] = count;
        }
        for (name, accumulator) in self.told_names.iter().zip(accumulators) {
            accumulator.grow(groups);
            accumulator.recall(places, &StateRows::new(rows, name))?;
        }
        Ok(())
    }
}

/// Tells a table of these rows, small batches of which are put together when they are written.
pub(super) fn tell_rows(
    captured: &mut Captured,
    name: &'static str,
    none: &RecordBatch,
    batches: Vec<RecordBatch>,
) {
    let schema = none.schema();
    let make = move || {
        let mut rows = Vec::new();
        let mut small: Vec<RecordBatch> = Vec::new();
        let mut waiting = 0;
        for batch in batches {
            waiting += batch.num_rows();
            small.push(batch);
            if waiting >= BATCH_ROWS {
                rows.push(concat_batches(&small[0].schema(), &small)?);
                small.clear();
                waiting = 0;
            }
        }
        if let Some(first) = small.first() {
            rows.push(concat_batches(&first.schema(), &small)?);
        }
        Ok(TableRows { rows, removed: Vec::new() })
    };
    captured.add_later(name, schema, Box::new(make));
}

/// The bounds of a slice, for each of its rows.
fn bounds(key: SliceKey, rows: usize) -> Marks {
    let of = |name, end| mark::<Int64Type>(name, std::iter::repeat_n(end, rows));
    vec![of(FIRST_END, key.enter), of(LAST_END, key.leave)]
}

/// Tells the slices that are in no window so far, each with the table of its keys.
pub(super) fn tell_slices<'a>(
    captured: &mut Captured,
    calls: &Calls,
    slices: impl Iterator<Item = (SliceKey, &'a KeyTable, States<'a>)>,
) -> Result<()> {
    let mut batches = Vec::new();
    for (key, keys, states) in slices {
        batches.push(calls.tell(keys, bounds(key, states.keys.len()), &states)?);
    }
    let none = calls.tell_none(bounds(SliceKey { enter: 0, leave: 0 }, 0))?;
    tell_rows(captured, SLICES, &none, batches);
    Ok(())
}

/// What the window that leaves next consists of: `(place, last end, states)`.
pub(super) type Entered<'a> = Vec<(usize, i64, States<'a>)>;

/// Tells what the window consists of that leaves next, at this end.
pub(super) fn tell_entered(
    captured: &mut Captured,
    slices: &Slices,
    next_end: i64,
    entered: &Entered<'_>,
) -> Result<()> {
    let marks = |place: usize, key: SliceKey, rows: usize| {
        let mut marks = bounds(key, rows);
        marks.push(mark::<Int64Type>(PLACE, std::iter::repeat_n(place as i64, rows)));
        marks
    };
    let tell = |(place, leave, states): &(usize, i64, States<'_>)| {
        let key = SliceKey { enter: next_end, leave: *leave };
        slices.calls.tell(&slices.keys, marks(*place, key, states.keys.len()), states)
    };
    let batches = entered.iter().map(tell).collect::<Result<_>>()?;
    let none = slices.calls.tell_none(marks(0, SliceKey { enter: 0, leave: 0 }, 0))?;
    tell_rows(captured, ENTERED, &none, batches);
    Ok(())
}

/// Rows of one slice.
pub(super) struct SliceRows {
    pub(super) key: SliceKey,
    pub(super) place: i64,
    pub(super) rows: RecordBatch,
}

/// The rows of the table of slices, by slice. No slice is in windows that lie further apart than
/// `span_ms`.
///
/// # Errors
/// If the table does not fit.
pub(super) fn recall_slices(restored: &Restored, span_ms: i64) -> Result<Vec<SliceRows>> {
    by_slice(restored.table(SLICES), span_ms, false)
}

/// The rows of what has entered, by part, in the order in which the parts were added up.
///
/// # Errors
/// If the table does not fit.
pub(super) fn recall_entered(restored: &Restored, span_ms: i64) -> Result<Vec<SliceRows>> {
    let mut parts = by_slice(restored.table(ENTERED), span_ms, true)?;
    let apart = parts.windows(2).any(|pair| pair[0].key.enter != pair[1].key.enter);
    if apart {
        return Err(does_not_fit("two windows are to leave next".to_owned()));
    }
    parts.sort_by_key(|part| (part.place, part.key));
    Ok(parts)
}

fn by_slice(batches: &[RecordBatch], span_ms: i64, placed: bool) -> Result<Vec<SliceRows>> {
    let mut parts = Vec::new();
    for batch in batches {
        let first = numbers_of::<Int64Type>(batch, FIRST_END)?;
        let last = numbers_of::<Int64Type>(batch, LAST_END)?;
        let places = placed.then(|| numbers_of::<Int64Type>(batch, PLACE)).transpose()?;
        let of = |row: usize| (first[row], last[row], places.map_or(0, |places| places[row]));
        let mut from = 0;
        while from < batch.num_rows() {
            let (enter, leave, place) = of(from);
            let alike = (from..batch.num_rows()).take_while(|&row| of(row) == of(from)).count();
            if leave.checked_sub(enter).is_none_or(|apart| apart < 0 || apart > span_ms) {
                return Err(does_not_fit(format!(
                    "no slice enters at {enter} and leaves at {leave}"
                )));
            }
            let rows = batch.slice(from, alike);
            parts.push(SliceRows { key: SliceKey { enter, leave }, place, rows });
            from += alike;
        }
    }
    Ok(parts)
}
