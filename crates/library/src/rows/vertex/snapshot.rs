//! Capture and restore of the processors of a vertex.
//!
//! | table | a row | columns behind `$partition` |
//! |---|---|---|
//! | `entries` | a value that a processor saves under a key | the key, the value |
//! | `shared` | a value that it saves for all | the value |
//! | `timers`, `clock_timers` | a timer | the key, `time_ms` |
//! | `waiting` | an item that waits for another input | `$input`, `item` |
//! | `progress` | an input that has ended; -1 for the vertex | `$input` |
//!
//! What is for all partitions is captured by the first.

use std::sync::{Arc, OnceLock};

use arrow_array::types::Int16Type;
use arrow_array::{ArrayRef, Int16Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType as Arrow, Field};
use thalweg_core::snapshot::state_schema;
use thalweg_core::{Captured, Error, Restored, Result};
use thalweg_operators::tables::{KEPT_ROWS_MAX, numbers_of};

use super::INPUT;
use super::processor::{Processor, VertexContext};
use super::waiting::WaitingItems;
use crate::rows::snapshot::{keyed, keys_of};
use crate::rows::value_columns::ValueColumns;
use crate::rows::{Row, RowKey};

const ENTRIES: &str = "entries";
const SHARED: &str = "shared";
const WAITING: &str = "waiting";
const PROGRESS: &str = "progress";
/// Stands in the table of progress for the vertex itself.
const VERTEX: i16 = -1;

/// What a processor has saved, as it is given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<K, V> {
    /// The key that it was saved under; `None` for an entry of all processors.
    pub key: Option<K>,
    /// The value.
    pub value: V,
}

/// Where a processor puts what it saves.
pub struct SavedEntries<K, V> {
    context: VertexContext,
    entries: Vec<(K, V)>,
    shared: Vec<V>,
}

impl<K: RowKey, V: Row> SavedEntries<K, V> {
    pub(super) fn new(context: VertexContext) -> Self {
        SavedEntries { context, entries: Vec::new(), shared: Vec::new() }
    }

    /// Saves a value under a key, perhaps one of several.
    ///
    /// # Errors
    /// If the items of this key go to another processor.
    pub fn put(&mut self, key: K, value: V) -> Result<()> {
        if !self.context.owns(&key) {
            return Err(Error::user("a processor saves a value under a key that is not its own")
                .hint("partition its inputs by the key, or save the value for all"));
        }
        self.entries.push((key, value));
        Ok(())
    }

    /// Saves a value for all processors, which all have it: that of the first one counts.
    pub fn put_for_all(&mut self, value: V) {
        if self.context.partition() == 0 {
            self.shared.push(value);
        }
    }
}

/// How keys and values of a vertex stand in tables, found when they are needed first.
pub(super) struct StateColumns<K, V> {
    pub keys: Arc<ValueColumns<K>>,
    values: ValueColumns<V>,
}

pub(super) type SharedColumns<P> =
    Arc<OnceLock<StateColumns<<P as Processor>::Key, <P as Processor>::Saved>>>;

/// What the engine knows of a vertex besides what its processor saves.
pub(super) struct VertexProgress<'a> {
    pub waiting: &'a mut WaitingItems,
    pub ended: &'a mut [bool],
    pub is_complete: &'a mut bool,
}

impl<K: RowKey, V: Row> StateColumns<K, V> {
    pub(super) fn new() -> Self {
        StateColumns {
            keys: Arc::new(ValueColumns::new("key")),
            values: ValueColumns::new("value"),
        }
    }

    /// Captures entries and progress.
    ///
    /// # Errors
    /// If a key or a value can't be written.
    pub(super) fn capture(
        &self,
        saved: &SavedEntries<K, V>,
        progress: &VertexProgress<'_>,
    ) -> Result<Captured> {
        let mut captured = Captured::default();
        let fields = self.keys.fields().into_iter().chain(self.values.fields());
        let entries = saved.entries.chunks(KEPT_ROWS_MAX).map(|some| self.entry_rows(some));
        captured.add(ENTRIES, state_schema(fields), entries.collect::<Result<_>>()?);
        let shared = saved.shared.chunks(KEPT_ROWS_MAX).map(|some| self.shared_rows(some));
        let schema = state_schema(self.values.fields());
        captured.add(SHARED, schema, shared.collect::<Result<_>>()?);
        let is_first = saved.context.partition() == 0;
        let waiting = progress.waiting.rows(is_first)?;
        captured.add(WAITING, WaitingItems::schema(), vec![waiting]);
        let ended = (0..).zip(progress.ended.iter()).filter(|(_, ended)| **ended);
        let ended = ended.map(|(input, _)| input);
        let ended = ended.chain(progress.is_complete.then_some(VERTEX)).filter(|_| is_first);
        let ended: Int16Array = ended.map(Some).collect();
        let schema = state_schema([Field::new(INPUT, Arrow::Int16, true)]);
        let partitions = Arc::new(UInt8Array::new_null(ended.len()));
        let rows = RecordBatch::try_new(Arc::clone(&schema), vec![partitions, Arc::new(ended)])?;
        captured.add(PROGRESS, schema, vec![rows]);
        Ok(captured)
    }

    fn entry_rows(&self, entries: &[(K, V)]) -> Result<RecordBatch> {
        let keys: Vec<&K> = entries.iter().map(|(key, _)| key).collect();
        let values: Vec<&V> = entries.iter().map(|(_, value)| value).collect();
        let values = self.values.fields().into_iter().zip(self.values.columns(&values)?);
        keyed(&self.keys, &keys, values.collect())
    }

    fn shared_rows(&self, values: &[V]) -> Result<RecordBatch> {
        let partitions: ArrayRef = Arc::new(UInt8Array::new_null(values.len()));
        let columns = self.values.columns(&values.iter().collect::<Vec<_>>())?;
        let columns = std::iter::once(partitions).chain(columns).collect();
        Ok(RecordBatch::try_new(state_schema(self.values.fields()), columns)?)
    }

    /// Restores what was captured; entries go to the processor.
    ///
    /// # Errors
    /// If it is of other types, or damaged; what the processor reports.
    pub(super) fn restore<P: Processor<Key = K, Saved = V>>(
        &self,
        restored: &Restored,
        processor: &mut P,
        progress: &mut VertexProgress<'_>,
    ) -> Result<()> {
        for batch in restored.table(SHARED) {
            for value in self.values.values(batch)? {
                processor.restore(Entry { key: None, value })?;
            }
        }
        for batch in restored.table(ENTRIES) {
            let keys = keys_of(&self.keys, batch)?;
            for (key, value) in keys.into_iter().zip(self.values.values(batch)?) {
                processor.restore(Entry { key: Some(key), value })?;
            }
        }
        for batch in restored.table(WAITING) {
            progress.waiting.restore(batch)?;
        }
        for batch in restored.table(PROGRESS) {
            for &input in numbers_of::<Int16Type>(batch, INPUT)? {
                match usize::try_from(input).ok().and_then(|input| progress.ended.get_mut(input)) {
                    Some(ended) => *ended = true,
                    None => *progress.is_complete |= input == VERTEX,
                }
            }
        }
        Ok(())
    }
}
