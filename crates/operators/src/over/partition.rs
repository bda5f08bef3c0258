//! The rows of one key range: they wait for their time, are fired in its order, and leave.
//!
//! A row is fired at the first watermark that has passed both its time and the watermark before it.
//! For rows that come ahead of their watermark that is their time; a row behind it that is not late
//! (see the module above) is fired at the next watermark, as in Flink.
//!
//! **Invariants:**
//! - each row that waits holds its batch once;
//! - rows of a key are fired in the order of their times, whatever watermarks the partition is
//!   shown;
//! - rows of a key and of one time are fired together.
//!
//! **Why rows may be fired within `rows`:** a row behind its watermark is judged by the newest row
//! of its key that *would have been fired* by that watermark. If the operator has not been shown it
//! yet, `is_late` fires what is due first and keeps the results in `ready` until the watermark
//! comes. So the verdict, and the rows of the frame, are the same as if the watermark had come in
//! time.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Output, Partition, PartitionContext, Piece, Place, Progress, Restored, Result, RowKind,
    Watermark,
};

use super::functions::Functions;
use super::keyring::Keyring;
use super::lead::Held;
use super::snapshot::KEYS;
use super::spec::{OverSpec, OverTime};
use crate::capture::key_columns::KeyColumns;
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::keys::ranks::KeyRanks;
use crate::limit::rows_of;
use crate::rows::chunks::RowRef;
use crate::rows::columns::keys_of;
use crate::rows::event_time::{AddedRows, DueRows, EventTimeBuffer, WaitingRow};
use crate::rows::input::{inserts_only, times, treat_late};

/// About how many rows are fired at once: results stay in the cache until they are put together.
const FIRE_ROWS: usize = 8 * 1024;

/// One key range of an OVER window.
pub(super) struct OverPartition {
    pub(super) spec: Arc<OverSpec>,
    pub(super) schema: SchemaRef,
    late_by_key: bool,
    ranks: KeyRanks,
    pub(super) keys: Keyring,
    pub(super) key_columns: KeyColumns,
    pub(super) functions: Functions,
    pub(super) held: Option<Held>,
    /// Rows that wait for their time; `None` where rows are fired as they come.
    pub(super) waiting: Option<EventTimeBuffer>,
    /// Rows with their results whose watermark the partition has not been shown yet.
    pub(super) ready: VecDeque<(RecordBatch, Vec<i64>)>,
    /// The latest processing time that was seen.
    pub(super) wall_ms: i64,
    pub(super) tracker: Option<KeyTracker>,
}

impl OverPartition {
    pub fn new(spec: Arc<OverSpec>, schema: SchemaRef, opening: PartitionContext) -> Result<Self> {
        let types = spec.key_types();
        let ttl_ms = spec.state_ttl_ms.filter(|_| !spec.has_lead());
        Ok(OverPartition {
            late_by_key: spec.late_by_key(),
            ranks: KeyRanks::new(opening.order, &types)?,
            keys: Keyring::new(&types, spec.reach_ms(), ttl_ms)?,
            key_columns: KeyColumns::new(&spec.input, &spec.keys),
            functions: Functions::new(&spec)?,
            held: Held::new(&spec, Arc::clone(&schema))?,
            waiting: spec.waiting_shape().map(EventTimeBuffer::new),
            ready: VecDeque::new(),
            wall_ms: i64::MIN,
            tracker: None,
            schema,
            spec,
        })
    }

    /// The keys of rows, with room for their states; keys that were too old are empty.
    ///
    /// Captures must learn of the keys before `reach` empties those that were too old.
    fn intern(&mut self, batch: &RecordBatch, output: &Output) -> Result<Vec<u32>> {
        let ids = self.keys.intern(&keys_of(batch.columns(), &self.spec.keys), batch.num_rows())?;
        self.grow();
        if self.has_captures() {
            self.touch(KEYS, &self.keys.changed_by_reach(&ids))?;
        }
        self.keys.enliven(&ids);
        let over = self.keys.reach(&ids, output.wall_ms());
        self.functions.reset(&over)?;
        Ok(ids)
    }

    /// Makes room for the states of all keys.
    pub fn grow(&mut self) {
        self.functions.grow(self.keys.limit());
        if let Some(held) = &mut self.held {
            held.grow(self.keys.limit());
        }
    }

    /// Forgets keys and gives their ids back.
    fn release(&mut self, ids: &[u32]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        self.touch(KEYS, ids)?;
        self.functions.reset(ids)?;
        self.keys.release(ids, &mut self.tracker)
    }

