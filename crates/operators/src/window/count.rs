//! Count windows of a key: each `slide` rows the last `size` of them.
//!
//! As `countWindow(size, slide)` of Flink's DataStream: a key's k-th window leaves with its
//! `k * slide`-th row and has the rows behind its `k * slide - size`-th, so the first ones may have
//! fewer than `size`. Windows that no row completes leave nothing. With `slide = size` they stand
//! side by side.
//!
//! **Invariants.** What a row belongs to follows from its number among the rows of its key,
//! whatever the bundles. Open windows have numbers (slots) under which their states stand, of which
//! a key has `size / slide` at most, rounded up. A slot is given to another window only when the
//! bundle is done, since states are brought up to date once for all rows of a bundle.
//!
//! Where windows do not overlap a key is forgotten when its window leaves. Where they do, it is
//! kept for ever: its next window begins inside the last one.
//!
//! What it does not do: rows of overlapping windows are added to each of them, so a row costs
//! `size / slide` updates. It takes no changes, and times and watermarks mean nothing to it.
//!
//! `size = 3, slide = 2`, rows of one key:
//!
//! ```text
//! row       1   2   3   4   5   6
//! window 1  [-----]                 leaves with row 2, two rows
//! window 2      [---------]         leaves with row 4, rows 2 to 4
//! window 3              [---------] leaves with row 6, rows 4 to 6
//! ```

use std::borrow::Cow;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::types::UInt64Type;
use arrow_schema::SchemaRef;
use thalweg_core::{
    Bundle, Captured, Error, Extent, Operator, Output, Partition, PartitionContext, Piece, Place,
    Restored, Result, Route, TableSchema, Watermark,
};

use super::calls::{Calls, States, mark};
use super::slices::{RowsOf, update_accumulators};
use crate::aggregate::{Accumulator, AggregateCall, with_results};
use crate::keys::{KeyTable, route_by_keys};
use crate::rows::columns::{batch_of, keys_of, schema_of};
use crate::tables::{add_table, does_not_fit, numbers_of, state_batch};

/// The table of open windows: the key, how many rows of it came, and the number of the window.
const WINDOWS: &str = "windows";
/// The table of keys without an open window that are counted nevertheless.
const KEYS: &str = "keys";
const SEEN: &str = "$seen";
const WINDOW: &str = "$window";

/// No window is open there.
const NONE: u32 = u32::MAX;

/// What a [`CountWindowAggregate`] computes, by columns of its input.
#[derive(Clone, Debug)]
pub struct CountWindowSpec {
    /// How many rows a window has.
    pub size: u64,
    /// After how many rows of a key the next one leaves.
    pub slide: u64,
    /// The grouping columns.
    pub keys: Vec<usize>,
    /// The aggregates.
    pub aggregates: Vec<AggregateCall>,
    /// The input's columns.
    pub input: TableSchema,
}

struct CountContext {
    spec: CountWindowSpec,
    calls: Calls,
    output: TableSchema,
    arrow: SchemaRef,
}

/// Aggregates per key and count window. The result has the keys and the aggregates.
pub struct CountWindowAggregate {
    shared: Arc<CountContext>,
}

impl CountWindowAggregate {
    /// An operator.
    ///
    /// # Errors
    /// If a length is 0 or a column is not there.
    pub fn new(spec: CountWindowSpec) -> Result<Self> {
        if spec.size == 0 || spec.slide == 0 {
            return Err(Error::plan("a window of rows must have and slide by at least one row"));
        }
        let calls = Calls::new(&spec.aggregates, &spec.keys, &spec.input)?;
        let output = with_results(schema_of(&spec.input, &spec.keys), &spec.aggregates);
        let arrow = output.arrow();
        Ok(CountWindowAggregate { shared: Arc::new(CountContext { spec, calls, output, arrow }) })
    }

    /// The columns of the result.
    pub fn output_schema(&self) -> &TableSchema {
        &self.shared.output
    }
}

impl Operator for CountWindowAggregate {
    fn name(&self) -> String {
        "count window".to_string()
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        route_by_keys(bundle, &self.shared.spec.keys, partitions)
    }
    fn open(&self, _opening: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(CountPartition {
            keys: KeyTable::new(&self.shared.calls.key_types)?,
            windows: CountWindows::new(self.shared.spec.size, self.shared.spec.slide),
            counts: Vec::new(),
            accumulators: self.shared.calls.accumulators()?,
            ids: Vec::new(),
            taken: CountTaken::default(),
            shared: Arc::clone(&self.shared),
        }))
    }
}

/// What the rows of a bundle belong to, and what they complete.
#[derive(Default)]
struct CountTaken {
    /// Rows and the slots they are added to, in the order of rows.
    rows: Vec<u32>,
    slots: Vec<u32>,
    /// The windows that are complete: their slots, their keys, and the rows that completed them.
    closed: Vec<u32>,
    keys: Vec<u32>,
    causes: Vec<u32>,
}

impl CountTaken {
    fn clear(&mut self) {
        let CountTaken { rows, slots, closed, keys, causes } = self;
        [rows, slots, closed, keys, causes].into_iter().for_each(Vec::clear);
    }
}

