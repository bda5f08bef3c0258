//! Runs a [`RowOperator`] in the engine: a state per key, partitions that own ranges of keys, and
//! timers.
//!
//! With one input a row finds the timers fired that the watermark before it reaches, also where
//! that watermark itself comes later (in `epoch`): what happens to a key depends on its rows alone,
//! not on when watermarks come. With several inputs the joint watermark decides.
//!
//! **Invariant:** what leaves has its place: rows behind the row that caused them, rows of timers
//! by time, virtual partition and key. So the sequence depends on keys and rows alone, never on the
//! number of partitions or on how rows were cut into bundles.

use std::sync::{Arc, OnceLock};

use arrow_schema::SchemaRef;
use thalweg_core::operator::{CallPlaces, Partition, WatermarkCall, WatermarkInterest};
use thalweg_core::time::Grid;
use thalweg_core::{
    Bundle, Captured, Extent, Operator, OperatorClass, Output, PartitionContext, Piece, Place,
    Progress, Restored, Result, Route, TableChanges, Watermark,
};
use thalweg_operators::keys::partition_of;

use super::Row;
use super::codec::Codec;
use super::hashed::{NextKey, hashed_schema, hashes_of};
use super::key::{RowKey, hash_key};
use super::operator::{KeyContext, RowOperator, TimerKind};
use super::snapshot::{KeptParts, KeyedLayout, STATES};
use super::states::States;
use super::timers::Timers;

/// Timers that fire between two looks at the clock.
const TIMERS_UNCHECKED: usize = 64;

/// Rows that are held take about this many bytes at most.
const HELD_BYTES: usize = 64 * 1024;

/// The key selector of an operator.
pub(super) type KeyOf<T, K> = Arc<dyn Fn(&T) -> K + Send + Sync>;

/// The columns of an operator's keys and states, found when the first capture or restore needs
/// them.
pub(super) type SharedLayout<K, S> = Arc<OnceLock<KeyedLayout<K, S>>>;

/// A keyed operator as the engine runs it.
pub(super) struct KeyedOperator<T: Row, K: RowKey, O: RowOperator<K, T>> {
    pub name: String,
    pub codec: Codec,
    pub key: KeyOf<T, K>,
    /// `None` for a singleton.
    pub partitions: Option<usize>,
    pub operator: Arc<O>,
    pub layout: SharedLayout<K, O::State>,
    /// The key of the rows that it makes.
    pub next_key: NextKey<O::Out>,
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
    fn uses_processing_time(&self) -> bool {
        self.operator.uses_processing_time() || self.operator.state_ttl_ms().is_some()
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
        let mut scatter = |place, hash| scattered[partition_of(hash, partitions)].push(place);
        match hashes_of(&bundle.batch) {
            Some(hashes) => {
                (0..).zip(hashes).for_each(|(place, &hash)| scatter(place, hash as u64));
            }
            None => self.codec.read::<T>(&bundle.batch, None, |place, row| {
                scatter(place, hash_key(&(self.key)(&row)));
                Ok(())
            })?,
        }
        Ok(Route::Scatter(scattered))
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        let next_hash = self.next_key.get();
        Ok(Box::new(KeyedPartition {
            codec: self.codec,
            key: Arc::clone(&self.key),
            operator: Arc::clone(&self.operator),
            states: States::new(self.operator.state_ttl_ms()),
            timers: Timers::new(self.operator.timer_grid_ms()),
            clock_timers: Timers::new(Some(1)),
            schema: hashed_schema(next_hash.is_some()).arrow(),
            context: KeyContext::new(next_hash),
            by_clock: self.uses_processing_time(),
            now_ms: i64::MIN,
            is_ordered: opening.order.is_ordered(),
            has_ended: false,
            is_at_watermark: false,
            held: Vec::new(),
            layout: Arc::clone(&self.layout),
        }))
    }
}

/// The keys of one range.
struct KeyedPartition<T: Row, K: RowKey, O: RowOperator<K, T>> {
    codec: Codec,
    key: KeyOf<T, K>,
    operator: Arc<O>,
    states: States<K, O::State>,
    timers: Timers<K>,
    /// Timers of processing time.
    clock_timers: Timers<K>,
    context: KeyContext<O::Out>,
    schema: SchemaRef,
    /// True if the operator has to do with the clock.
    by_clock: bool,
    /// The clock when it was last read; it never goes back.
    now_ms: i64,
    /// A sequence is promised: the clock calls nobody, and its timers fire before the next rows.
    is_ordered: bool,
    has_ended: bool,
    is_at_watermark: bool,
    /// The calls whose rows are held, and where these end.
    held: Vec<(u32, usize)>,
    layout: SharedLayout<K, O::State>,
}

