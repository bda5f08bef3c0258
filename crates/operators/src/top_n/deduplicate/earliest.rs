//! The first row of each key by row time: rows wait for the watermark, so that none comes before
//! them.
//!
//! Invariants:
//! - a key waits with its earliest row, or its row has left, and then later ones are passed over;
//! - rows leave in the order of their times, those of one time in the canonical order of keys; only
//!   a watermark at or above a time lets its rows go, and then no row at that time can come any
//!   more.
//!
//! Keys whose row has left are kept (for ever, or as long as the state lives): they show that a row
//! is not the first.
//!
//! Captures write both tables in changes ([`crate::capture`]): a key goes from one to the other
//! when its row leaves. Times and the order in which rows leave follow from the rows.
//!
//! The heap has an entry for each row that was once the earliest of its key. An entry counts only
//! if the key still waits with that very time, so a row that is displaced costs no search.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Output, Partition, PartitionContext, Piece, Place, Progress, Restored, Result, Watermark,
};

use super::kept_rows::KeptRows;
use super::rows;
use super::spec::DeduplicateSpec;
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::expiry::Expiry;
use crate::keys::{CanonicalOrder, KeyTable};
use crate::rows::arena::ArenaPlace;
use crate::rows::input::{inserts_only, times, treat_late};
use crate::top_n::tables::KeyedRowTable;

/// The tables of state: the rows that wait, and the keys whose row has left.
pub(super) const TABLES: [&str; 2] = ["waiting", "left"];
const WAITING: usize = 0;
const LEFT: usize = 1;

/// The most rows of one batch.
const BATCH_ROWS_MAX: usize = 8192;

pub(super) struct EarliestRows {
    spec: Arc<DeduplicateSpec>,
    schema: SchemaRef,
    time_column: usize,
    columns: Vec<usize>,
    keys: KeyTable,
    kept: KeptRows,
    times: Vec<i64>,
    /// By key: true if its row has left.
    sent: Vec<bool>,
    /// Times and keys of rows that wait. Keys that found an earlier row are named again.
    waiting: BinaryHeap<Reverse<(i64, u32)>>,
    /// Keys in the order in which they leave, and how many have.
    leaving: (Vec<u32>, usize),
    canonical: Option<CanonicalOrder>,
    expiry: Expiry,
    /// By table.
    tables: [KeyedRowTable; 2],
    tracker: [Option<KeyTracker>; 2],
    ids: Vec<u32>,
}

impl EarliestRows {
    pub fn new(
        spec: Arc<DeduplicateSpec>,
        time_column: usize,
        opening: PartitionContext,
    ) -> Result<Self> {
        let schema = spec.input.arrow();
        Ok(EarliestRows {
            time_column,
            columns: (0..spec.input.len()).collect(),
            keys: KeyTable::new(&spec.key_types())?,
            kept: KeptRows::new(Arc::clone(&schema)),
            schema,
            times: Vec::new(),
            sent: Vec::new(),
            waiting: BinaryHeap::new(),
            leaving: (Vec::new(), 0),
            canonical: CanonicalOrder::wanted(opening.order, &spec.key_types())?,
            expiry: Expiry::new(spec.ttl_ms()),
            tables: [
                KeyedRowTable::rows(&spec.input, &spec.keys, false),
                KeyedRowTable::keys(&spec.key_schema(), spec.ttl_ms().is_some()),
            ],
            tracker: [None, None],
            ids: Vec::new(),
            spec,
        })
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        inserts_only(piece, "deduplication")?;
        let batch = &piece.bundle.batch;
        let times = times(batch.columns(), self.time_column, &self.spec.input)?;
        let before = &piece.bundle.stamps.watermark_before;
        let is_late = |row: u32| times[row as usize] <= before.at(row as usize).0;
        let all: Vec<u32> = match piece.rows {
            Some(rows) => rows.to_vec(),
            None => (0..batch.num_rows() as u32).collect(),
        };
        let (late, on_time): (Vec<u32>, Vec<u32>) = all.into_iter().partition(|&row| is_late(row));
        output.accepted += on_time.len() as u64;
        let late: Vec<_> = late.into_iter().map(|row| (row, times[row as usize])).collect();
        treat_late(self.spec.late, &late, piece, output)?;
        if on_time.is_empty() {
            return Ok(());
        }
        let mut ids = std::mem::take(&mut self.ids);
        rows::intern(&mut self.keys, &self.spec.keys, batch, Some(&on_time), &mut ids)?;
        self.grow();
        let now_ms = output.wall_ms();
        self.touch_reached(&ids, now_ms)?;
        for (&id, &row) in ids.iter().zip(&on_time) {
            self.take_row(id, row, times[row as usize], now_ms);
        }
        let rows = ids.iter().copied().zip(on_time.iter().copied());
        self.kept.keep(rows, batch.columns())?;
        self.ids = ids;
        Ok(())
    }

