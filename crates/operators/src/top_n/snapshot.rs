//! What captures write of Top-N: the rows of each key in their order, those that sort alike as
//! they came.
//!
//! Sort keys are encoded again, and limits, upsert keys and windows follow from the rows: in the
//! same order, so that ties are broken as before. Between two pieces no change waits and no window
//! leaves.
//!
//! | rows are | table | holds |
//! |---|---|---|
//! | never retracted | `rows` | all rows of the keys that rows have reached, without those that are passed over |
//! | retracted or replaced | `numbered` | each row that has come, by its `$serial`: of those that sort alike the lower one comes first |
//! | the same, and kept for a limited time | `written` | when keys were last written |
//!
//! All rows that may be retracted are kept, and a key may have very many. All of it is read while
//! rows are processed ([`crate::capture`]).

use std::sync::Arc;

use arrow_array::RecordBatch;
use thalweg_core::{
    Bundle, Captured, Error, Extent, Piece, Restored, Result, Stamps, TableChanges,
};

use super::incoming::Incoming;
use super::ordered::RankedRow;
use super::partition::TopNPartition;
use super::spec::TopNSpec;
use super::store::NumberedRow;
use super::tables::{KeyedRowTable, NumberedRows, RestoredRows};
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::capture::rows::RowTracker;
use crate::capture::shared::SharedState;
use crate::keys::KeyTable;
use crate::rows::arena::ArenaPlace;
use crate::rows::columns::{keys_of, schema_of};
use crate::tables::{does_not_fit, virtual_partition};

const ROWS: &str = "rows";
const NUMBERED: &str = "numbered";
const WRITTEN: &str = "written";
/// The table that is captured by key.
pub(super) const BY_KEY: usize = 0;

/// How the state is captured.
pub(super) enum Tables {
    /// The rows, by key.
    Rows(KeyedRowTable),
    /// The rows one by one, and the keys.
    Numbered { rows: NumberedRows, keys: KeyedRowTable },
}

impl Tables {
    pub fn new(spec: &TopNSpec) -> Self {
        let expires = spec.ttl_ms().is_some();
        if !spec.keeps_all() {
            return Tables::Rows(KeyedRowTable::rows(&spec.input, &spec.keys, expires));
        }
        let keys = KeyedRowTable::keys(&schema_of(&spec.input, &spec.keys), expires);
        Tables::Numbered { rows: NumberedRows::new(&spec.input, &spec.keys), keys }
    }

    /// The tables that are captured by key.
    pub fn by_key(spec: &TopNSpec) -> &'static [&'static str] {
        match (spec.keeps_all(), spec.ttl_ms()) {
            (false, _) => &[ROWS],
            (true, Some(_)) => &[WRITTEN],
            (true, None) => &[],
        }
    }
}

impl KeyedState for TopNPartition {
    fn keys(&self) -> &KeyTable {
        &self.keys
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.ordered.get(id as usize).is_some_and(|ordered| ordered.len() > 0)
    }
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        match &self.tables {
            Tables::Numbered { keys, .. } => keys.capture_keys(&self.keys, &self.expiry, ids),
            Tables::Rows(rows) => {
                let (ids, places): (Vec<u32>, Vec<ArenaPlace>) =
                    self.places(ids.iter().copied()).unzip();
                rows.capture_rows(&self.keys, &self.expiry, &self.store.arena, (&ids, &places))
            }
        }
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
    fn capture_rows(
        shared: &Arc<SharedState<Self>>,
        extent: Extent,
        captured: &mut Captured,
    ) -> Result<()> {
        let mut state = shared.lock();
        let Tables::Numbered { rows, .. } = &state.tables else { return Ok(()) };
        let schema = rows.schema();
        while state.read_some(usize::MAX)? {}
        state.begin_tracking();
        let (limit, live) = (state.store.limit(), state.store.live());
        let begun = state.store.tracker.as_mut().map(|tracker| tracker.begin(extent, limit, live));
        let begun = begun.ok_or_else(|| Error::internal("rows are not watched"))?;
        drop(state);
        let table = begun.table(NUMBERED, schema, shared, |state, begun, most| {
            let tracker = state.store.tracker.as_ref();
            let is_reading = tracker.is_some_and(|tracker| tracker.is_reading(begun));
            Ok(is_reading && state.read_some(most)?)
        });
        captured.tables.push(table);
        Ok(())
    }
    fn row_changes(&mut self) -> Vec<TableChanges> {
        let live = self.store.live();
        self.store.tracker.iter().map(|tracker| tracker.changes(NUMBERED, live)).collect()
    }
    fn stop_tracking_rows(&mut self, table: &str) {
        self.store.tracker.iter_mut().filter(|_| table == NUMBERED).for_each(RowTracker::stop);
    }
}

