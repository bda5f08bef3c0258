//! Rows with numbers that are used again: captures of them, and of what has changed.
//!
//! Each row has a serial, which no other row of the partition has or had, and which goes up in the
//! order in which rows came. A row is captured with it, is named by it when it has gone, and is put
//! into its place by it when it comes back. Serials are given by the first capture, and by
//! restoring.
//!
//! **Invariants**
//! - A serial is given once per partition and never again, though restoring gives new ones.
//! - `serial < captured` means that the last capture has the row, so its removal must be named. A
//!   row that came and went between two captures leaves no trace.
//! - `replace` keeps the serial: for the snapshot it is the same row with other values, which keeps
//!   its place among rows of equal sort keys.

use std::sync::Arc;

use arrow_array::types::UInt64Type;
use arrow_array::{PrimitiveArray, RecordBatch, UInt8Array};
use arrow_schema::{DataType as Arrow, Field, SchemaRef};
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::snapshot::{CapturedTable, TableRows, state_schema};
use thalweg_core::{Extent, Result, TableChanges};

use super::shared::SharedState;
use super::tracker::{BegunCapture, NumberTracker, Tracking};
use super::{GONE_MIN, READ_ROWS};
use crate::gradual::Pages;
use crate::tables::{KEPT_ROWS_MAX, numbers_of};

/// The column of serials, the second of a table of such rows.
pub(crate) const SERIAL: &str = "$serial";
/// The partition and the serial name a row.
pub(crate) const SERIAL_IDENTITY: usize = 2;

/// What names a row in a table of state: its virtual partition, and its serial.
pub(crate) type RowName = (u8, u64);

/// What a capture begins with.
pub(crate) struct RowsBegun {
    begun: BegunCapture,
    gone: Vec<RowName>,
}

impl RowsBegun {
    /// The table that the capture writes. `read_some` writes up to a number of rows that have yet
    /// to be read, and returns false once there are none left, or another capture is under way.
    pub fn table<T: Send + 'static>(
        self,
        name: &'static str,
        schema: SchemaRef,
        shared: &Arc<SharedState<T>>,
        mut read_some: impl FnMut(&mut T, &BegunCapture, usize) -> Result<bool> + Send + 'static,
    ) -> CapturedTable {
        let (extent, shared) = (self.begun.extent, Arc::clone(shared));
        let rows = Box::new(move || {
            let RowsBegun { begun, gone } = self;
            let rows = begun.read(&shared, |state| read_some(state, &begun, READ_ROWS))?;
            Ok(TableRows { rows, removed: removed(&gone)? })
        });
        let (identity_columns, kept_from) = (SERIAL_IDENTITY, None);
        CapturedTable { name, schema, extent, identity_columns, kept_from, rows }
    }
}

/// The names of rows that have gone, as a table has them.
///
/// # Errors
/// None that is expected.
pub(crate) fn removed(gone: &[RowName]) -> Result<Vec<RecordBatch>> {
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    let schema = state_schema([Field::new(SERIAL, Arrow::UInt64, true)]);
    let owners = UInt8Array::from_iter_values(gone.iter().map(|&(owner, _)| owner));
    let serials = gone.iter().map(|&(_, serial)| serial);
    let serials = PrimitiveArray::<UInt64Type>::from_iter_values(serials);
    Ok(vec![RecordBatch::try_new(schema, vec![Arc::new(owners), Arc::new(serials)])?])
}

/// The rows of a table in the order of their serials.
///
/// # Errors
/// If there is no such column, or the batches do not fit each other.
pub(crate) fn by_serial(batches: &[RecordBatch]) -> Result<Vec<RecordBatch>> {
    let mut rows: Vec<(u64, usize, usize)> = Vec::new();
    for (at, batch) in batches.iter().enumerate() {
        let serials = numbers_of::<UInt64Type>(batch, SERIAL)?;
        rows.extend(serials.iter().enumerate().map(|(row, &serial)| (serial, at, row)));
    }
    if rows.is_sorted() {
        return Ok(batches.to_vec());
    }
    rows.sort_unstable();
    let sources: Vec<&RecordBatch> = batches.iter().collect();
    let sorted = rows.chunks(KEPT_ROWS_MAX).map(|rows| {
        let picks: Vec<(usize, usize)> = rows.iter().map(|&(_, at, row)| (at, row)).collect();
        Ok(interleave_record_batch(&sources, &picks)?)
    });
    sorted.collect()
}

