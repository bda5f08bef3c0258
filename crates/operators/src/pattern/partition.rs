//! The rows of one key range: they wait for their time, go through the pattern, and matches leave.
//!
//! Rows are taken in the order of time, further keys and arrival, once a watermark has passed their
//! time. Matches leave in the order of the times at which they were found, then of key.
//!
//! **Invariants:**
//! - each row that waits holds its batch once;
//! - a key has an id while a row of it waits or a run or a match of it lives;
//! - with WITHIN a key that has runs has an alarm no later than the end of its first run.
//!
//! The order of rows within a key: time, then `ties` (further columns of ORDER BY), then arrival.
//! All keys share one call of the machine, so the rows of several times may be in it; each key sees
//! its own in order.
//!
//! An alarm may be stale: the run that it was set for has ended otherwise. The key is then looked
//! at once for nothing, and `set_alarm` sets the next.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, UInt32Array};
use arrow_row::Rows;
use arrow_schema::SchemaRef;
use arrow_select::take::take_record_batch;
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Output, Partition, PartitionContext, Piece, Place, Progress, Restored, Result, RowKind,
    Watermark,
};

use super::machine::Machine;
use super::runs::Key;
use super::snapshot::KEYS;
use super::spec::MatchSpec;
use crate::capture::key_columns::KeyColumns;
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::keys::KeyTable;
use crate::keys::ranks::KeyRanks;
use crate::limit::rows_of;
use crate::rows::chunks::RowRef;
use crate::rows::columns::{batch_of, keys_of};
use crate::rows::due_queue::DueQueue;
use crate::rows::event_time::{DueRows, EventTimeBuffer, WaitingRow};
use crate::rows::input::{inserts_only, times, treat_late};
use crate::sort::KeyEncoder;

/// About how many rows are taken at once at most.
const FIRE_ROWS: usize = 8 * 1024;
/// The same while it is not known how many runs there are.
const FIRE_ROWS_FIRST: usize = 1024;
/// About how often the rows that are taken at once are offered to runs at most: some milliseconds.
const OFFERS_MAX: usize = 256 * 1024;

/// What is due: rows, keys whose alarm has come, and up to when.
struct Due {
    entries: Vec<WaitingRow>,
    alarms: Vec<u32>,
    until: i64,
}

/// One key range of a pattern.
pub(super) struct MatchPartition {
    pub(super) spec: Arc<MatchSpec>,
    schema: SchemaRef,
    input: SchemaRef,
    ranks: KeyRanks,
    ties: Option<KeyEncoder>,
    pub(super) table: KeyTable,
    pub(super) key_columns: KeyColumns,
    pub(super) machine: Machine,
    pub(super) waiting: EventTimeBuffer,
    alarms: DueQueue<u32>,
    pub(super) tracker: Option<KeyTracker>,
    /// How many rows are taken through the pattern before the job may stop.
    fire_rows: usize,
}

impl MatchPartition {
    pub fn new(spec: Arc<MatchSpec>, schema: SchemaRef, opening: PartitionContext) -> Result<Self> {
        let types = spec.key_types();
        let ties = match &spec.pattern.ties[..] {
            [] => None,
            ties => Some(KeyEncoder::new(ties, &spec.input)?),
        };
        Ok(MatchPartition {
            ranks: KeyRanks::new(opening.order, &types)?,
            ties,
            table: KeyTable::new(&types)?,
            key_columns: KeyColumns::new(&spec.input, &spec.pattern.keys),
            machine: Machine::new(Arc::clone(&spec))?,
            waiting: EventTimeBuffer::new(spec.waiting_shape()),
            alarms: DueQueue::new(),
            tracker: None,
            fire_rows: FIRE_ROWS_FIRST,
            input: spec.input.arrow(),
            schema,
            spec,
        })
    }

    /// Lets rows wait for their time, but for those that are late.
    fn wait(&mut self, piece: &Piece<'_>, output: &mut Output) -> Result<()> {
        let batch = rows_of(piece)?;
        let times = times(batch.columns(), self.spec.pattern.rowtime, &self.spec.input)?;
        let before = &piece.bundle.stamps.watermark_before;
        let row_of = |place: usize| piece.rows.map_or(place as u32, |rows| rows[place]);
        let (mut late, mut taken) = (Vec::new(), Vec::with_capacity(batch.num_rows()));
        for (place, &time) in times.iter().enumerate() {
            let row = row_of(place);
            match time <= before.at(row as usize).0 {
                true => late.push((row, time)),
                false => taken.push(place as u32),
            }
        }
        self.hold(batch.columns().to_vec(), &times, &taken)?;
        output.accepted += taken.len() as u64;
        treat_late(self.spec.late, &late, piece, output)
    }