    /// Captures learn of the keys that may wait with another row now, and of those that begin
    /// again.
    fn touch_reached(&mut self, ids: &[u32], now_ms: i64) -> Result<()> {
        if !self.has_captures() {
            return Ok(());
        }
        let waits = |&id: &u32| !self.sent[id as usize] || self.expiry.is_over(id, now_ms);
        let waiting: Vec<u32> = ids.iter().copied().filter(waits).collect();
        let over: Vec<u32> = waiting.iter().copied().filter(|&id| self.sent[id as usize]).collect();
        self.touch(WAITING, &waiting)?;
        self.touch(LEFT, &over)?;
        self.go(LEFT, &over)
    }

    /// Keys go from a table.
    fn go(&mut self, table: usize, ids: &[u32]) -> Result<()> {
        self.tracker[table].as_mut().map_or(Ok(()), |tracker| tracker.go(&self.keys, ids))
    }

    fn grow(&mut self) {
        let limit = self.keys.id_limit();
        self.kept.grow(limit);
        self.times.resize(limit, i64::MAX);
        self.sent.resize(limit, false);
        self.expiry.grow(limit);
    }

    #[inline]
    fn take_row(&mut self, id: u32, row: u32, time: i64, now_ms: i64) {
        let at = id as usize;
        if self.sent[at] {
            if !self.expiry.is_over(id, now_ms) {
                return;
            }
            self.sent[at] = false;
        }
        // With equal times the row that came first stays.
        if self.kept.has(id) && self.times[at] <= time {
            return;
        }
        self.kept.set(id, row);
        self.times[at] = time;
        self.waiting.push(Reverse((time, id)));
    }

    /// Lists the keys whose rows this watermark lets go.
    fn release_due(&mut self, watermark: i64) -> Result<()> {
        let mut ids = Vec::new();
        while let Some(&Reverse((time, id))) = self.waiting.peek()
            && time <= watermark
        {
            self.waiting.pop();
            let is_its_row = self.kept.has(id) && self.times[id as usize] == time;
            if is_its_row && !std::mem::replace(&mut self.sent[id as usize], true) {
                ids.push(id);
            }
        }
        if let Some(canonical) = &self.canonical {
            let time = |place: usize| self.times[ids[place] as usize];
            let places = canonical.permutation(&self.keys, &ids, time)?;
            ids = places.into_iter().map(|place| ids[place as usize]).collect();
        }
        self.leaving = (ids, 0);
        Ok(())
    }

    /// Sends some of the rows that are due.
    fn send(&mut self, output: &mut Output) -> Result<()> {
        let (ids, next) = &self.leaving;
        let some = ids[*next..ids.len().min(*next + BATCH_ROWS_MAX)].to_vec();
        self.touch(WAITING, &some)?;
        self.touch(LEFT, &some)?;
        let now_ms = output.wall_ms();
        let mut ends = Vec::with_capacity(some.len());
        let mut places = Vec::with_capacity(some.len());
        for &id in &some {
            ends.push(self.times[id as usize].saturating_add(1));
            places.extend(self.kept.remove(id));
            self.expiry.write(id, now_ms);
        }
        self.leaving.1 += some.len();
        self.go(WAITING, &some)?;
        let columns = self.kept.arena.gather(&places, &[], &self.columns)?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        output.emit_at(batch, Place::WindowEnds(ends));
        self.kept.keep(std::iter::empty(), &[])
    }

