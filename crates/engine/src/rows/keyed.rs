//! Runs a [`RowOperator`] in the engine: a state per key, partitions that own ranges of keys, and
//! timers.
//!
//! **Invariant:** what leaves has its place: rows behind the row that caused them, rows of timers by
//! time, virtual partition and key. So the sequence depends on keys and rows alone, never on the
//! number of partitions or on how rows were cut into bundles.

use std::hash::BuildHasherDefault;
use std::sync::Arc;

use arrow_schema::SchemaRef;
use hashbrown::HashMap;
use thalweg_core::operator::{Partition, WatermarkCall, WatermarkInterest};
use thalweg_core::time::Grid;
use thalweg_core::{
    Bundle, Opening, Operator, OperatorClass, Output, Piece, Place, Progress, Result, Route,
    Watermark,
};
use thalweg_operators::keys::partition_of;

use super::Row;
use super::codec::{Codec, packed_schema};
use super::key::{ProbeHasher, RowKey, hash_key};
use super::operator::{KeyContext, RowOperator};
use super::timers::Timers;

/// Timers that fire between two looks at the clock.
const TIMERS_UNCHECKED: usize = 64;

/// The key selector of an operator.
pub(super) type KeyOf<T, K> = Arc<dyn Fn(&T) -> K + Send + Sync>;

/// A keyed operator as the engine runs it.
pub(super) struct KeyedOperator<T, K, O> {
    pub name: String,
    pub codec: Codec,
    pub key: KeyOf<T, K>,
    /// `None` for a singleton.
    pub partitions: Option<usize>,
    pub operator: Arc<O>,
}

impl<T: Row, K: RowKey, O: RowOperator<K, T>> Operator for KeyedOperator<T, K, O> {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Sequenced
    }
    fn is_singleton(&self) -> bool {
        self.partitions.is_none()
    }
    fn partitions(&self) -> Option<usize> {
        self.partitions
    }
    fn rows_depend_on_watermarks(&self) -> bool {
        self.operator.timer_grid_ms().is_some()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        match self.operator.timer_grid_ms() {
            Some(period_ms) => WatermarkInterest::Grids(vec![Grid { period_ms, offset_ms: 0 }]),
            None => WatermarkInterest::EndOnly,
        }
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let mut scattered = vec![Vec::new(); partitions];
        self.codec.read::<T>(&bundle.batch, None, |place, row| {
            let hash = hash_key(&(self.key)(&row));
            scattered[partition_of(hash, partitions)].push(place);
            Ok(())
        })?;
        Ok(Route::Scatter(scattered))
    }
    fn open(&self, _opening: Opening) -> Result<Box<dyn Partition>> {
        Ok(Box::new(KeyedPartition {
            codec: self.codec,
            key: Arc::clone(&self.key),
            operator: Arc::clone(&self.operator),
            states: HashMap::default(),
            timers: Timers::new(self.operator.timer_grid_ms()),
            context: KeyContext::new(),
            schema: packed_schema(false).arrow(),
        }))
    }
}

/// The keys of one range.
struct KeyedPartition<T: Row, K: RowKey, O: RowOperator<K, T>> {
    codec: Codec,
    key: KeyOf<T, K>,
    operator: Arc<O>,
    states: HashMap<K, O::State, BuildHasherDefault<ProbeHasher>>,
    timers: Timers<K>,
    context: KeyContext<O::Out>,
    schema: SchemaRef,
}

impl<T: Row, K: RowKey, O: RowOperator<K, T>> KeyedPartition<T, K, O> {
    /// Calls the operator with the state of a key, then does what it asked for.
    fn call(
        &mut self,
        key: &K,
        function: impl FnOnce(&O, &mut O::State, &mut KeyContext<O::Out>),
    ) -> Result<()> {
        let state = match self.states.get_mut(key) {
            Some(state) => state,
            None => self.states.entry(key.clone()).or_default(),
        };
        function(&self.operator, state, &mut self.context);
        for at_ms in self.context.timers_ms.drain(..) {
            self.timers.add(at_ms, key);
        }
        if std::mem::take(&mut self.context.forgets) {
            self.states.remove(key);
        }
        self.context.emit.check()
    }

    /// Sends out what was emitted, at places of this kind.
    fn send(&mut self, output: &mut Output, place: impl FnOnce(Vec<i64>) -> Place) -> Result<()> {
        let emit = &mut self.context.emit;
        if emit.writer.len() > 0 {
            let places = std::mem::take(&mut emit.places);
            output.emit_at(emit.writer.finish(&self.schema, None)?, place(places));
        }
        Ok(())
    }
}

impl<T: Row, K: RowKey, O: RowOperator<K, T>> Partition for KeyedPartition<T, K, O> {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        let codec = self.codec;
        codec.read(&piece.bundle.batch, piece.rows, |place, row| {
            let key = (self.key)(&row);
            self.context.emit.place = i64::from(place);
            self.call(&key, |operator, state, context| operator.row(&key, state, row, context))
        })?;
        let causes = |places: Vec<i64>| places.into_iter().map(|place| place as u32).collect();
        self.send(output, |places| Place::Caused(causes(places)))
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let mut fired = 0;
        let progress = loop {
            if fired % TIMERS_UNCHECKED == TIMERS_UNCHECKED - 1 && output.time_is_up() {
                break Progress::More;
            }
            let Some((time_ms, key)) = self.timers.pop(call.watermark) else {
                break Progress::Done;
            };
            fired += 1;
            self.context.emit.place = time_ms;
            self.call(&key, |operator, state, context| {
                operator.timer(&key, state, time_ms, context);
            })?;
        };
        self.send(output, Place::WindowEnds)?;
        Ok(progress)
    }

    fn wakes_at(&self) -> Watermark {
        self.timers.first()
    }

    fn state_bytes(&self) -> usize {
        let of_key = size_of::<K>() + size_of::<O::State>() + 16;
        self.states.capacity() * of_key + self.timers.len() * (size_of::<K>() + 32)
    }
}
