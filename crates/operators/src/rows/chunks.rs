//! Rows that are kept: batches of the columns of one side, and numbers that say where a row stands.
//!
//! **Invariants:**
//! - a chunk lives as long as someone holds one of its rows; holds are counted by chunk, not by
//!   row;
//! - arrivals ascend in the order in which rows came, over all chunks, and survive nothing else: a
//!   chunk's number is used again.
//!
//! It does not know keys or times. A chunk is freed as a whole: rows that time bounds arrive and
//! leave about together.
//!
//! # Holds
//!
//! ```text
//! add             1 hold, the caller's
//! hold(n)         one for each entry of an index, waiting row, list ... that names a row
//! release(n)      when such an entry goes; the caller releases its own one last
//! 0 holds         the chunk is freed and its number is used again
//! ```
//!
//! A chunk number alone does not name a chunk over time. Whoever stores a `RowRef` must hold the
//! chunk. `arrival` names a row for good, and is its serial in snapshots.
//!
//! # Captures
//!
//! Columns are `Arc`s and never change, so a capture clones them and reads them later without a
//! lock. Only `matched` bits change; the bits of the last capture are kept when the first one is
//! set after it, so that an incremental capture finds the rows that have been matched since.

use arrow_array::{Array, ArrayRef, UInt32Array, new_null_array};
use arrow_schema::DataType as Arrow;
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use thalweg_core::{Extent, Result, TableChanges, TableSchema};

use super::chunk_capture::{CapturedChunk, CapturedChunks, ChunkTracker, Notes};
use crate::capture::rows::RowName;

/// Where a row is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RowRef {
    pub(crate) chunk: u32,
    pub(crate) row: u32,
}

impl RowRef {
    /// No row: NULL in every column.
    pub(crate) const NONE: RowRef = RowRef { chunk: u32::MAX, row: 0 };

    /// True if a row stands so far behind this one in its chunk, or neither is a row.
    fn is_followed_by(self, row: RowRef, distance: usize) -> bool {
        let is_next = || row.row.checked_sub(self.row) == Some(distance as u32);
        row.chunk == self.chunk && (!self.is_some() || is_next())
    }

    /// False where it is no row.
    pub fn is_some(self) -> bool {
        self.chunk != u32::MAX
    }
}

/// Rows are gathered run by run where runs have at least this many on the average.
const RUN_ROWS_MIN: usize = 16;

pub(super) struct Chunk {
    pub(super) columns: Vec<ArrayRef>,
    pub(super) rows: usize,
    holds: usize,
    pub(super) first_arrival: u64,
    pub(super) notes: Notes,
    /// One bit for each row that has found a partner; empty where nobody asks.
    matched: Vec<u64>,
    /// These bits at the last capture, if others have been set since. Empty otherwise.
    matched_before: Vec<u64>,
    bytes: usize,
}

/// The kept rows of one side.
pub(crate) struct Chunks {
    types: Vec<Arrow>,
    slots: Vec<Option<Chunk>>,
    free: Vec<u32>,
    arrivals: u64,
    bytes: usize,
    /// Rows of all chunks.
    rows: usize,
    /// Set once there has been a capture of changes.
    tracker: Option<Box<ChunkTracker>>,
}

impl Chunks {
    /// No rows yet, of these columns.
    pub fn new(schema: &TableSchema) -> Self {
        let types = schema.columns.iter().map(|c| c.column_type.data_type.arrow()).collect();
        let (slots, free) = (Vec::new(), Vec::new());
        Chunks { types, slots, free, arrivals: 0, bytes: 0, rows: 0, tracker: None }
    }

    /// The same rows under the same names, for reading only: they stay while these continue.
    ///
    /// It counts no bytes: the columns are counted where the original holds them.
    pub fn frozen(&self) -> Chunks {
        let freeze = |chunk: &Chunk| Chunk {
            columns: chunk.columns.clone(),
            rows: chunk.rows,
            holds: 0,
            first_arrival: chunk.first_arrival,
            notes: Notes::default(),
            matched: Vec::new(),
            matched_before: Vec::new(),
            bytes: 0,
        };
        Chunks {
            types: self.types.clone(),
            slots: self.slots.iter().map(|slot| slot.as_ref().map(freeze)).collect(),
            free: Vec::new(),
            arrivals: self.arrivals,
            bytes: 0,
            rows: self.rows,
            tracker: None,
        }
    }