    /// Holds some of these rows, in order, until their times.
    pub fn hold(&mut self, columns: Vec<ArrayRef>, times: &[i64], taken: &[u32]) -> Result<()> {
        let keys = keys_of(&columns, &self.spec.pattern.keys);
        let mut ids = Vec::with_capacity(taken.len());
        self.table.intern_rows(&keys, Some(taken), times.len(), &mut ids)?;
        let limit = self.table.id_limit().max(self.machine.keys.len());
        self.machine.keys.resize_with(limit, Key::default);
        let mut added = self.waiting.add(columns, times.len());
        let mut next = taken.iter().peekable();
        let late = |row: &u32| next.next_if_eq(&row).is_none();
        (0..times.len() as u32).filter(late).for_each(|row| added.leave_out(row));
        for (&place, &id) in taken.iter().zip(&ids) {
            let time = times[place as usize];
            self.machine.keys[id as usize].waiting += 1;
            let (row, kind) = (added.row(place as usize), RowKind::Insert);
            let row = WaitingRow { time, row, key: id, kind, extra: () };
            self.waiting.wait(&mut added, time, row);
        }
        self.waiting.finish(added);
        Ok(())
    }

    /// Some of what is due at a watermark, first things first.
    fn next_due(&mut self, watermark: i64) -> Option<Due> {
        let mut due = Due { entries: Vec::new(), alarms: Vec::new(), until: watermark };
        loop {
            let buckets = [self.waiting.first_due(), self.alarms.first_bucket()];
            let first = buckets.into_iter().flatten().min();
            let Some((_, last)) = first.filter(|&(first, _)| first <= watermark) else { break };
            let until = last.min(watermark);
            self.waiting.pop_due(until, |_, entry| due.entries.push(entry));
            self.alarms.pop_due(until, |at, id| {
                let alarm = &mut self.machine.keys[id as usize].alarm;
                if *alarm == Some(at) {
                    *alarm = None;
                    due.alarms.push(id);
                }
            });
            if until == watermark || due.entries.len() >= self.fire_rows {
                due.until = until;
                break;
            }
        }
        (!due.entries.is_empty() || !due.alarms.is_empty()).then_some(due)
    }

    /// Rows that wait no more, key by key in their order.
    fn fire(&mut self, mut entries: Vec<WaitingRow>) -> Result<DueRows> {
        // Stable: rows of one time come in the order of arrival.
        match &self.ties {
            None => entries.sort_by_key(|entry| (entry.key, entry.time)),
            Some(ties) => {
                let rows: Vec<RowRef> = entries.iter().map(|entry| entry.row).collect();
                let batch = batch_of(&self.input, self.waiting.rows().gather(&rows)?, rows.len())?;
                let ties = ties.encode(&batch)?;
                entries = sorted(entries, &ties);
            }
        }
        let rows: Vec<RowRef> = entries.iter().map(|entry| entry.row).collect();
        let columns = self.waiting.take(&rows)?;
        for entry in &entries {
            self.machine.keys[entry.key as usize].waiting -= 1;
        }
        let ids = entries.iter().map(|entry| entry.key).collect();
        let times = entries.iter().map(|entry| entry.time).collect();
        Ok(DueRows { columns, ids, times })
    }

    /// Takes what is due through the pattern; the matches, and when they were found.
    fn take(&mut self, due: Due, wall_ms: i64) -> Result<(RecordBatch, Vec<i64>)> {
        let Due { entries, alarms, until } = due;
        let fired = self.fire(entries)?;
        let mut reached = fired.ids.clone();
        reached.dedup();
        reached.extend(&alarms);
        reached.sort_unstable();
        reached.dedup();
        let busy = self.touch_busy(&reached)?;
        let offered = self.machine.offered;
        self.machine.advance(&fired, &alarms, until, wall_ms)?;
        self.learn(fired.ids.len(), self.machine.offered - offered);
        let (columns, times, ids) = self.machine.take_matches(wall_ms)?;
        let found = self.in_order(columns, times, &ids)?;
        let mut idle = Vec::new();
        for id in reached {
            if self.machine.settle(id) { idle.push(id) } else { self.set_alarm(id) }
        }
        self.note_emptied(busy)?;
        self.table.release_all(&idle);
        self.machine.compact()?;
        Ok(found)
    }