/// What is known of rows between captures.
#[derive(Default)]
pub(crate) struct RowTracker {
    /// By number.
    serials: Pages<u64>,
    next: u64,
    tracking: Tracking,
    /// The rows by number.
    rows: NumberTracker,
    /// Rows with lower serials were captured by the last capture.
    captured: u64,
    gone: Vec<RowName>,
}

impl RowTracker {
    /// Rows with these numbers are there, in this order.
    pub fn of(rows: impl Iterator<Item = u32>) -> Self {
        let mut tracker = RowTracker::default();
        rows.for_each(|row| tracker.add(row));
        tracker
    }

    /// Forgets a capture that nobody reads any more: worth asking once for many rows.
    pub fn end_piece(&mut self) {
        if !self.tracking.is_read() {
            self.rows.forget_unread();
        }
    }

    /// A row has come, with this number.
    pub fn add(&mut self, row: u32) {
        let at = row as usize;
        self.serials.grow(at + 1, 0);
        self.serials[at] = self.next;
        self.next += 1;
        if self.tracking.is_tracking() {
            self.rows.grow(at + 1);
        }
        // The capture that is under way does not mean it: the row that it meant has gone.
        self.rows.touch(&self.tracking, row);
    }

    /// A row takes the place of another, which has been touched and is there no more: it has its
    /// serial.
    pub fn replace(&mut self, old: u32, new: u32) {
        self.serials[new as usize] = self.serials[old as usize];
        self.rows.clear_change(old);
    }

    /// A row is about to change or to go; true if a capture has yet to read it.
    #[inline]
    pub fn touch(&mut self, row: u32) -> bool {
        self.rows.touch(&self.tracking, row)
    }

    /// A row goes, which has been touched. Its serial, if a capture has it.
    pub fn remove(&mut self, row: u32) -> Option<u64> {
        self.rows.clear_change(row);
        let serial = self.serial(row);
        (self.tracking.is_tracking() && serial < self.captured).then_some(serial)
    }

    /// Rows that a capture has are gone; `live` are there.
    pub fn gone(&mut self, names: impl Iterator<Item = RowName>, live: usize) {
        if !self.tracking.is_tracking() {
            return;
        }
        self.gone.extend(names);
        if self.gone.len() > live.max(GONE_MIN) {
            self.stop();
        }
    }

    /// Notes no changes any more: the next capture is full.
    pub fn stop(&mut self) {
        self.tracking.stop();
        self.rows.forget_changes();
        self.gone = Vec::new();
    }

    /// What is known of the table, which has `live` rows.
    pub fn changes(&self, name: &'static str, live: usize) -> TableChanges {
        let changed = self.tracking.is_tracking();
        let changed = changed.then(|| self.rows.changed() + self.gone.len() as u64);
        TableChanges { name, live: live as u64, changed, written: self.rows.written() }
    }

    /// The serial of a row.
    #[inline]
    pub fn serial(&self, row: u32) -> u64 {
        self.serials[row as usize]
    }

    /// True while this capture is under way.
    pub fn is_reading(&self, begun: &BegunCapture) -> bool {
        self.tracking.is_reading(begun)
    }

    /// Some numbers below `limit` that the capture under way has yet to read, perhaps of no row;
    /// none once there are none left.
    pub fn take_unread(&mut self, most: usize, limit: usize) -> Vec<u32> {
        self.rows.take_unread(most, limit)
    }

    /// Rows of the capture that is under way.
    pub fn write(&mut self, rows: RecordBatch) {
        self.tracking.write(rows);
    }

    /// Begins a capture of rows with numbers below `limit`, of which `live` are there. One that is
    /// under way must have been read to its end.
    pub fn begin(&mut self, extent: Extent, limit: usize, live: usize) -> RowsBegun {
        let mut gone = std::mem::take(&mut self.gone);
        self.captured = self.next;
        let begun = self.tracking.begin(extent);
        self.rows.begin(begun.extent, limit, live, gone.len());
        if begun.extent == Extent::Full {
            // A full capture needs no names of what has gone.
            gone = Vec::new();
        }
        RowsBegun { begun, gone }
    }

    pub fn bytes(&self) -> usize {
        let gone = self.gone.capacity() * size_of::<RowName>();
        self.serials.bytes() + self.tracking.bytes() + self.rows.bytes() + gone
    }
}
