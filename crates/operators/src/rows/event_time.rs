//! Rows that wait for an event time: they come in batches, become due at a watermark, and leave.
//!
//! **Invariants:**
//! - a row that waits holds its batch once; whoever takes it releases it
//!   ([`EventTimeBuffer::release`]);
//! - what waits is due after the watermark that the buffer has passed, but for rows that came when
//!   their time was over.
//!
//! It does not order what is due, and knows keys only by number.
//!
//! **Protocol**
//! 1. `add` a batch: it is held once for each of its rows.
//! 2. For each row `wait`, which takes over one of these holds, or `AddedRows::leave_out`.
//! 3. `finish` releases the holds that no row has taken over.
//! 4. At a watermark `pop_due`, then `take` (columns, and release) or `rows` and `release`.
//! 5. `pass` the watermark. A capture uses it to know what has expired, so none may begin before
//!    all that was due has left.
//!
//! A row that arrives when its due time has passed (`due <= passed`) is *overdue*. It leaves at the
//! next watermark and is captured in full each time, since its time says that it has expired.

use std::sync::Arc;

use arrow_array::ArrayRef;
use thalweg_core::{Captured, Extent, Restored, Result, RowKind};

use super::chunk_capture::Notes;
use super::chunks::{Chunks, RowRef};
use super::due_queue::DueQueue;
use super::waiting_capture::{OverdueRow, WaitingRows, WaitingShape, WaitingTables};

/// A row that waits.
#[derive(Clone, Copy)]
pub(crate) struct WaitingRow<E = ()> {
    pub(crate) time: i64,
    pub(crate) row: RowRef,
    pub(crate) key: u32,
    pub(crate) kind: RowKind,
    /// What the operator has to know of it.
    pub(crate) extra: E,
}

/// Rows whose time has come, in the order in which the operator takes them.
pub(crate) struct DueRows {
    /// The input's columns.
    pub(crate) columns: Vec<ArrayRef>,
    /// The key of each row.
    pub(crate) ids: Vec<u32>,
    /// The time of each row.
    pub(crate) times: Vec<i64>,
}

impl DueRows {
    pub fn rows(&self) -> usize {
        self.ids.len()
    }
}

/// Rows of a batch that is being added.
pub(crate) struct AddedRows {
    chunk: u32,
    /// Holds on the batch that no row has taken over: rows may leave before all have been added.
    spare_holds: usize,
    notes: Notes,
}

impl AddedRows {
    /// The row at this place does not wait.
    pub fn leave_out(&mut self, place: u32) {
        self.notes.left_out.push(place);
    }

    /// The row at this place.
    pub fn row(&self, place: usize) -> RowRef {
        RowRef { chunk: self.chunk, row: place as u32 }
    }
}

/// Rows that wait.
pub(crate) struct EventTimeBuffer<E = ()> {
    chunks: Chunks,
    waiting: DueQueue<WaitingRow<E>>,
    tables: Arc<WaitingTables>,
    passed: i64,
}

impl<E: Copy> EventTimeBuffer<E> {
    /// No rows yet.
    pub fn new(shape: WaitingShape) -> Self {
        let (chunks, waiting) = (Chunks::new(&shape.input), DueQueue::new());
        let tables = Arc::new(WaitingTables::new(shape));
        EventTimeBuffer { chunks, waiting, tables, passed: i64::MIN }
    }

    /// Adds a batch, of which rows wait from now on ([`EventTimeBuffer::wait`]) until it is
    /// finished.
    pub fn add(&mut self, columns: Vec<ArrayRef>, rows: usize) -> AddedRows {
        let chunk = self.chunks.add(columns, rows, false);
        self.chunks.hold(chunk, rows);
        AddedRows { chunk, spare_holds: 1 + rows, notes: Notes::default() }
    }

    /// A row of the batch waits until the watermark has reached `due`.
    #[inline]
    pub fn wait(&mut self, added: &mut AddedRows, due: i64, row: WaitingRow<E>) {
        let (of_chunk, times) = ((row.row.row, row.kind), (row.time, due));
        self.tables.note(&mut added.notes, of_chunk, times, self.passed);
        added.spare_holds -= 1;
        self.waiting.push(due, row);
    }

    /// All rows of the batch that wait do so.
    pub fn finish(&mut self, added: AddedRows) {
        self.chunks.note(added.chunk, added.notes);
        self.chunks.release(added.chunk, added.spare_holds);
    }

    /// Hands over what is due at this time, in no order.
    pub fn pop_due(&mut self, time: i64, take: impl FnMut(i64, WaitingRow<E>)) {
        self.waiting.pop_due(time, take);
    }

    /// The first and the last millisecond of the first times that may be due.
    pub fn first_due(&self) -> Option<(i64, i64)> {
        self.waiting.first_bucket()
    }

    /// True if no row waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// All rows that were due at this watermark have left.
    pub fn pass(&mut self, watermark: i64) {
        self.passed = self.passed.max(watermark);
    }

    /// The last watermark that was passed.
    pub fn passed(&self) -> i64 {
        self.passed
    }

    /// The kept rows, for reading them.
    pub fn rows(&self) -> &Chunks {
        &self.chunks
    }

    /// Rows have left.
    pub fn release(&mut self, rows: impl Iterator<Item = RowRef>) {
        let mut run: Option<(u32, usize)> = None;
        for row in rows {
            run = match run {
                Some((chunk, count)) if chunk == row.chunk => Some((chunk, count + 1)),
                before => {
                    before.into_iter().for_each(|(chunk, count)| self.chunks.release(chunk, count));
                    Some((row.chunk, 1))
                }
            };
        }
        run.into_iter().for_each(|(chunk, count)| self.chunks.release(chunk, count));
    }

    /// The columns of these rows, which leave.
    ///
    /// # Errors
    /// None that is expected.
    pub fn take(&mut self, rows: &[RowRef]) -> Result<Vec<ArrayRef>> {
        let columns = self.chunks.gather(rows)?;
        self.release(rows.iter().copied());
        Ok(columns)
    }

    /// Captures the rows that wait.
    ///
    /// # Errors
    /// None that is expected.
    pub fn capture(&mut self, extent: Extent, captured: &mut Captured) -> Result<()> {
        let overdue = self.waiting.overdue(self.passed);
        let overdue = overdue.map(|(due, row)| OverdueRow { due, row: row.row, kind: row.kind });
        let overdue: Vec<OverdueRow> = overdue.collect();
        let wanted = (extent, !self.waiting.is_empty());
        self.tables.capture(wanted, (&mut self.chunks, self.passed), &overdue, captured)
    }

    /// The rows that partitions have captured, in the order in which they came; they are to be
    /// added again.
    ///
    /// # Errors
    /// If the tables have other columns, or hold what no row has.
    pub fn restored(&self, restored: &Restored) -> Result<Vec<WaitingRows>> {
        self.tables.restored(restored)
    }

    pub fn bytes(&self) -> usize {
        self.chunks.bytes() + self.waiting.bytes()
    }
}