impl<T: Row, K: RowKey, O: RowOperator<K, T>> KeyedPartition<T, K, O> {
    /// Calls the operator with the state of a key, then does what it asked for.
    fn call(
        &mut self,
        (key, hash): (&K, u64),
        function: impl FnOnce(&O, &mut O::State, &mut KeyContext<O::Out>),
    ) -> Result<()> {
        let (operator, context) = (&self.operator, &mut self.context);
        self.states.with((key, hash), self.now_ms, |state| function(operator, state, context));
        for change in self.context.timers.drain(..) {
            let timers = match change.kind {
                TimerKind::EventTime => &mut self.timers,
                TimerKind::ProcessingTime => &mut self.clock_timers,
            };
            match change.is_set {
                true => timers.add(change.at_ms, key),
                false => timers.remove(change.at_ms, key),
            }
        }
        if std::mem::take(&mut self.context.forgets) {
            self.states.remove(key);
        }
        self.context.emit.check()
    }

    /// The layout of what is kept, and what that is.
    fn kept(&mut self) -> (&KeyedLayout<K, O::State>, KeptParts<'_, K, O::State>) {
        let KeyedPartition { states, timers, clock_timers, layout, .. } = self;
        (layout.get_or_init(KeyedLayout::new), KeptParts { states, timers, clock_timers })
    }

    fn read_clock(&mut self, output: &Output) {
        if self.by_clock {
            self.now_ms = self.now_ms.max(output.wall_ms());
            self.context.now_ms = self.operator.uses_processing_time().then_some(self.now_ms);
        }
    }

    /// Fires the timers of event time that a watermark reaches. True if all have fired. At a
    /// watermark rows have the time of their timer for their place, else the place is left as it
    /// is.
    fn fire_until(&mut self, watermark: Watermark, time_is_up: impl Fn() -> bool) -> Result<bool> {
        let mut fired = 0;
        while fired % TIMERS_UNCHECKED != TIMERS_UNCHECKED - 1 || !time_is_up() {
            let Some((time_ms, key)) = self.timers.pop(watermark) else { return Ok(true) };
            fired += 1;
            if self.is_at_watermark {
                self.context.emit.place = time_ms;
            }
            self.context.watermark_ms = time_ms.saturating_sub(1);
            self.call((&key, hash_key(&key)), |operator, state, context| {
                operator.timer(&key, state, time_ms, context);
            })?;
        }
        Ok(false)
    }

    /// Fires the timers that the clock has reached. True if all have fired.
    fn fire_clock_timers(&mut self, time_is_up: impl Fn() -> bool) -> Result<bool> {
        let mut fired = 0;
        while fired % TIMERS_UNCHECKED != TIMERS_UNCHECKED - 1 || !time_is_up() {
            // A watermark reaches a timer from the millisecond before it on.
            let now = Watermark(self.now_ms.saturating_sub(1));
            let Some((time_ms, key)) = self.clock_timers.pop(now) else { return Ok(true) };
            fired += 1;
            self.call((&key, hash_key(&key)), |operator, state, context| {
                operator.processing_timer(&key, state, time_ms, context);
            })?;
        }
        Ok(false)
    }

    /// Sends out what was emitted, at places of this kind, or holds it if it may: timers make a row
    /// now and then, and a batch of each would cost more than the rows.
    fn send(&mut self, output: &mut Output, place: impl FnOnce(Vec<i64>) -> Place) -> Result<()> {
        if let Some(call) = output.held_call() {
            return self.hold(call, output);
        }
        let emit = &mut self.context.emit;
        if emit.writer.len() > 0 {
            let places = std::mem::take(&mut emit.places);
            output.emit_at(emit.finish(&self.schema)?, place(places));
        }
        Ok(())
    }
}