/// The open windows of the keys of a partition.
struct CountWindows {
    size: u64,
    slide: u64,
    /// How many windows of a key can be open at once.
    width: usize,
    /// For each key how many rows came, since its first one or since its last window left.
    seen: Vec<u64>,
    /// For each key the slots of its open windows, window k at `k % width`.
    open: Vec<u32>,
    /// Slots that no window has.
    free: Vec<u32>,
    /// One more than the highest slot.
    slots: u32,
}

impl CountWindows {
    fn new(size: u64, slide: u64) -> Self {
        let width = size.div_ceil(slide) as usize;
        CountWindows {
            size,
            slide,
            width,
            seen: Vec::new(),
            open: Vec::new(),
            free: Vec::new(),
            slots: 0,
        }
    }

    fn overlap(&self) -> bool {
        self.size > self.slide
    }

    /// Makes room for this many keys.
    fn grow(&mut self, keys: usize) {
        self.seen.resize(keys, 0);
        self.open.resize(keys * self.width, NONE);
    }

    /// Adds the next row of a key to its windows.
    fn take(&mut self, key: u32, row: u32, taken: &mut CountTaken) {
        self.seen[key as usize] += 1;
        let number = self.seen[key as usize];
        let first = number.div_ceil(self.slide);
        let behind_last = (number + self.size).div_ceil(self.slide);
        for window in first..behind_last {
            let at = self.place(key, window);
            if self.open[at] == NONE {
                self.open[at] = self.begin();
            }
            taken.rows.push(row);
            taken.slots.push(self.open[at]);
        }
        if number.is_multiple_of(self.slide) {
            let at = self.place(key, first);
            taken.closed.push(std::mem::replace(&mut self.open[at], NONE));
            taken.keys.push(key);
            taken.causes.push(row);
            if !self.overlap() {
                self.seen[key as usize] = 0;
            }
        }
    }

    fn place(&self, key: u32, window: u64) -> usize {
        key as usize * self.width + (window % self.width as u64) as usize
    }

    /// The open windows of a key: their numbers and slots.
    fn open_of(&self, key: u32) -> impl Iterator<Item = (u64, u32)> {
        // Open are windows behind the last one that left, at most as many as there can be.
        let first = self.seen[key as usize] / self.slide + 1;
        let of = move |window| (window, self.open[self.place(key, window)]);
        (first..first + self.width as u64).map(of).filter(|&(_, slot)| slot != NONE)
    }

    /// True if a key that is there can have come so often.
    fn can_be(&self, seen: u64) -> bool {
        seen > 0 && seen < u64::MAX / 4 && (self.overlap() || seen < self.slide)
    }

    /// Restores an open window of a key. None if it is open already, or cannot be
    /// open.
    fn resume(&mut self, key: u32, seen: u64, window: u64) -> Option<u32> {
        let first = seen / self.slide + 1;
        let at = self.place(key, window);
        if !self.can_be(seen)
            || window < first
            || window - first >= self.width as u64
            || self.open[at] != NONE
        {
            return None;
        }
        self.seen[key as usize] = seen;
        self.open[at] = self.begin();
        Some(self.open[at])
    }

    fn begin(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.slots += 1;
            self.slots - 1
        })
    }

    fn bytes(&self) -> usize {
        self.seen.capacity() * 8 + (self.open.capacity() + self.free.capacity()) * 4
    }
}

struct CountPartition {
    shared: Arc<CountContext>,
    keys: KeyTable,
    windows: CountWindows,
    /// Rows by slot.
    counts: Vec<i64>,
    /// States by slot.
    accumulators: Vec<Box<dyn Accumulator>>,
    ids: Vec<u32>,
    taken: CountTaken,
}

impl CountPartition {
    fn add_rows(&mut self, piece: &Piece<'_>) -> Result<()> {
        let slots = self.windows.slots as usize;
        self.counts.resize(slots, 0);
        self.accumulators.iter_mut().for_each(|own| own.grow(slots));
        self.taken.slots.iter().for_each(|&slot| self.counts[slot as usize] += 1);
        let of = RowsOf::new(&self.shared.calls, piece.bundle);
        let CountTaken { slots, rows, .. } = &self.taken;
        update_accumulators(&mut self.accumulators, &self.shared.calls, of, slots, Some(rows))
    }

    /// Sends out the windows that are complete.
    fn emit(&mut self, output: &mut Output) -> Result<()> {
        let closed = &self.taken.closed;
        if closed.is_empty() {
            return Ok(());
        }
        let mut columns = self.keys.take_keys(&self.taken.keys)?;
        columns.extend(self.shared.calls.evaluate(&self.counts, &self.accumulators, closed)?);
        let batch = batch_of(&self.shared.arrow, columns, closed.len())?;
        output.emit_at(batch, Place::Caused(std::mem::take(&mut self.taken.causes)));
        closed.iter().for_each(|&slot| self.counts[slot as usize] = 0);
        self.accumulators.iter_mut().for_each(|own| own.reset(closed));
        self.windows.free.extend_from_slice(closed);
        Ok(())
    }

