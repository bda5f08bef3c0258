//! Sorted inputs become one sequence that depends on their rows alone: the merge by
//! (time, input, position) of contract `event_time`, for one thread, over whole batches.
//!
//! **The invariant that makes it work:** nothing that comes later by an input is older than its
//! *frontier*; so a row (t, input i) is final, or *ready*, as soon as (t, i) < (frontier of j, j)
//! for every other input j that has no waiting row before it.
//!
//! # Protocol
//! - [`push`](SortedMerge::push) adds rows to an input and moves its frontier to the last time;
//!   [`advance`](SortedMerge::advance) moves it behind a watermark, [`finish`](SortedMerge::finish)
//!   to the end of time. Rows that are older than the frontier, or have no time, are refused, and
//!   the merge is as it was.
//! - [`ready`](SortedMerge::ready) takes the next ready rows. Called until it says `None`, the
//!   batches that it returns, one behind the other, are the stable sort of all ready rows by time,
//!   inputs in ascending order. Where one batch ends and the next begins means nothing.
//! - [`mark`](SortedMerge::mark) puts a mark behind the rows of an input. It takes part like a row
//!   at the input's frontier; `ready` stops before it, and [`take_mark`](SortedMerge::take_mark)
//!   takes it. A caller can so give something a place in the merged sequence, such as a watermark.
//!
//! # Two ways to pick rows
//! Where rows come in runs, the end of each run is looked for in steps that double, and its rows
//! are copied whole; a long run is a slice and not copied. Where they interleave, a share of each
//! input goes through a tournament that merges without branches, and columns are gathered once
//! (`tournament`, `columns`). Which way is taken follows from the mean length of runs seen last; it
//! shows in speed only.
//!
//! What it does not do: nobody waits in here, nothing is measured against a memory limit, and
//! unsorted rows are not sorted (a source that promises order does that).

mod columns;
mod input;
mod pick;
mod rows;
#[cfg(test)]
mod tests;
mod tournament;

use std::sync::Arc;