    /// Lets rows wait for their time. `rows` are those of the bundle, dense in the batch.
    fn wait(
        &mut self,
        batch: &RecordBatch,
        rowtime: usize,
        piece: &Piece<'_>,
        output: &mut Output,
    ) -> Result<()> {
        let times = times(batch.columns(), rowtime, &self.spec.input)?;
        let before = &piece.bundle.stamps.watermark_before;
        let row_of = |place: usize| piece.rows.map_or(place as u32, |rows| rows[place]);
        let by_key = self.late_by_key && piece.lanes == 1;
        let ids = self.intern(batch, output)?;
        let Some(waiting) = &mut self.waiting else { return Ok(()) };
        let mut added = waiting.add(batch.columns().to_vec(), batch.num_rows());
        let (mut late, mut late_ids) = (Vec::new(), Vec::new());
        for (place, (&time, &id)) in times.iter().zip(&ids).enumerate() {
            let row = row_of(place);
            let watermark = before.at(row as usize).0;
            // A row at or before its watermark that is not late leaves at the next watermark after
            // that one.
            let mut due = time;
            if time <= watermark {
                if !by_key || self.is_late(id, time, watermark)? {
                    late.push((row, time));
                    late_ids.push(id);
                    added.leave_out(place as u32);
                    continue;
                }
                due = watermark.saturating_add(1);
            }
            output.accepted += 1;
            self.keep(&mut added, place, (time, due), id);
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.finish(added);
        }
        self.keys.retain_unused(&mut late_ids);
        self.release(&late_ids)?;
        treat_late(self.spec.late, &late, piece, output)
    }

    /// A row waits until it is due.
    #[inline]
    pub fn keep(&mut self, added: &mut AddedRows, place: usize, (time, due): (i64, i64), key: u32) {
        let Some(waiting) = &mut self.waiting else { return };
        self.keys.wait(key);
        let (row, kind) = (added.row(place), RowKind::Insert);
        waiting.wait(added, due, WaitingRow { time, row, key, kind, extra: () });
    }

    /// True if a row behind its watermark is late: not above the newest of its key that was fired.
    fn is_late(&mut self, id: u32, time: i64, watermark: i64) -> Result<bool> {
        let passed = self.waiting.as_ref().map_or(i64::MAX, EventTimeBuffer::passed);
        if watermark > passed {
            self.waiting.iter_mut().for_each(|waiting| waiting.pass(watermark));
            while let Some(fired) = self.next_due(watermark)? {
                let result = self.fire(fired)?;
                self.ready.push_back(result);
            }
        }
        if self.keys.is_beyond_reach(id, watermark) {
            self.touch(KEYS, &[id])?;
            self.functions.reset(&[id])?;
            self.keys.forget(id);
        }
        Ok(time <= self.keys.newest(id))
    }

    /// Some of the rows that are due at a watermark, first ones first.
    fn next_due(&mut self, watermark: i64) -> Result<Option<DueRows>> {
        let Some(waiting) = &mut self.waiting else { return Ok(None) };
        let mut entries: Vec<WaitingRow> = Vec::new();
        while let Some((_, last)) = waiting.first_due().filter(|first| first.0 <= watermark) {
            let time = last.min(watermark);
            waiting.pop_due(time, |_, entry| entries.push(entry));
            if time == watermark || entries.len() >= FIRE_ROWS {
                break;
            }
        }
        if entries.is_empty() {
            return Ok(None);
        }
        // Stable: rows of one bucket come in the order of arrival.
        if self.ranks.is_ordered() {
            let ids: Vec<u32> = entries.iter().map(|entry| entry.key).collect();
            let ranks = self.ranks.of_ids(&self.keys.table, &ids)?;
            let mut ranked: Vec<(u32, WaitingRow)> = ranks.into_iter().zip(entries).collect();
            ranked.sort_by_key(|&(rank, entry)| (entry.time, rank));
            entries = ranked.into_iter().map(|(_, entry)| entry).collect();
        } else {
            entries.sort_by_key(|entry| entry.time);
        }
        let rows: Vec<RowRef> = entries.iter().map(|entry| entry.row).collect();
        let columns = waiting.take(&rows)?;
        let ids: Vec<u32> = entries.iter().map(|entry| entry.key).collect();
        let times: Vec<i64> = entries.iter().map(|entry| entry.time).collect();
        self.touch(KEYS, &ids)?;
        self.keys.fire(&ids, &times, true);
        Ok(Some(DueRows { columns, ids, times }))
    }

