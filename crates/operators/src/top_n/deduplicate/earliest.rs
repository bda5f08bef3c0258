//! The first row of each key by row time: rows wait for the watermark, so that none comes before them.
//!
//! Invariants:
//! - a key waits with its earliest row, or its row has left, and then later ones are passed over;
//! - rows leave in the order of their times, those of one time in the canonical order of keys; only a
//!   watermark at or above a time lets its rows go, and then no row at that time can come any more.
//!
//! Keys whose row has left are kept (for ever, or as long as the state lives): they tell that a row is
//! not the first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow_array::{RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Captured, Error, Extent, Opening, Output, Partition, Piece, Place, Progress, Restored, Result,
    Watermark,
};

use super::kept::KeptRows;
use super::{DeduplicateSpec, rows};
use crate::expiry::Expiry;
use crate::keys::{CanonicalOrder, KeyTable};
use crate::top_n::told::Told;
use crate::window::LatePolicy;

/// The tables of state: the rows that wait, and the keys whose row has left.
const WAITING: &str = "waiting";
const LEFT: &str = "left";

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
    expiry: Option<Expiry>,
    ids: Vec<u32>,
}

impl EarliestRows {
    pub fn new(spec: Arc<DeduplicateSpec>, time_column: usize, opening: Opening) -> Result<Self> {
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
            expiry: spec.ttl_ms().map(Expiry::new),
            ids: Vec::new(),
            spec,
        })
    }

    fn take(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        rows::inserts_only(piece)?;
        let batch = &piece.bundle.batch;
        let times = rows::times(batch, self.time_column)?;
        let before = &piece.bundle.stamps.watermark_before;
        let is_late = |row: u32| times[row as usize] <= before.at(row as usize).0;
        let all: Vec<u32> = match piece.rows {
            Some(rows) => rows.to_vec(),
            None => (0..batch.num_rows() as u32).collect(),
        };
        let (late, on_time): (Vec<u32>, Vec<u32>) = all.into_iter().partition(|&row| is_late(row));
        output.accepted += on_time.len() as u64;
        if let Some(&first) = late.first() {
            self.treat_late(piece, late, times[first as usize], output)?;
        }
        if on_time.is_empty() {
            return Ok(());
        }
        let mut ids = std::mem::take(&mut self.ids);
        rows::intern(&mut self.keys, &self.spec.keys, batch, Some(&on_time), &mut ids)?;
        self.grow();
        let now_ms = output.wall_ms();
        for (&id, &row) in ids.iter().zip(&on_time) {
            self.take_row(id, row, times[row as usize], now_ms);
        }
        let rows = ids.iter().copied().zip(on_time.iter().copied());
        self.kept.keep(rows, batch.columns())?;
        self.ids = ids;
        Ok(())
    }

    fn grow(&mut self) {
        let limit = self.keys.id_limit();
        self.kept.grow(limit);
        self.times.resize(limit, i64::MAX);
        self.sent.resize(limit, false);
        if let Some(expiry) = &mut self.expiry {
            expiry.grow(limit);
        }
    }

    #[inline]
    fn take_row(&mut self, id: u32, row: u32, time: i64, now_ms: i64) {
        let at = id as usize;
        if self.sent[at] {
            let is_over = |expiry: &Expiry| expiry.is_over(id, now_ms);
            if !self.expiry.as_ref().is_some_and(is_over) {
                return;
            }
            self.sent[at] = false;
        }
        if self.kept.has(id) && self.times[at] <= time {
            return;
        }
        self.kept.set(id, row);
        self.times[at] = time;
        self.waiting.push(Reverse((time, id)));
    }

    fn treat_late(
        &self,
        piece: &Piece<'_>,
        late: Vec<u32>,
        first_time: i64,
        output: &mut Output,
    ) -> Result<()> {
        output.late += late.len() as u64;
        match self.spec.late {
            LatePolicy::Drop => Ok(()),
            LatePolicy::Fail => {
                let watermark = piece.bundle.stamps.watermark_before.at(late[0] as usize);
                let time = Watermark(first_time);
                Err(Error::data(format!("a row of {time} came late, at watermark {watermark}"))
                    .hint("allow a longer delay in WATERMARK FOR, or SET 'late.data' = 'drop'"))
            }
            LatePolicy::Emit => {
                let rows = UInt32Array::from(late.clone());
                output.emit_late(take_record_batch(&piece.bundle.batch, &rows)?, late);
                Ok(())
            }
        }
    }

    /// Lists the keys whose rows this watermark lets go.
    fn let_go(&mut self, watermark: i64) -> Result<()> {
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

    /// Sends some of the rows that are let go.
    fn send(&mut self, output: &mut Output) -> Result<()> {
        let (ids, next) = &mut self.leaving;
        let some = &ids[*next..ids.len().min(*next + BATCH_ROWS_MAX)];
        let mut ends = Vec::with_capacity(some.len());
        let mut places = Vec::with_capacity(some.len());
        for &id in some {
            ends.push(self.times[id as usize].saturating_add(1));
            places.extend(self.kept.remove(id));
            if let Some(expiry) = &mut self.expiry {
                expiry.write(id, output.wall_ms());
            }
        }
        *next += some.len();
        let columns = self.kept.arena.gather(&places, &[], &self.columns)?;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns)?;
        output.emit_at(batch, Place::WindowEnds(ends));
        self.kept.keep(std::iter::empty(), &[])
    }

    fn sweep(&mut self, rows: usize, now_ms: i64) {
        let Some(expiry) = &mut self.expiry else { return };
        let (sent, kept) = (&self.sent, &self.kept);
        // A row that still leaves is in the way of its key's end.
        let has_left = |id: u32| sent[id as usize] && !kept.has(id);
        for id in expiry.sweep(rows, now_ms, has_left) {
            if std::mem::take(&mut self.sent[id as usize]) {
                self.keys.release(id);
            }
        }
    }
}