use arrow_array::{Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{FieldRef, SchemaRef};
use thalweg_core::{Error, Result, Watermark, WatermarkBefore};

use columns::{PickedRows, times_of};
use input::{Input, Item};
use pick::Picker;
use rows::Pair;
pub use rows::{MergedRows, SortedRows};

/// Something that waits in an input.
pub(crate) enum WaitingItem<'a> {
    /// Rows, from this one on.
    Rows(&'a SortedRows, usize),
    /// A mark at this time.
    Mark(i64),
}

/// Merges sorted inputs.
///
/// ```
/// # use std::sync::Arc;
/// # use arrow_array::{Int64Array, RecordBatch, cast::AsArray, types::Int64Type};
/// # use thalweg_core::Watermark;
/// use thalweg_runtime::sorted_merge::SortedMerge;
/// let rows = |times: &[i64]| {
///     let times = Int64Array::from(times.to_vec());
///     RecordBatch::try_from_iter([("time", Arc::new(times) as _)])
/// };
/// let mut merge = SortedMerge::new(2, 0);
/// merge.push(0, rows(&[1, 4, 9])?, None)?;
/// merge.push(1, rows(&[2, 3])?, None)?;
/// merge.advance(1, Watermark(5));
/// let merged = merge.ready(1024)?.expect("rows are ready");
/// assert_eq!(merged.times[..], [1, 2, 3, 4]);
/// # Ok::<(), thalweg_core::Error>(())
/// ```
pub struct SortedMerge {
    inputs: Vec<Input>,
    time_column: Option<usize>,
    with_origins: bool,
    with_shared_stamps: bool,
    /// The schema of what came first; all columns that come later are of its types.
    schema: Option<SchemaRef>,
    picker: Picker,
}

impl SortedMerge {
    /// A merge of this many inputs with their time in this column: BIGINT or a timestamp, in
    /// milliseconds.
    pub fn new(inputs: usize, time_column: usize) -> Self {
        SortedMerge { time_column: Some(time_column), ..Self::with_separate_times(inputs) }
    }

    /// A merge of inputs whose times are no column: rows come by [`push_rows`](Self::push_rows).
    pub fn with_separate_times(inputs: usize) -> Self {
        SortedMerge {
            inputs: (0..inputs).map(Input::new).collect(),
            time_column: None,
            with_origins: false,
            with_shared_stamps: false,
            schema: None,
            picker: Picker::new(inputs),
        }
    }

    /// Says for each merged row which input it came by.
    #[must_use]
    pub fn with_origins(mut self) -> Self {
        self.with_origins = true;
        self
    }

    /// Merged rows share one stamp where no stamp of theirs could make one of them late: all are
    /// behind the highest. Not where something asks for the very watermark before a row.
    #[must_use]
    pub fn with_shared_stamps(mut self, shared: bool) -> Self {
        self.with_shared_stamps = shared;
        self
    }

    /// Adds rows to an input, sorted by time; with stamps, if there are any.
    ///
    /// # Errors
    /// A row without a time, or older than the row before it or than the input's watermark: both
    /// times are named, and the row by its number in the input, from 1. Nothing is added then.
    pub fn push(
        &mut self,
        input: usize,
        batch: RecordBatch,
        watermark_before: Option<WatermarkBefore>,
    ) -> Result<()> {
        let column = self.time_column.and_then(|column| batch.columns().get(column));
        let times = column.and_then(times_of);
        let (Some(column), Some(times)) = (column, times) else {
            return Err(Error::internal("a merge by time has no column of times in milliseconds"));
        };
        if column.null_count() > 0 {
            let is_null = |row: &usize| column.is_null(*row);
            let row = (0..column.len()).find(is_null).expect("the column counts nulls");
            return Err(self.inputs[input].null_time(row));
        }
        let watermark_before = watermark_before.unwrap_or(WatermarkBefore::All(Watermark::MIN));
        let (kinds, ingest_ns, bytes) = (None, 0, 0);
        let rows = SortedRows { batch, times, watermark_before, kinds, ingest_ns, bytes };
        self.push_rows(input, rows)
    }

    /// Adds rows to an input with their times apart from them. As [`push`](Self::push).
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_rows(&mut self, input: usize, rows: SortedRows) -> Result<()> {
        let fits = match &rows.watermark_before {
            WatermarkBefore::All(_) => true,
            WatermarkBefore::Rows(stamps) => stamps.len() == rows.batch.num_rows(),
        };
        let count = rows.batch.num_rows();
        let fits = fits && rows.kinds.as_ref().is_none_or(|kinds| kinds.len() == count);
        if !fits || rows.times.len() != count {
            return Err(Error::internal("rows to be merged need one time and one stamp each"));
        }
        let schema = self.schema.get_or_insert_with(|| rows.batch.schema());
        if !has_types_of(rows.batch.schema_ref(), schema) {
            return Err(Error::internal(format!("input {input} of a merge has other columns")));
        }
        self.inputs[input].push(rows)
    }

    /// Promises that no later row of this input is at or before the watermark. One that says less
    /// than is known already changes nothing.
    pub fn advance(&mut self, input: usize, watermark: Watermark) {
        self.inputs[input].advance(watermark);
    }

    /// Promises that no later row of this input is older than this time.
    pub fn advance_to(&mut self, input: usize, time_ms: i64) {
        let input = &mut self.inputs[input];
        input.frontier_ms = input.frontier_ms.max(time_ms);
    }

    /// Promises that this input has no more rows.
    pub fn finish(&mut self, input: usize) {
        self.inputs[input].has_ended = true;
    }

    /// An input that is idle is not waited for: what comes by it later stands behind what has left
    /// by then, whatever its time. The sequence then depends on when it was idle.
    pub fn set_idle(&mut self, input: usize, idle: bool) {
        self.inputs[input].is_idle = idle;
    }

    /// The least time that the next row can have; `None` if there is nothing to wait for.
    pub fn frontier_ms(&self) -> Option<i64> {
        self.heads().min().map(|(time_ms, _)| time_ms)
    }

    /// Puts a mark behind the rows of an input.
    pub fn mark(&mut self, input: usize) {
        let input = &mut self.inputs[input];
        let time_ms = input.frontier_ms;
        input.items.push_back(Item::Mark { time_ms });
    }

    /// The next ready rows, at most `rows_max`. `None` if none is ready, or a mark stands before
    /// them.
    ///
    /// # Errors
    /// If Arrow can't put the columns together (strings beyond 2 GiB). The rows stay.
    pub fn ready(&mut self, max_rows: usize) -> Result<Option<MergedRows>> {
        self.picker.pick(&self.inputs, max_rows);
        if self.picker.spans.is_empty() {
            return Ok(None);
        }
        let mut merged = self.merged()?;
        merged.bytes = self.picker.take_from(&mut self.inputs);
        Ok(Some(merged))
    }

    /// Takes the mark that is next in the merged sequence; the input that it was put in, and its
    /// time. `None` if something else is next, or may be.
    pub fn take_mark(&mut self) -> Option<(usize, i64)> {
        let (_, least) = self.heads().min()?;
        let input = &mut self.inputs[least];
        let Some(&Item::Mark { time_ms }) = input.items.front() else { return None };
        input.items.pop_front();
        Some((least, time_ms))
    }

    /// The input without rows that keeps rows of others waiting.
    pub fn held_by(&self) -> Option<usize> {
        let (_, least) = self.heads().min()?;
        let others_wait = self.inputs.iter().any(|input| !input.items.is_empty());
        (others_wait && self.inputs[least].items.is_empty()).then_some(least)
    }

    /// What waits in an input, in order.
    pub(crate) fn waiting(&self, input: usize) -> impl Iterator<Item = WaitingItem<'_>> {
        self.inputs[input].items.iter().map(|item| match item {
            Item::Rows { rows, from, .. } => WaitingItem::Rows(rows, *from),
            Item::Mark { time_ms } => WaitingItem::Mark(*time_ms),
        })
    }

    /// Bytes that rows which wait still count.
    pub(crate) fn waiting_bytes(&self) -> usize {
        let items = self.inputs.iter().flat_map(|input| &input.items);
        items
            .map(|item| match item {
                Item::Rows { bytes, .. } => *bytes,
                Item::Mark { .. } => 0,
            })
            .sum()
    }

    /// How far an input has promised to be, and whether it has ended.
    pub(crate) fn state_of(&self, input: usize) -> (i64, bool) {
        (self.inputs[input].frontier_ms, self.inputs[input].has_ended)
    }

    /// Sets what [`state_of`](Self::state_of) said of the same input in another run.
    pub(crate) fn set_state(&mut self, input: usize, frontier_ms: i64, has_ended: bool) {
        self.inputs[input].frontier_ms = frontier_ms;
        self.inputs[input].has_ended = has_ended;
    }

    /// True if all inputs have ended and everything was taken.
    pub fn is_finished(&self) -> bool {
        self.inputs.iter().all(|input| input.has_ended && input.items.is_empty())
    }

    /// What stands next in each input.
    fn heads(&self) -> impl Iterator<Item = Pair> {
        self.inputs.iter().filter_map(|input| input.pair_at(0, 0))
    }

    /// Puts together what was picked.
    fn merged(&mut self) -> Result<MergedRows> {
        let order_times = self.picker.take_order_times();
        let picker = &self.picker;
        let slots: Vec<&SortedRows> =
            picker.slots.iter().map(|&(input, item)| self.inputs[input].rows_at(item)).collect();
        let order = order_times.as_ref().map(|_| picker.tournament.indices());
        let picked = PickedRows { slots: &slots, spans: &picker.spans, rows: picker.rows, order };
        let times = order_times.map_or_else(|| picked.times(), ScalarBuffer::from);
        let batch = picked.batch(&times)?;
        let origins = self.with_origins.then(|| {
            let of_slots: Vec<u32> = picker.slots.iter().map(|&(input, _)| input as u32).collect();
            picked.numbers(&of_slots)
        });
        let ingest_ns = slots.iter().map(|rows| rows.ingest_ns).max().unwrap_or(0);
        let shared = self.with_shared_stamps.then(|| picked.shared_stamp(&times)).flatten();
        let watermark_before = shared.unwrap_or_else(|| picked.watermark_before());
        let kinds = picked.kinds();
        Ok(MergedRows { batch, watermark_before, kinds, ingest_ns, bytes: 0, times, origins })
    }
}

fn has_types_of(schema: &SchemaRef, of: &SchemaRef) -> bool {
    let (fields, of_fields) = (schema.fields(), of.fields());
    let has_type_of = |(field, of): (&FieldRef, &FieldRef)| field.data_type() == of.data_type();
    Arc::ptr_eq(schema, of)
        || (fields.len() == of_fields.len() && fields.iter().zip(of_fields).all(has_type_of))
}