    /// Rows with their results.
    fn fire(&mut self, fired: DueRows) -> Result<(RecordBatch, Vec<i64>)> {
        let results = self.functions.run(&fired)?;
        let mut columns = fired.columns;
        columns.extend(results);
        if let Some(held) = &mut self.held {
            return held.take(columns, &fired.ids, &fired.times);
        }
        Ok((RecordBatch::try_new(Arc::clone(&self.schema), columns)?, fired.times))
    }

    /// At the end of the input nothing is held back any more.
    fn finish(&mut self, output: &mut Output) -> Result<Progress> {
        let Some(held) = &self.held else { return Ok(Progress::Done) };
        let ids = self.ranks.sorted(&self.keys.table, &held.keys())?;
        for ids in ids.chunks(FIRE_ROWS) {
            self.touch(KEYS, ids)?;
            let Some(held) = &mut self.held else { break };
            let (batch, times) = held.finish(ids)?;
            output.emit_at(batch, Place::WindowEnds(times));
        }
        Ok(Progress::Done)
    }

    /// Fires rows as they come, in processing time.
    fn take_at_once(
        &mut self,
        batch: &RecordBatch,
        piece: &Piece<'_>,
        output: &mut Output,
    ) -> Result<()> {
        self.wall_ms = self.wall_ms.max(output.wall_ms());
        let beyond = self.keys.pop_beyond_reach(self.wall_ms);
        self.release(&beyond)?;
        let ids = self.intern(batch, output)?;
        self.touch(KEYS, &ids)?;
        output.accepted += ids.len() as u64;
        for from in (0..ids.len()).step_by(FIRE_ROWS) {
            let to = ids.len().min(from + FIRE_ROWS);
            let times = vec![self.wall_ms; to - from];
            self.keys.fire(&ids[from..to], &times, false);
            let columns = batch.slice(from, to - from).columns().to_vec();
            let fired = DueRows { columns, ids: ids[from..to].to_vec(), times };
            let (result, _) = self.fire(fired)?;
            let rows = match piece.rows {
                Some(rows) => rows[from..to].to_vec(),
                None => (from as u32..to as u32).collect(),
            };
            output.emit_at(result, Place::Caused(rows));
        }
        Ok(())
    }
}

impl Partition for OverPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        inserts_only(&piece, "an OVER window")?;
        if piece.num_rows() > 0 {
            let batch = rows_of(&piece)?;
            match self.spec.time {
                OverTime::EventTime(rowtime) => self.wait(&batch, rowtime, &piece, output)?,
                OverTime::Arrival => self.take_at_once(&batch, &piece, output)?,
            }
        }
        let over = self.keys.sweep(piece.num_rows(), output.wall_ms());
        self.release(&over)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let watermark = call.watermark.0;
        if self.spec.time == OverTime::Arrival {
            return Ok(Progress::Done);
        }
        while let Some((batch, times)) = self.ready.pop_front() {
            output.emit_at(batch, Place::WindowEnds(times));
        }
        while let Some(fired) = self.next_due(watermark)? {
            let (batch, times) = self.fire(fired)?;
            output.emit_at(batch, Place::WindowEnds(times));
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        self.waiting.iter_mut().for_each(|waiting| waiting.pass(watermark));
        let beyond = self.keys.pop_beyond_reach(watermark);
        self.release(&beyond)?;
        match call.watermark {
            Watermark::END => self.finish(output),
            _ => Ok(Progress::Done),
        }
    }

    fn wakes_at(&self) -> Watermark {
        // Captures want to know which rows that wait have expired.
        let has_rows = self.waiting.as_ref().is_some_and(|waiting| !waiting.is_empty());
        let captures_time = self.tracker.is_some() && has_rows;
        if !self.ready.is_empty() || captures_time {
            return Watermark::MIN;
        }
        if self.spec.time == OverTime::Arrival {
            return Watermark::END;
        }
        let fires_at =
            self.waiting.as_ref().and_then(EventTimeBuffer::first_due).map(|(first, _)| first);
        let wakes_at = fires_at.into_iter().chain(self.keys.forgets_at()).min();
        wakes_at.map_or(Watermark::END, Watermark)
    }

    fn state_bytes(&self) -> usize {
        let ready = |(batch, times): &(RecordBatch, Vec<i64>)| {
            thalweg_core::bundle::batch_bytes(batch) + times.capacity() * 8
        };
        let ready: usize = self.ready.iter().map(ready).sum();
        self.keys.bytes()
            + self.functions.bytes()
            + self.held.as_ref().map_or(0, Held::bytes)
            + self.waiting.as_ref().map_or(0, EventTimeBuffer::bytes)
            + self.tracker.as_ref().map_or(0, KeyTracker::bytes)
            + ready
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.keys.table.len())
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}