    /// Takes rows in. The caller has one hold on them. `columns` may be empty if nobody will ask
    /// for them.
    pub fn add(&mut self, columns: Vec<ArrayRef>, rows: usize, keeps_matches: bool) -> u32 {
        let matched = vec![0; if keeps_matches { rows.div_ceil(64) } else { 0 }];
        let bytes = columns.iter().map(column_bytes).sum::<usize>()
            + matched.len() * 8
            + size_of::<Chunk>();
        self.bytes += bytes;
        let (first_arrival, notes, matched_before) = (self.arrivals, Notes::default(), Vec::new());
        let chunk =
            Chunk { columns, rows, holds: 1, first_arrival, notes, matched, matched_before, bytes };
        self.arrivals += rows as u64;
        self.rows += rows;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize] = Some(chunk);
        if let Some(tracker) = &mut self.tracker {
            tracker.come(slot, self.slots.len());
        }
        slot
    }

    /// What is to be known of rows of a chunk when they are captured.
    pub fn note(&mut self, chunk: u32, notes: Notes) {
        let of_chunk = self.at_mut(chunk);
        let before = of_chunk.notes.bytes();
        of_chunk.notes.left_out.extend(notes.left_out);
        of_chunk.notes.reaches.extend(notes.reaches);
        of_chunk.notes.dues.extend(notes.dues);
        of_chunk.notes.kinds.extend(notes.kinds);
        let more = of_chunk.notes.bytes() - before;
        of_chunk.bytes += more;
        self.bytes += more;
    }

    /// Captures all rows, or what has changed. `keys` are the key columns.
    pub fn capture(&mut self, extent: Extent, keys: &[usize]) -> CapturedChunks {
        self.capture_tracked(extent, Some(keys))
    }

    /// Captures all rows, or those that have come, where it is known otherwise which have gone.
    pub fn capture_expiring(&mut self, extent: Extent) -> CapturedChunks {
        self.capture_tracked(extent, None)
    }

    /// How many rows have come, found their first partner or gone since the last capture; `None` if
    /// that is not known.
    fn changed(&self) -> Option<u64> {
        let tracker = self.tracker.as_ref()?;
        let come = (self.arrivals - tracker.arrivals.captured()?).min(self.rows as u64);
        let rematched = |&slot: &u32| {
            let Some(chunk) = self.slots.get(slot as usize).and_then(Option::as_ref) else {
                return 0;
            };
            let pairs = chunk.matched_before.iter().zip(&chunk.matched);
            pairs.map(|(before, now)| u64::from((now & !before).count_ones())).sum()
        };
        let rematched: u64 = tracker.rematched.iter().map(rematched).sum();
        Some(come + rematched + tracker.gone.len() as u64)
    }

    /// What is known before a capture of the table with this name, once there has been one.
    pub fn changes(&self, name: &'static str) -> Option<TableChanges> {
        let written = self.tracker.as_ref()?.written;
        Some(TableChanges { name, live: self.rows as u64, changed: self.changed(), written })
    }

    /// Stops tracking changes until the next capture.
    pub fn stop_tracking(&mut self) {
        self.tracker.iter_mut().for_each(|tracker| tracker.stop());
    }

    fn capture_tracked(&mut self, extent: Extent, keys: Option<&[usize]>) -> CapturedChunks {
        let (changed, rows) = (self.changed(), self.rows as u64);
        let tracker = self.tracker.get_or_insert_with(|| Box::new(ChunkTracker::new(keys)));
        let (extent, since) = tracker.arrivals.begin(extent, self.arrivals);
        tracker.written = match (since, changed) {
            (Some(_), Some(changed)) => tracker.written + changed,
            _ => rows,
        };
        let mut fresh = std::mem::take(&mut tracker.fresh);
        let rematched = std::mem::take(&mut tracker.rematched);
        let gone = std::mem::take(&mut tracker.gone);
        let gone_timed = std::mem::take(&mut tracker.gone_timed);
        // A full capture takes every chunk, whatever was noted.
        if since.is_none() {
            fresh = (0..self.slots.len() as u32).collect();
        }
        // A number that is used again stands there twice.
        fresh.sort_unstable();
        fresh.dedup();
        let mut chunks: Vec<CapturedChunk> =
            fresh.iter().filter_map(|&at| self.capture_chunk(at)).collect();
        let changed = rematched.iter().filter_map(|&at| self.capture_matches(at));
        chunks.extend(changed.collect::<Vec<_>>().into_iter().filter(|_| since.is_some()));
        chunks.sort_by_key(|chunk| chunk.first);
        let of_changes = |gone: Vec<RowName>| if since.is_some() { gone } else { Vec::new() };
        let (gone, gone_timed) = (of_changes(gone), of_changes(gone_timed));
        CapturedChunks { extent, chunks, gone, gone_timed }
    }

    /// A chunk as it is.
    fn capture_chunk(&mut self, slot: u32) -> Option<CapturedChunk> {
        let chunk = self.slots.get_mut(slot as usize)?.as_mut()?;
        chunk.matched_before = Vec::new();
        Some(CapturedChunk {
            columns: chunk.columns.clone(),
            rows: chunk.rows,
            first: chunk.first_arrival,
            notes: chunk.notes.clone(),
            matched: chunk.matched.clone(),
            wanted: None,
        })
    }

    /// The rows of a chunk that have found their first partner since the last capture.
    fn capture_matches(&mut self, slot: u32) -> Option<CapturedChunk> {
        let chunk = self.slots.get_mut(slot as usize)?.as_mut()?;
        let before = std::mem::take(&mut chunk.matched_before);
        let pairs = before.iter().zip(&chunk.matched);
        let wanted: Vec<u64> = pairs.map(|(before, now)| now & !before).collect();
        // The number may have been used again, for a chunk that is captured as a new one.
        (!wanted.is_empty())
            .then(|| self.capture_chunk(slot))
            .flatten()
            .map(|chunk| CapturedChunk { wanted: Some(wanted), ..chunk })
    }

    /// Adds holds on rows of a chunk.
    pub fn hold(&mut self, chunk: u32, count: usize) {
        self.at_mut(chunk).holds += count;
    }

    /// Gives holds back; frees the chunk with the last.
    pub fn release(&mut self, chunk: u32, count: usize) {
        let of_chunk = self.at_mut(chunk);
        of_chunk.holds -= count;
        if of_chunk.holds == 0 {
            let (bytes, rows) = (of_chunk.bytes, of_chunk.rows);
            self.bytes -= bytes;
            self.rows -= rows;
            let freed = self.slots[chunk as usize].take();
            if let (Some(tracker), Some(freed)) = (&mut self.tracker, freed) {
                tracker.gone(&freed, self.rows);
            }
            self.free.push(chunk);
            // Nothing is kept: the lists shrink, and numbers start from 0. No `RowRef` is left that
            // could mean another chunk now. Arrivals continue.
            if self.free.len() == self.slots.len() {
                (self.slots, self.free) = (Vec::new(), Vec::new());
            }
        }
    }

    /// The arrival of the next row.
    pub fn arrivals(&self) -> u64 {
        self.arrivals
    }

    /// Arrivals of rows of these chunks, behind which no other came, ascend from chunk to chunk in
    /// this order.
    pub fn rearrange(&mut self, chunks: impl Iterator<Item = u32> + Clone) {
        let first = chunks.clone().map(|chunk| self.at(chunk).first_arrival).min();
        let mut next = first.unwrap_or_default();
        for chunk in chunks {
            let chunk = self.at_mut(chunk);
            chunk.first_arrival = next;
            next += chunk.rows as u64;
        }
    }

    /// A number that ascends in the order in which rows came.
    pub fn arrival(&self, row: RowRef) -> u64 {
        self.at(row.chunk).first_arrival + u64::from(row.row)
    }

    /// True if the row has found a partner.
    pub fn is_matched(&self, row: RowRef) -> bool {
        let word = self.at(row.chunk).matched[row.row as usize / 64];
        word >> (row.row % 64) & 1 == 1
    }

    /// The row has found a partner.
    pub fn set_matched(&mut self, row: RowRef) {
        let (word, bit) = (row.row as usize / 64, 1 << (row.row % 64));
        let chunk = self.slots[row.chunk as usize].as_mut();
        let chunk = chunk.expect("whoever names a chunk holds it");
        if let Some(tracker) = &mut self.tracker
            && chunk.matched_before.is_empty()
            && chunk.matched[word] & bit == 0
            && tracker.arrivals.captured().is_some_and(|captured| chunk.first_arrival < captured)
        {
            chunk.matched_before = chunk.matched.clone();
            tracker.rematched.push(row.chunk);
        }
        chunk.matched[word] |= bit;
    }

    /// These rows, as columns of the side; NULL where there is no row.
    pub fn gather(&self, rows: &[RowRef]) -> Result<Vec<ArrayRef>> {
        self.gather_each(rows, 0..self.types.len())
    }

    /// Some columns of these rows.
    pub fn gather_columns(&self, rows: &[RowRef], columns: &[usize]) -> Result<Vec<ArrayRef>> {
        self.gather_each(rows, columns.iter().copied())
    }

    fn gather_each(
        &self,
        rows: &[RowRef],
        columns: impl Iterator<Item = usize>,
    ) -> Result<Vec<ArrayRef>> {
        let first = rows.first().copied().unwrap_or(RowRef::NONE);
        if rows.iter().all(|row| row.chunk == first.chunk) {
            return self.gather_one(rows, first, columns);
        }
        if let Some(runs) = runs_of(rows) {
            return columns.map(|column| self.gather_runs(&runs, column)).collect();
        }
        // Few chunks are named as a rule: each gets a number of its own among the sources.
        let mut number = vec![u32::MAX; self.slots.len() + 1];
        let mut sources: Vec<Option<&Chunk>> = Vec::new();
        let mut indices = Vec::with_capacity(rows.len());
        for row in rows {
            let place = if row.is_some() { row.chunk as usize } else { self.slots.len() };
            if number[place] == u32::MAX {
                number[place] = sources.len() as u32;
                sources.push(row.is_some().then(|| self.at(row.chunk)));
            }
            indices.push((number[place] as usize, row.row as usize));
        }
        let gather = |column: usize| {
            let nothing = new_null_array(&self.types[column], 1);
            let source = |chunk: &Option<&Chunk>| match chunk {
                Some(chunk) => ArrayRef::clone(&chunk.columns[column]),
                None => ArrayRef::clone(&nothing),
            };
            let arrays: Vec<ArrayRef> = sources.iter().map(source).collect();
            let arrays: Vec<&dyn Array> = arrays.iter().map(|array| array.as_ref()).collect();
            Ok(interleave(&arrays, &indices)?)
        };
        columns.map(gather).collect()
    }

    /// A column of rows that lie one behind the other in each run.
    fn gather_runs(&self, runs: &[(RowRef, usize)], column: usize) -> Result<ArrayRef> {
        let part = |&(first, rows): &(RowRef, usize)| match first.is_some() {
            true => self.at(first.chunk).columns[column].slice(first.row as usize, rows),
            false => new_null_array(&self.types[column], rows),
        };
        let parts: Vec<ArrayRef> = runs.iter().map(part).collect();
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        Ok(concat(&parts)?)
    }

    fn gather_one(
        &self,
        rows: &[RowRef],
        first: RowRef,
        columns: impl Iterator<Item = usize>,
    ) -> Result<Vec<ArrayRef>> {
        if !first.is_some() {
            return Ok(columns.map(|c| new_null_array(&self.types[c], rows.len())).collect());
        }
        let of_chunk = &self.at(first.chunk).columns;
        let indices = UInt32Array::from_iter_values(rows.iter().map(|row| row.row));
        columns.map(|column| Ok(take(&of_chunk[column], &indices, None)?)).collect()
    }

    /// About how many bytes the rows take.
    pub fn bytes(&self) -> usize {
        let tracker = self.tracker.as_ref().map_or(0, |tracker| tracker.bytes());
        let slots = self.slots.capacity() * size_of::<Option<Chunk>>();
        self.bytes + slots + self.free.capacity() * 4 + tracker
    }

    fn at(&self, chunk: u32) -> &Chunk {
        self.slots[chunk as usize].as_ref().expect("whoever names a chunk holds it")
    }
    fn at_mut(&mut self, chunk: u32) -> &mut Chunk {
        self.slots[chunk as usize].as_mut().expect("whoever names a chunk holds it")
    }
}