impl TopNPartition {
    /// The rows of these keys, in their order.
    fn places(&self, ids: impl Iterator<Item = u32>) -> impl Iterator<Item = (u32, ArenaPlace)> {
        ids.flat_map(move |id| {
            let entries = self.ordered[id as usize].iter_from(0);
            entries.map(move |entry: RankedRow| (id, self.store.place(entry.row)))
        })
    }

    /// Begins to watch rows: those of a key in their order.
    fn begin_tracking(&mut self) {
        if self.store.tracker.is_none() {
            let rows = self.ordered.iter().flat_map(|ordered| ordered.iter_from(0));
            self.store.tracker = Some(RowTracker::of(rows.map(|entry| entry.row)));
        }
    }

    /// Writes some rows to the capture under way; false once there are none left. Between
    /// two pieces.
    fn read_some(&mut self, most: usize) -> Result<bool> {
        let Some(unread) = self.store.take_unread(most) else { return Ok(false) };
        self.hand_over(&unread)?;
        Ok(true)
    }

    fn hand_over(&mut self, numbered: &[NumberedRow]) -> Result<()> {
        let Tables::Numbered { rows, .. } = &self.tables else { return Ok(()) };
        if let (Some(tracker), [_, ..]) = (&mut self.store.tracker, numbered) {
            tracker.write(rows.batch(numbered, &self.store.arena)?);
        }
        Ok(())
    }

    /// Ends a piece for captures: rows still lie where they did, and keys are still known.
    pub fn end_piece(&mut self) -> Result<()> {
        let uncaptured = self.store.take_uncaptured();
        self.hand_over(&uncaptured)?;
        let (live, keys) = (self.store.live(), &self.keys);
        if let Some(tracker) = &mut self.store.tracker {
            let name = |(id, serial): (u32, u64)| (virtual_partition(keys.hash_of(id)), serial);
            tracker.gone(self.gone.drain(..).map(name), live);
            tracker.end_piece();
        }
        Ok(())
    }

    /// Restores what partitions captured.
    pub fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        match &Tables::new(&self.shared.spec) {
            Tables::Rows(by_key) => {
                for batch in restored.table(ROWS) {
                    let rows = by_key.read(batch)?;
                    self.restore_rows(&rows.rows, Some(&rows))?;
                }
            }
            Tables::Numbered { rows, keys } => {
                for rows in rows.read(restored.table(NUMBERED))? {
                    self.restore_rows(&rows, None)?;
                }
                for batch in restored.table(WRITTEN) {
                    self.restore_written(&keys.read(batch)?)?;
                }
            }
        }
        Ok(())
    }

    /// Takes rows back: those of a key in their order, or at least those that sort alike.
    fn restore_rows(&mut self, rows: &RecordBatch, state: Option<&RestoredRows<'_>>) -> Result<()> {
        let bundle = Bundle::new(rows.clone(), Stamps::first());
        let piece = Piece::whole(&bundle, 1);
        let incoming = Incoming::new(&piece, None, &self.sort)?;
        let columns = keys_of(rows.columns(), &self.shared.spec.keys);
        self.ids.clear();
        self.keys.intern_rows(&columns, None, rows.num_rows(), &mut self.ids)?;
        self.grow();
        if let Some(unique) = &mut self.unique {
            unique.begin(rows, None)?;
        }
        for position in 0..rows.num_rows() {
            let id = self.ids[position];
            let cursor = self.cursor_for(id, &incoming, position);
            let row = self.store.add(position as u32);
            let entry = RankedRow { prefix: incoming.prefixes[position], row };
            self.change(id, |ordered| ordered.insert(cursor, entry));
            if let Some(unique) = &mut self.unique {
                unique.set(position, entry);
            }
            if let Some(state) = state {
                state.write(&mut self.expiry, id, position);
            }
        }
        if !self.shared.spec.keeps_all() {
            let mut ids = self.ids.clone();
            ids.dedup();
            ids.into_iter().for_each(|id| self.evict(id, &incoming));
        }
        self.note_windows(&piece, &incoming)?;
        self.finish(&incoming.columns)
    }

    /// Restores when keys were last written.
    fn restore_written(&mut self, state: &RestoredRows<'_>) -> Result<()> {
        let mut ids = Vec::with_capacity(state.rows.num_rows());
        self.keys.intern_rows(state.rows.columns(), None, state.rows.num_rows(), &mut ids)?;
        self.grow();
        for (row, &id) in ids.iter().enumerate() {
            if !self.has(BY_KEY, id) {
                return Err(does_not_fit("a key has no rows".to_owned()));
            }
            state.write(&mut self.expiry, id, row);
        }
        Ok(())
    }
}