impl<T: Row, K: RowKey, O: RowOperator<K, T>> KeyedPartition<T, K, O> {
    fn hold(&mut self, call: u32, output: &mut Output) -> Result<()> {
        let rows = self.context.emit.writer.len();
        let (last, held) = self.held.last().copied().unzip();
        if rows > held.unwrap_or(0) {
            if last == Some(call) {
                self.held.pop();
            }
            self.held.push((call, rows));
        }
        if self.context.emit.writer.bytes() < HELD_BYTES { Ok(()) } else { self.flush(output) }
    }
}

impl<T: Row, K: RowKey, O: RowOperator<K, T>> Partition for KeyedPartition<T, K, O> {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        self.read_clock(output);
        if self.is_ordered && self.by_clock {
            let first = piece.rows.and_then(|rows| rows.first()).copied().unwrap_or(0);
            self.context.emit.place = i64::from(first);
            let _all = self.fire_clock_timers(|| false)?;
            let _all = self.states.expire(self.now_ms, || false);
        }
        let codec = self.codec;
        let before = &piece.bundle.stamps.watermark_before;
        let hashes = hashes_of(&piece.bundle.batch);
        codec.read(&piece.bundle.batch, piece.rows, |place, row| {
            let key = (self.key)(&row);
            let hash = hashes.map_or_else(|| hash_key(&key), |of| of[place as usize] as u64);
            self.context.emit.place = i64::from(place);
            let before = before.at(place as usize);
            if !self.is_ordered && piece.lanes == 1 && self.timers.first() <= before {
                self.fire_until(before, || false)?;
            }
            self.context.watermark_ms = before.0;
            self.call((&key, hash), |operator, state, context| {
                operator.row(&key, state, row, context);
            })
        })?;
        let causes = |places: Vec<i64>| places.into_iter().map(|place| place as u32).collect();
        self.send(output, |places| Place::Caused(causes(places)))
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        self.read_clock(output);
        self.has_ended = call.watermark == Watermark::END;
        self.is_at_watermark = true;
        let done = self.fire_until(call.watermark, || output.time_is_up());
        self.is_at_watermark = false;
        let done = done?;
        if done && self.has_ended {
            // They do not fire any more, and no snapshot has to remove them.
            self.clock_timers = Timers::new(Some(1));
        }
        self.send(output, Place::WindowEnds)?;
        Ok(if done { Progress::Done } else { Progress::More })
    }

    fn flush(&mut self, output: &mut Output) -> Result<()> {
        let ends = std::mem::take(&mut self.held);
        let emit = &mut self.context.emit;
        if emit.writer.len() > 0 {
            let places = std::mem::take(&mut emit.places);
            let place = Place::OfCalls(CallPlaces { ends, places });
            output.emit_at(emit.finish(&self.schema)?, place);
        }
        Ok(())
    }

    fn wakes_at(&self) -> Watermark {
        self.timers.first()
    }

    fn ticks_at(&self) -> Option<i64> {
        if self.has_ended {
            return None;
        }
        let timer = self.clock_timers.first();
        let timer = (timer != Watermark::END).then(|| timer.0.saturating_add(1));
        timer.into_iter().chain(self.states.looks_at()).min()
    }

    fn tick(&mut self, output: &mut Output) -> Result<Progress> {
        self.read_clock(output);
        let all_fired = self.fire_clock_timers(|| output.time_is_up())?;
        let done = all_fired && self.states.expire(self.now_ms, || output.time_is_up());
        self.context.emit.places.clear();
        self.send(output, |_| Place::AsEmitted)?;
        Ok(if done { Progress::Done } else { Progress::More })
    }

    fn capture(&mut self, extent: Extent) -> Result<Captured> {
        let (layout, kept) = self.kept();
        layout.capture(extent, kept)
    }

    fn table_changes(&mut self) -> Vec<TableChanges> {
        vec![self.states.changes(STATES)]
    }

    fn stop_tracking(&mut self, table: &str) {
        if table == STATES {
            self.states.stop_tracking();
        }
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let (layout, kept) = self.kept();
        layout.restore(restored, kept)
    }

    fn state_bytes(&self) -> usize {
        let timers = self.timers.bytes() + self.clock_timers.bytes();
        let states = self.states.bytes(|state| self.operator.extra_bytes(state));
        states + timers
    }

    fn state_keys(&self) -> Option<usize> {
        Some(self.states.len())
    }
}