    /// Learns from what taking some rows has cost: a pattern with many runs takes fewer rows at
    /// once, since a job that is to stop does so between two calls.
    fn learn(&mut self, rows: usize, offered: usize) {
        if offered > OFFERS_MAX {
            self.fire_rows = (rows * (OFFERS_MAX / 2) / offered).max(1);
        } else if offered <= OFFERS_MAX / 4 && rows >= self.fire_rows {
            self.fire_rows = (self.fire_rows * 4).min(FIRE_ROWS);
        }
    }

    /// Captures learn that these keys may change. Those of them with runs or matches.
    fn touch_busy(&mut self, ids: &[u32]) -> Result<Vec<u32>> {
        if !self.has_captures() {
            return Ok(Vec::new());
        }
        self.touch(KEYS, ids)?;
        Ok(ids.iter().copied().filter(|&id| self.has(KEYS, id)).collect())
    }

    /// Captures learn which of the keys that had runs or matches have none any more. A key may live
    /// on, since rows of it wait.
    fn note_emptied(&mut self, mut busy: Vec<u32>) -> Result<()> {
        busy.retain(|&id| !self.has(KEYS, id));
        match &mut self.tracker {
            Some(tracker) => tracker.go(&self.table, &busy),
            None => Ok(()),
        }
    }

    pub fn set_alarm(&mut self, id: u32) {
        let Some(within_ms) = self.spec.pattern.within_ms else { return };
        let key = &mut self.machine.keys[id as usize];
        if let (None, Some(first)) = (key.alarm, key.runs.first()) {
            let ends = first.time.saturating_add(within_ms);
            key.alarm = Some(ends);
            self.alarms.push(ends, id);
        }
    }

    /// Matches in the order in which they leave: of time, of key, and as they were found.
    fn in_order(
        &self,
        columns: Vec<ArrayRef>,
        times: Vec<i64>,
        ids: &[u32],
    ) -> Result<(RecordBatch, Vec<i64>)> {
        let batch = batch_of(&self.schema, columns, times.len())?;
        let ranks = self.ranks.of_ids(&self.table, ids)?;
        let mut order: Vec<u32> = (0..times.len() as u32).collect();
        order.sort_by_key(|&place| (times[place as usize], ranks[place as usize]));
        if order.is_sorted() {
            return Ok((batch, times));
        }
        let sorted = order.iter().map(|&place| times[place as usize]).collect();
        Ok((take_record_batch(&batch, &UInt32Array::from(order))?, sorted))
    }
}

/// Entries by key, time, and what rows of equal time are ordered by.
fn sorted(entries: Vec<WaitingRow>, ties: &Rows) -> Vec<WaitingRow> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by(|&a, &b| {
        let (left, right) = (&entries[a], &entries[b]);
        (left.key, left.time)
            .cmp(&(right.key, right.time))
            .then_with(|| ties.row(a).cmp(&ties.row(b)))
    });
    order.into_iter().map(|place| entries[place]).collect()
}

impl Partition for MatchPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        inserts_only(&piece, "a pattern")?;
        if piece.num_rows() > 0 {
            self.wait(&piece, output)?;
        }
        Ok(())
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        while let Some(due) = self.next_due(call.watermark.0) {
            let (batch, times) = self.take(due, output.wall_ms())?;
            output.emit_at(batch, Place::WindowEnds(times));
            if output.time_is_up() {
                return Ok(Progress::More);
            }
        }
        self.waiting.pass(call.watermark.0);
        Ok(Progress::Done)
    }

    fn wakes_at(&self) -> Watermark {
        if self.tracker.is_some() && !self.waiting.is_empty() {
            // Captures want to know which rows that wait have expired.
            return Watermark::MIN;
        }
        let buckets = [self.waiting.first_due(), self.alarms.first_bucket()];
        let first = buckets.into_iter().flatten().map(|(first, _)| first).min();
        first.map_or(Watermark::END, Watermark)
    }

    fn state_bytes(&self) -> usize {
        self.table.bytes()
            + self.machine.bytes()
            + self.waiting.bytes()
            + self.alarms.bytes()
            + self.tracker.as_ref().map_or(0, KeyTracker::bytes)
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.table.len())
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        self.restore_state(restored)
    }
}
