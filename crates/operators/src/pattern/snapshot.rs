//! What a partition of a pattern keeps, as tables of state.
//!
//! | table | a row for each |
//! |---|---|
//! | `keys` | key with runs or matches: the rows that they may ask for, the runs and the matches as lists |
//! | `waiting` | row that waits for its time, first in first |
//!
//! Captures tell the keys that rows and alarms have reached, and those that have no runs and matches any
//! more ([`crate::watch`]). What waits changes all over between two captures as a rule: where it lies is
//! noted, and it is put together later.
//!
//! Alarms follow from the runs. The aggregates of conditions are not told: a run that has none takes its
//! rows in anew, in the same sequence.

use arrow_array::RecordBatch;
use thalweg_core::{Captured, DataType, Restored, Result};

use super::machine::Machine;
use super::partition::{Entry, MatchPartition};
use super::runs::{Key, Runs};
use crate::aggregate::{StateColumns, StateRows};
use crate::join::bounded::pieces::times;
use crate::join::bounded::told::{WaitingRow, tell_waiting};
use crate::keys::KeyTable;
use crate::tables::{does_not_fit, kept_columns, kept_schema, state_batch};
use crate::watch::keys::{KeyWatch, KeyedState};

/// The table that is told by key.
pub(super) const TABLES: [&str; 1] = ["keys"];
pub(super) const KEYS: usize = 0;
const WAITING: &str = "waiting";
/// The rows of a key, its runs and its matches among its columns.
const ROWS: &str = "$rows";
const RUNS: &str = "$runs";
const MATCHES: &str = "$matches";

impl KeyedState for MatchPartition {
    fn keys(&self) -> &KeyTable {
        &self.table
    }
    fn key_types(&self) -> Vec<DataType> {
        self.spec.key_types()
    }
    fn has(&self, _: usize, id: u32) -> bool {
        self.machine.is_busy(id)
    }
    fn tell(&self, _: usize, ids: &[u32]) -> Result<RecordBatch> {
        let (owners, mut told) = self.told_keys.tell(&self.table, ids)?;
        let mut states = StateColumns::default();
        self.machine.tell(ids, &mut states)?;
        told.extend(states.finish());
        state_batch(owners, told)
    }
    fn watch(&mut self, _: usize) -> &mut Option<KeyWatch> {
        &mut self.watch
    }
    fn tell_others(&self, captured: &mut Captured) -> Result<()> {
        let waits = |(due, entry): (i64, Entry)| WaitingRow {
            due,
            row: entry.row,
            hash: self.table.hash_of(entry.id),
        };
        let waiting = self.waiting.iter().map(waits).collect();
        let schema = kept_schema(&[], &self.spec.input);
        captured.tables.push(tell_waiting(WAITING, schema, &self.rows, waiting, |_| Vec::new()));
        Ok(())
    }
}

impl MatchPartition {
    /// Takes back what partitions have told.
    pub(super) fn recall(&mut self, restored: &Restored) -> Result<()> {
        for told in restored.table(TABLES[KEYS]) {
            let known = self.table.len() - usize::from(self.spec.pattern.keys.is_empty());
            let mut ids = Vec::with_capacity(told.num_rows());
            self.told_keys.intern(told, &mut self.table, &mut ids)?;
            if self.table.len() != known + ids.len() {
                return Err(does_not_fit("a key is there twice".to_owned()));
            }
            self.machine.keys.resize_with(self.table.id_limit(), Key::default);
            self.machine.recall(&ids, told)?;
            ids.into_iter().for_each(|id| self.set_alarm(id));
        }
        restored.table(WAITING).iter().try_for_each(|told| self.recall_waiting(told))
    }

    fn recall_waiting(&mut self, told: &RecordBatch) -> Result<()> {
        let schema = kept_schema(&[], &self.spec.input);
        let columns = kept_columns(told, &schema, self.spec.input.len())?;
        let times = times(&columns, self.spec.pattern.rowtime, &self.spec.input)?;
        let rows: Vec<u32> = (0..told.num_rows() as u32).collect();
        self.hold(columns, &times, &rows)
    }
}

impl Machine {
    /// True if it has runs or matches.
    fn is_busy(&self, id: u32) -> bool {
        self.keys.get(id as usize).is_some_and(|key| key.runs.len() + key.matches.len() > 0)
    }

    fn tell(&self, ids: &[u32], told: &mut StateColumns) -> Result<()> {
        let keys: Vec<&Key> = ids.iter().map(|&id| &self.keys[id as usize]).collect();
        told.begin(ROWS);
        self.kept.tell(&keys.iter().map(|key| &key.rows).collect::<Vec<_>>(), told)?;
        told.begin(RUNS);
        Runs::tell(&keys.iter().map(|key| (&key.runs, key.base)).collect::<Vec<_>>(), told)?;
        told.begin(MATCHES);
        Runs::tell(&keys.iter().map(|key| (&key.matches, key.base)).collect::<Vec<_>>(), told)
    }

    fn recall(&mut self, ids: &[u32], told: &RecordBatch) -> Result<()> {
        let rows = self.kept.recall(&StateRows::new(told, ROWS))?;
        let lengths: Vec<u64> = rows.iter().map(|rows| rows.len() as u64).collect();
        let variables = self.variables();
        let runs = Runs::recall(&StateRows::new(told, RUNS), &lengths, variables, true)?;
        let matches = Runs::recall(&StateRows::new(told, MATCHES), &lengths, variables, false)?;
        for (((&id, rows), runs), matches) in ids.iter().zip(rows).zip(runs).zip(matches) {
            let key = &mut self.keys[id as usize];
            (key.rows, key.runs, key.matches) = (rows, runs, matches);
            self.keys_bytes += key.bytes();
        }
        Ok(())
    }
}
