//! Capture and restore of a keyed operator's keys.
//!
//! | table | a row | columns behind `$partition` |
//! |---|---|---|
//! | `states` | a key that has a state | the key, `used_ms`, the state |
//! | `timers` | a timer of event time | the key, `time_ms` |
//! | `clock_timers` | a timer of processing time | the key, `time_ms` |
//!
//! `used_ms` is the wall clock when the state was used last, or the least number where the operator
//! does not use processing time; `time_ms` of a timer at the end of the input is the greatest
//! number. For columns of keys and states see [`ValueColumns`].
//!
//! **Invariant:** a key belongs to the virtual partition that its table names; one that does not
//! (the type hashes otherwise than it did) is refused, since its rows would go elsewhere.

use std::sync::Arc;

use arrow_array::types::{Int64Type, UInt8Type};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType as Arrow, Field, SchemaRef};
use thalweg_core::snapshot::{CapturedTable, PARTITION_COLUMN, TableRows, state_schema};
use thalweg_core::{Captured, Extent, Restored, Result};
use thalweg_operators::tables::{KEPT_ROWS_MAX, does_not_fit, numbers_of};

use super::RowState;
use super::key::{RowKey, virtual_partition};
use super::states::{KeptState, States};
use super::timers::{MeantTimers, Timers};
use super::value_columns::ValueColumns;

pub(super) const STATES: &str = "states";
const TIMERS: &str = "timers";
const CLOCK_TIMERS: &str = "clock_timers";
const USED: &str = "used_ms";
const TIME: &str = "time_ms";

/// What of an operator is kept.
pub(super) struct KeptParts<'a, K, S> {
    pub states: &'a mut States<K, S>,
    pub timers: &'a mut Timers<K>,
    pub clock_timers: &'a mut Timers<K>,
}

/// How keys and states of an operator stand in tables.
pub(super) struct KeyedLayout<K, S> {
    keys: Arc<ValueColumns<K>>,
    states: ValueColumns<S>,
}

impl<K: RowKey, S: RowState> KeyedLayout<K, S> {
    /// Finds the columns of the types.
    pub(super) fn new() -> Self {
        KeyedLayout { keys: Arc::new(ValueColumns::new("key")), states: ValueColumns::new("state") }
    }

    /// Captures everything, or what has changed. States are written at once, timers later.
    ///
    /// # Errors
    /// If a key or a state cannot be written.
    pub(super) fn capture(&self, extent: Extent, kept: KeptParts<'_, K, S>) -> Result<Captured> {
        let mut captured = Captured::default();
        self.capture_states(extent, kept.states, &mut captured)?;
        capture_timers(&self.keys, extent, (kept.timers, kept.clock_timers), &mut captured);
        Ok(captured)
    }

    fn capture_states(
        &self,
        extent: Extent,
        states: &mut States<K, S>,
        captured: &mut Captured,
    ) -> Result<()> {
        let meant = states.mean(extent);
        let rows = meant.kept.chunks(KEPT_ROWS_MAX).map(|kept| self.state_rows(kept));
        let rows = rows.collect::<Result<_>>()?;
        let gone: Vec<&K> = meant.gone.iter().collect();
        let removed = gone.chunks(KEPT_ROWS_MAX).map(|gone| keyed(&self.keys, gone, Vec::new()));
        let rows = TableRows { rows, removed: removed.collect::<Result<_>>()? };
        captured.tables.push(CapturedTable {
            name: STATES,
            schema: self.states_schema(),
            extent: meant.extent,
            identity_columns: 1 + self.keys.fields().len(),
            kept_from: None,
            rows: Box::new(move || Ok(rows)),
        });
        Ok(())
    }

    fn states_schema(&self) -> SchemaRef {
        let used = Field::new(USED, Arrow::Int64, true);
        state_schema(self.keys.fields().into_iter().chain([used]).chain(self.states.fields()))
    }