    fn sweep(&mut self, rows: usize, now_ms: i64) -> Result<()> {
        // A row that still leaves is in the way of its key's end.
        let has_left = |id: u32| self.sent[id as usize] && !self.kept.has(id);
        let over = self.expiry.sweep(rows, now_ms, has_left);
        if over.is_empty() {
            return Ok(());
        }
        self.touch(LEFT, &over)?;
        self.go(LEFT, &over)?;
        for id in over {
            if std::mem::take(&mut self.sent[id as usize]) {
                self.keys.release(id);
            }
        }
        Ok(())
    }
}

impl Partition for EarliestRows {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        if piece.num_rows() > 0 {
            self.take(&piece, output)?;
        }
        self.sweep(piece.num_rows(), output.wall_ms())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if self.leaving.0.is_empty() {
            self.release_due(call.watermark.0)?;
        }
        while self.leaving.1 < self.leaving.0.len() {
            self.send(output)?;
            if self.leaving.1 < self.leaving.0.len() && output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        self.leaving = (Vec::new(), 0);
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        self.keys.bytes()
            + self.kept.bytes()
            + self.times.capacity() * 8
            + self.sent.capacity()
            + self.waiting.capacity() * size_of::<Reverse<(i64, u32)>>()
            + self.expiry.bytes()
            + self.tracker.iter().flatten().map(KeyTracker::bytes).sum::<usize>()
            + (self.ids.capacity() + self.leaving.0.capacity()) * 4
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.len())
    }

    fn wakes_at(&self) -> Watermark {
        if !self.leaving.0.is_empty() {
            return Watermark::MIN;
        }
        self.waiting.peek().map_or(Watermark::END, |&Reverse((time, _))| Watermark(time))
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        let mut ids = Vec::new();
        for batch in restored.table(TABLES[WAITING]) {
            let state = self.tables[WAITING].read(batch)?;
            let times = times(state.rows.columns(), self.time_column, &spec.input)?;
            rows::intern(&mut self.keys, &spec.keys, &state.rows, None, &mut ids)?;
            self.grow();
            for (row, &id) in ids.iter().enumerate() {
                self.take_row(id, row as u32, times[row], i64::MIN);
            }
            self.kept.keep(ids.iter().copied().zip(0..), state.rows.columns())?;
        }
        for batch in restored.table(TABLES[LEFT]) {
            let state = self.tables[LEFT].read(batch)?;
            ids.clear();
            let rows = state.rows.num_rows();
            self.keys.intern_rows(state.rows.columns(), None, rows, &mut ids)?;
            self.grow();
            for (row, &id) in ids.iter().enumerate() {
                self.sent[id as usize] = true;
                state.write(&mut self.expiry, id, row);
            }
        }
        Ok(())
    }
}

impl KeyedState for EarliestRows {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    /// A row that the watermark lets go waits until it has been sent.
    fn has(&self, table: usize, id: u32) -> bool {
        let waits = self.kept.place(id).is_kept();
        match table {
            WAITING => waits,
            _ => !waits && self.sent.get(id as usize).is_some_and(|&sent| sent),
        }
    }
    fn rows_of_keys(&self, table: usize, ids: &[u32]) -> Result<RecordBatch> {
        if table == LEFT {
            return self.tables[LEFT].capture_keys(&self.keys, &self.expiry, ids);
        }
        let places: Vec<ArenaPlace> = ids.iter().map(|&id| self.kept.place(id)).collect();
        self.tables[WAITING].capture_rows(
            &self.keys,
            &self.expiry,
            &self.kept.arena,
            (ids, &places),
        )
    }
    fn tracker(&mut self, table: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker[table]
    }
}