    /// The keys that are there.
    fn live_keys(&self) -> impl Iterator<Item = u32> {
        // Every live key has seen rows, and none but live keys.
        (0..self.windows.seen.len() as u32).filter(|&key| self.windows.seen[key as usize] > 0)
    }

    /// Captures the open windows with their states.
    fn capture_windows(&self, captured: &mut Captured) -> Result<()> {
        let (mut keys, mut numbers, mut slots) = (Vec::new(), Vec::new(), Vec::new());
        for key in self.live_keys() {
            for (window, slot) in self.windows.open_of(key) {
                keys.push(key);
                numbers.push(window);
                slots.push(slot);
            }
        }
        let seen = keys.iter().map(|&key| self.windows.seen[key as usize]);
        let marks = vec![mark::<UInt64Type>(SEEN, seen), mark::<UInt64Type>(WINDOW, numbers)];
        let Self { counts, accumulators, .. } = self;
        let states = States { keys: &keys, places: Cow::Owned(slots), counts, accumulators };
        let rows = self.shared.calls.rows(&self.keys, marks, &states)?;
        add_table(captured, WINDOWS, rows);
        Ok(())
    }

    /// Captures the keys without an open window.
    fn capture_keys(&self, captured: &mut Captured) -> Result<()> {
        let has_none = |&key: &u32| self.windows.open_of(key).next().is_none();
        let keys: Vec<u32> = self.live_keys().filter(has_none).collect();
        let (owners, columns) = self.shared.calls.key_columns.columns_of(&self.keys, &keys)?;
        let seen = keys.iter().map(|&key| self.windows.seen[key as usize]);
        let marks = std::iter::once(mark::<UInt64Type>(SEEN, seen));
        let rows = state_batch(owners, marks.chain(columns).collect())?;
        add_table(captured, KEYS, rows);
        Ok(())
    }

    fn restore_windows(&mut self, rows: &RecordBatch) -> Result<()> {
        let (seen, numbers) =
            (numbers_of::<UInt64Type>(rows, SEEN)?, numbers_of::<UInt64Type>(rows, WINDOW)?);
        let mut ids = Vec::new();
        self.shared.calls.key_columns.intern(rows, &mut self.keys, &mut ids)?;
        self.windows.grow(self.keys.id_limit());
        let mut slots = Vec::with_capacity(ids.len());
        for (row, &key) in ids.iter().enumerate() {
            let (seen, window) = (seen[row], numbers[row]);
            let Some(slot) = self.windows.resume(key, seen, window) else {
                let what = format!("window {window} of a key cannot be open after {seen} rows");
                return Err(does_not_fit(what));
            };
            slots.push(slot);
        }
        let (groups, Self { shared, counts, accumulators, .. }) =
            (self.windows.slots as usize, self);
        shared.calls.restore_at(rows, &slots, groups, counts, accumulators)
    }

    fn restore_keys(&mut self, rows: &RecordBatch) -> Result<()> {
        let mut ids = Vec::new();
        self.shared.calls.key_columns.intern(rows, &mut self.keys, &mut ids)?;
        self.windows.grow(self.keys.id_limit());
        for (&key, &seen) in ids.iter().zip(numbers_of::<UInt64Type>(rows, SEEN)?) {
            if !self.windows.can_be(seen) {
                return Err(does_not_fit(format!("a key cannot have come {seen} times")));
            }
            self.windows.seen[key as usize] = seen;
        }
        Ok(())
    }

    /// Forgets the keys without an open window.
    fn forget(&mut self) {
        if self.windows.overlap() {
            return;
        }
        let keys = &mut self.taken.keys;
        keys.sort_unstable();
        keys.dedup();
        for &key in keys.iter().filter(|&&key| self.windows.seen[key as usize] == 0) {
            self.keys.release(key);
        }
    }
}

impl Partition for CountPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        let columns = keys_of(piece.bundle.batch.columns(), &self.shared.spec.keys);
        self.ids.clear();
        self.keys.intern_rows(&columns, piece.rows, piece.bundle.num_rows(), &mut self.ids)?;
        self.windows.grow(self.keys.id_limit());
        self.taken.clear();
        for (place, &key) in self.ids.iter().enumerate() {
            let row = piece.rows.map_or(place as u32, |rows| rows[place]);
            self.windows.take(key, row, &mut self.taken);
        }
        self.add_rows(&piece)?;
        self.emit(output)?;
        self.forget();
        Ok(())
    }

    fn wakes_at(&self) -> Watermark {
        Watermark::END
    }

    /// Captures how many rows of each key came, and its open windows by number. Slots are given
    /// again.
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        let mut captured = Captured::default();
        self.capture_windows(&mut captured)?;
        self.capture_keys(&mut captured)?;
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        restored.table(WINDOWS).iter().try_for_each(|rows| self.restore_windows(rows))?;
        restored.table(KEYS).iter().try_for_each(|rows| self.restore_keys(rows))
    }

    fn state_bytes(&self) -> usize {
        let states: usize = self.accumulators.iter().map(|own| own.bytes()).sum();
        self.keys.bytes() + self.windows.bytes() + self.counts.capacity() * 8 + states
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }
}