    fn state_rows(&self, kept: &[KeptState<'_, K, S>]) -> Result<RecordBatch> {
        let keys: Vec<&K> = kept.iter().map(|(key, ..)| *key).collect();
        let states: Vec<&S> = kept.iter().map(|(_, state, _)| *state).collect();
        let used: Int64Array = kept.iter().map(|(.., used_ms)| *used_ms).collect();
        let fields = self.states.fields().into_iter().zip(self.states.columns(&states)?);
        let used = (Field::new(USED, Arrow::Int64, true), Arc::new(used) as ArrayRef);
        keyed(&self.keys, &keys, std::iter::once(used).chain(fields).collect())
    }

    /// Restores what was captured.
    ///
    /// # Errors
    /// If it is of other types, or damaged.
    pub(super) fn restore(&self, restored: &Restored, kept: KeptParts<'_, K, S>) -> Result<()> {
        for batch in restored.table(STATES) {
            let states = self.states.values(batch)?;
            let used = numbers_of::<Int64Type>(batch, USED)?;
            for ((key, state), &used_ms) in
                keys_of(&self.keys, batch)?.into_iter().zip(states).zip(used)
            {
                kept.states.recall(key, state, used_ms);
            }
        }
        kept.states.recalled();
        restore_timers(&self.keys, restored, (kept.timers, kept.clock_timers))
    }
}

/// Captures timers of event time and of processing time. Their rows are made later.
pub(super) fn capture_timers<K: RowKey>(
    key_columns: &Arc<ValueColumns<K>>,
    extent: Extent,
    timers: (&mut Timers<K>, &mut Timers<K>),
    captured: &mut Captured,
) {
    for (name, timers) in [(TIMERS, timers.0), (CLOCK_TIMERS, timers.1)] {
        let MeantTimers { extent, set, gone } = timers.mean(extent);
        let schema = state_schema(key_columns.fields().into_iter().chain([time_field()]));
        let columns = Arc::clone(key_columns);
        let rows = move || {
            let batches = |timers: &[(i64, K)]| {
                let batches = timers.chunks(KEPT_ROWS_MAX).map(|some| timer_rows(&columns, some));
                batches.collect::<Result<Vec<_>>>()
            };
            Ok(TableRows { rows: batches(&set)?, removed: batches(&gone)? })
        };
        captured.tables.push(CapturedTable {
            name,
            identity_columns: schema.fields().len(),
            schema,
            extent,
            kept_from: None,
            rows: Box::new(rows),
        });
    }
}

/// Restores timers of event time and of processing time.
///
/// # Errors
/// If they are of other types, or damaged.
pub(super) fn restore_timers<K: RowKey>(
    key_columns: &ValueColumns<K>,
    restored: &Restored,
    timers: (&mut Timers<K>, &mut Timers<K>),
) -> Result<()> {
    for (name, timers) in [(TIMERS, timers.0), (CLOCK_TIMERS, timers.1)] {
        for batch in restored.table(name) {
            let times = numbers_of::<Int64Type>(batch, TIME)?;
            for (key, &time_ms) in keys_of(key_columns, batch)?.into_iter().zip(times) {
                timers.recall(time_ms, key);
            }
        }
    }
    Ok(())
}

/// The keys in a table.
///
/// # Errors
/// If they are of another type, or belong elsewhere.
pub(super) fn keys_of<K: RowKey>(
    key_columns: &ValueColumns<K>,
    batch: &RecordBatch,
) -> Result<Vec<K>> {
    let keys = key_columns.values(batch)?;
    let owners = numbers_of::<UInt8Type>(batch, PARTITION_COLUMN)?;
    match keys.iter().zip(owners).all(|(key, owner)| virtual_partition(key) == *owner) {
        true => Ok(keys),
        false => Err(does_not_fit("keys hash otherwise than they did".to_owned())),
    }
}

fn time_field() -> Field {
    Field::new(TIME, Arrow::Int64, true)
}

fn timer_rows<K: RowKey>(
    key_columns: &ValueColumns<K>,
    timers: &[(i64, K)],
) -> Result<RecordBatch> {
    let keys: Vec<&K> = timers.iter().map(|(_, key)| key).collect();
    let times = Int64Array::from_iter_values(timers.iter().map(|(time_ms, _)| *time_ms));
    keyed(key_columns, &keys, vec![(time_field(), Arc::new(times))])
}

/// Rows of keys: their virtual partitions, the keys, and more columns.
pub(super) fn keyed<K: RowKey>(
    key_columns: &ValueColumns<K>,
    keys: &[&K],
    more: Vec<(Field, ArrayRef)>,
) -> Result<RecordBatch> {
    let owners = UInt8Array::from_iter_values(keys.iter().map(|key| virtual_partition(*key)));
    let (fields, columns): (Vec<Field>, Vec<ArrayRef>) = more.into_iter().unzip();
    let schema = state_schema(key_columns.fields().into_iter().chain(fields));
    let owners = std::iter::once(Arc::new(owners) as ArrayRef);
    let columns = owners.chain(key_columns.columns(keys)?).chain(columns);
    Ok(RecordBatch::try_new(schema, columns.collect())?)
}
