//! What a partition of a pattern keeps, as tables of state.
//!
//! | table | a row for each |
//! |---|---|
//! | `keys` | key with runs or matches: the rows that they may ask for, the runs and the matches as lists |
//! | `waiting_rows`, `late`, `overdue` | row that waits for its time (`rows::waiting_capture`) |
//!
//! Captures write the keys that rows and alarms have reached, and those that have no runs and
//! matches any more ([`crate::capture`]), and the rows that have come to wait.
//!
//! Alarms follow from the runs. The aggregates of conditions are not captured: a run that has none
//! takes its rows in again, in the same sequence.

use arrow_array::RecordBatch;
use thalweg_core::{Captured, Extent, Restored, Result};

use super::machine::Machine;
use super::partition::MatchPartition;
use super::runs::{Key, Runs};
use super::spec::MatchSpec;
use crate::aggregate::{StateColumns, StateRows};
use crate::capture::keys::{KeyTracker, KeyedState};
use crate::keys::KeyTable;
use crate::rows::waiting_capture::{WaitingRows, WaitingShape};
use crate::tables::{does_not_fit, state_batch};

/// The table that is captured by key.
pub(super) const TABLES: [&str; 1] = ["keys"];
pub(super) const KEYS: usize = 0;
/// The rows of a key, its runs and its matches among its columns.
const ROWS: &str = "$rows";
const RUNS: &str = "$runs";
const MATCHES: &str = "$matches";

impl KeyedState for MatchPartition {
    fn keys(&self) -> &KeyTable {
        &self.table
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.machine.is_busy(id)
    }
    fn rows_of_keys(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        let (owners, mut columns) = self.key_columns.columns_of(&self.table, ids)?;
        let mut states = StateColumns::default();
        self.machine.capture(ids, &mut states)?;
        columns.extend(states.finish());
        state_batch(owners, columns)
    }
    fn tracker(&mut self, _: usize) -> &mut Option<KeyTracker> {
        &mut self.tracker
    }
    fn capture_others(&mut self, extent: Extent, captured: &mut Captured) -> Result<()> {
        self.waiting.capture(extent, captured)
    }
}

impl MatchSpec {
    /// What waits for its time.
    pub(super) fn waiting_shape(&self) -> WaitingShape {
        let (input, keys, rowtime) =
            (self.input.clone(), self.pattern.keys.clone(), self.pattern.rowtime);
        WaitingShape { input, keys, rowtime, behind_ms: 0, has_kinds: false }
    }
}

impl MatchPartition {
    /// Restores what partitions captured.
    pub(super) fn restore_state(&mut self, restored: &Restored) -> Result<()> {
        for rows in restored.table(TABLES[KEYS]) {
            let known = self.table.len() - usize::from(self.spec.pattern.keys.is_empty());
            let mut ids = Vec::with_capacity(rows.num_rows());
            self.key_columns.intern(rows, &mut self.table, &mut ids)?;
            if self.table.len() != known + ids.len() {
                return Err(does_not_fit("a key is there twice".to_owned()));
            }
            self.machine.keys.resize_with(self.table.id_limit(), Key::default);
            self.machine.restore(&ids, rows)?;
            ids.into_iter().for_each(|id| self.set_alarm(id));
        }
        for WaitingRows { columns, times, .. } in self.waiting.restored(restored)? {
            let rows: Vec<u32> = (0..times.len() as u32).collect();
            self.hold(columns, &times, &rows)?;
        }
        Ok(())
    }
}

impl Machine {
    /// True if it has runs or matches.
    fn is_busy(&self, id: u32) -> bool {
        self.keys.get(id as usize).is_some_and(|key| key.runs.len() + key.matches.len() > 0)
    }

    fn capture(&self, ids: &[u32], columns: &mut StateColumns) -> Result<()> {
        let keys: Vec<&Key> = ids.iter().map(|&id| &self.keys[id as usize]).collect();
        columns.begin(ROWS);
        self.kept.capture(&keys.iter().map(|key| &key.rows).collect::<Vec<_>>(), columns)?;
        columns.begin(RUNS);
        Runs::capture(&keys.iter().map(|key| (&key.runs, key.base)).collect::<Vec<_>>(), columns)?;
        columns.begin(MATCHES);
        Runs::capture(&keys.iter().map(|key| (&key.matches, key.base)).collect::<Vec<_>>(), columns)
    }

    fn restore(&mut self, ids: &[u32], rows: &RecordBatch) -> Result<()> {
        let kept = self.kept.restore(&StateRows::new(rows, ROWS))?;
        let lengths: Vec<u64> = kept.iter().map(|rows| rows.len() as u64).collect();
        let variables = self.variables();
        let runs = Runs::restore(&StateRows::new(rows, RUNS), &lengths, variables, true)?;
        let matches = Runs::restore(&StateRows::new(rows, MATCHES), &lengths, variables, false)?;
        for (((&id, rows), runs), matches) in ids.iter().zip(kept).zip(runs).zip(matches) {
            let key = &mut self.keys[id as usize];
            (key.rows, key.runs, key.matches) = (rows, runs, matches);
            self.keys_bytes += key.bytes();
        }
        Ok(())
    }
}