impl Partition for EarliestRows {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        if piece.num_rows() > 0 {
            self.take(&piece, output)?;
        }
        self.sweep(piece.num_rows(), output.wall_ms());
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if self.leaving.0.is_empty() {
            self.let_go(call.watermark.0)?;
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
            + self.expiry.as_ref().map_or(0, Expiry::bytes)
            + (self.ids.capacity() + self.leaving.0.capacity()) * 4
    }

    fn wakes_at(&self) -> Watermark {
        if !self.leaving.0.is_empty() {
            return Watermark::MIN;
        }
        self.waiting.peek().map_or(Watermark::END, |&Reverse((time, _))| Watermark(time))
    }
    /// Times and the order in which rows leave follow from the rows. Nothing leaves meanwhile: a key that
    /// is known waits with a row, or its row has left.
    fn capture(&mut self, _: Extent) -> Result<Captured> {
        let mut captured = Captured::default();
        let (arena, rows) = (&self.kept.arena, self.kept.iter());
        let waiting = Told::new(WAITING, &self.spec.input, &None);
        waiting.tell_rows(&mut captured, &self.keys, &None, arena, rows);
        let ids = 0..self.sent.len() as u32;
        let ids: Vec<u32> = ids.filter(|&id| self.sent[id as usize]).collect();
        let columns = self.spec.key_schema();
        let left = Told::new(LEFT, &columns, &self.expiry);
        left.tell_keys(&mut captured, &self.keys, &self.expiry, &ids)?;
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let spec = Arc::clone(&self.spec);
        let mut ids = Vec::new();
        for batch in restored.table(WAITING) {
            let told = Told::new(WAITING, &spec.input, &None).take_back(batch)?;
            let times = rows::times(&told.rows, self.time_column)?;
            rows::intern(&mut self.keys, &spec.keys, &told.rows, None, &mut ids)?;
            self.grow();
            for (row, &id) in ids.iter().enumerate() {
                self.take_row(id, row as u32, times[row], i64::MIN);
            }
            self.kept.keep(ids.iter().copied().zip(0..), told.rows.columns())?;
        }
        let columns = spec.key_schema();
        for batch in restored.table(LEFT) {
            let told = Told::new(LEFT, &columns, &self.expiry).take_back(batch)?;
            ids.clear();
            let rows = told.rows.num_rows();
            self.keys.intern_rows(told.rows.columns(), None, rows, &mut ids)?;
            self.grow();
            for (row, &id) in ids.iter().enumerate() {
                self.sent[id as usize] = true;
                told.write(&mut self.expiry, id, row);
            }
        }
        Ok(())
    }
}