/// Rows as runs of one chunk, each the next behind the one before, if these are long: the first of
/// each and how many.
///
/// `None` as soon as the runs are too short on the average: then `interleave` over all sources
/// costs less than one slice for each run.
fn runs_of(rows: &[RowRef]) -> Option<Vec<(RowRef, usize)>> {
    let mut runs: Vec<(RowRef, usize)> = Vec::new();
    for &row in rows {
        match runs.last_mut() {
            Some((first, length)) if first.is_followed_by(row, *length) => *length += 1,
            _ => runs.push((row, 1)),
        }
        if runs.len() * RUN_ROWS_MIN > rows.len() + RUN_ROWS_MIN {
            return None;
        }
    }
    Some(runs)
}

fn column_bytes(column: &ArrayRef) -> usize {
    use arrow_array::cast::AsArray;
    if let Some(width) = column.data_type().primitive_width() {
        return column.len() * width + column.nulls().map_or(0, |_| column.len().div_ceil(8));
    }
    match column.as_string_view_opt() {
        // What a view shows counts, however many views share a buffer.
        Some(texts) => {
            let text = |view: &u128| (*view as u32 as usize).saturating_sub(12);
            texts.len() * 16 + texts.views().iter().map(text).sum::<usize>()
        }
        None => column.to_data().get_slice_memory_size().unwrap_or(column.get_array_memory_size()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringViewArray};
    use thalweg_core::shim::SplitMix64;
    use thalweg_core::{Column, DataType};

    use super::*;

    /// Whatever rows are named: those of one chunk, runs of many, any of many, none.
    #[test]
    fn rows_are_gathered_in_the_order_in_which_they_are_named() {
        let schema = TableSchema::new(vec![
            Column::new("number", DataType::BigInt.nullable()),
            Column::new("text", DataType::STRING.nullable()),
        ]);
        let mut chunks = Chunks::new(&schema);
        let value = |chunk: u32, row: u32| i64::from(chunk * 1000 + row);
        for chunk in 0..5 {
            let numbers = (0..100).map(|row| (row % 7 > 0).then(|| value(chunk, row)));
            let texts = (0..100).map(|row| Some(format!("the text {}", value(chunk, row))));
            let numbers: ArrayRef = Arc::new(numbers.collect::<Int64Array>());
            let texts: ArrayRef = Arc::new(texts.collect::<StringViewArray>());
            assert_eq!(chunks.add(vec![numbers, texts], 100, false), chunk);
        }
        let mut random = SplitMix64::new(3);
        for round in 0..200 {
            let runs = random.below(6) + 1;
            let mut rows = Vec::new();
            for _ in 0..runs {
                let chunk = random.below(6) as u32;
                let from = random.below(100) as u32;
                let length = random.below([2, 40, 100][round % 3]) as u32;
                rows.extend((from..(from + length).min(100)).map(|row| match chunk {
                    5 => RowRef::NONE,
                    chunk => RowRef { chunk, row },
                }));
            }
            let columns = chunks.gather_columns(&rows, &[1, 0]).unwrap();
            let texts = columns[0].as_string_view();
            let numbers = columns[1].as_primitive::<Int64Type>();
            assert_eq!((texts.len(), numbers.len()), (rows.len(), rows.len()));
            for (place, row) in rows.iter().enumerate() {
                let is_null = !row.is_some();
                assert_eq!(texts.is_null(place), is_null);
                assert_eq!(numbers.is_null(place), is_null || row.row % 7 == 0);
                if !is_null {
                    let value = value(row.chunk, row.row);
                    assert_eq!(texts.value(place), format!("the text {value}"));
                    assert!(numbers.is_null(place) || numbers.value(place) == value);
                }
            }
        }
    }
}
