//! What operators over rows are: closures or [`RowOperator`]s, and what they are given.

use std::marker::PhantomData;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use thalweg_core::{Error, ErrorKind};

use super::codec::RowWriter;
use super::hashed::{HashOf, hash_column};
use super::key::RowKey;
use super::{Row, RowState};

/// Where an operator puts the rows that it makes.
pub struct Emit<U> {
    pub(super) writer: RowWriter,
    /// How to hash the keys of rows, and their hashes.
    hash: Option<HashOf<U>>,
    hashes: Vec<i64>,
    /// For each row where it belongs: the row that caused it, or the time of its timer.
    pub(super) places: Vec<i64>,
    pub(super) place: i64,
    pub(super) failure: Option<Error>,
}

impl<U: Row> Emit<U> {
    /// `hash` hashes the keys of the rows.
    pub(super) fn new(hash: Option<HashOf<U>>) -> Self {
        Emit {
            writer: RowWriter::new(),
            hash,
            hashes: Vec::new(),
            places: Vec::new(),
            place: 0,
            failure: None,
        }
    }

    /// Sends a row on.
    pub fn emit(&mut self, row: U) {
        match self.writer.push(&row) {
            Ok(()) => {
                self.places.push(self.place);
                self.hashes.extend(self.hash.as_ref().map(|hash| hash(&row) as i64));
            }
            Err(error) => self.fail(error),
        }
    }

    /// Stops the job with an error; the first one counts.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// The rows as a batch with this schema, behind their hashes if they have any.
    pub(super) fn finish(&mut self, schema: &SchemaRef) -> Result<RecordBatch, Error> {
        let hashes = std::mem::take(&mut self.hashes);
        let before = self.hash.as_ref().map(|_| hash_column(hashes));
        self.writer.finish(schema, before.into_iter().collect())
    }

    /// The error, if there is one.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// Which time a timer follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimerKind {
    /// The watermark.
    EventTime,
    /// The wall clock.
    ProcessingTime,
}

/// What a call asks for its key, in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimerChange {
    pub kind: TimerKind,
    pub at_ms: i64,
    /// False to take it back.
    pub is_set: bool,
}

/// What a [`RowOperator`] can do besides sending rows on.
pub struct KeyContext<U> {
    pub(super) emit: Emit<U>,
    /// Timers that were set and cancelled during a call.
    pub(super) timers: Vec<TimerChange>,
    pub(super) forgets: bool,
    /// The wall clock; `None` for operators that have nothing to do with it.
    pub(super) now_ms: Option<i64>,
    /// See [`KeyContext::watermark_ms`].
    pub(super) watermark_ms: i64,
}

impl<U: Row> KeyContext<U> {
    /// `next_hash` hashes the keys of the rows behind the operator.
    pub(super) fn new(next_hash: Option<HashOf<U>>) -> Self {
        KeyContext {
            emit: Emit::new(next_hash),
            timers: Vec::new(),
            forgets: false,
            now_ms: None,
            watermark_ms: i64::MIN,
        }
    }

    fn change(&mut self, kind: TimerKind, at_ms: i64, is_set: bool) {
        self.timers.push(TimerChange { kind, at_ms, is_set });
    }

    fn check_clock(&mut self) {
        if self.now_ms.is_none() {
            let name = "uses_processing_time";
            self.fail(
                Error::new(ErrorKind::User, "an operator asked for the time of the clock without having said that it goes by it")
                    .hint(format!("answer true in its method '{name}'")),
            );
        }
    }

    /// The wall clock, in milliseconds since 1970; the same for all rows of a bundle. Only for
    /// operators that [say so](RowOperator::uses_processing_time): others fail the job.
    pub fn processing_time_ms(&mut self) -> i64 {
        self.check_clock();
        self.now_ms.unwrap_or(i64::MIN)
    }

    /// For a row the watermark before it: no row from the same source is expected that is older or
    /// as old. `i64::MIN` before the first one. For a timer of event time the millisecond before
    /// its time. Where the operator has no timers of event time it may be an earlier one than the
    /// last.
    pub fn watermark_ms(&self) -> i64 {
        self.watermark_ms
    }

    /// Sets a timer for this key that fires once the wall clock has reached this time, whether rows
    /// come or not. Only for operators that [say so](RowOperator::uses_processing_time). Timers
    /// that are left at the end of the input do not fire.
    pub fn set_processing_timer(&mut self, at_ms: i64) {
        self.check_clock();
        self.change(TimerKind::ProcessingTime, at_ms, true);
    }

    /// Cancels a timer of this key that [`set_timer`](Self::set_timer) has set for this time, if
    /// it has not fired.
    pub fn delete_timer(&mut self, at_ms: i64) {
        self.change(TimerKind::EventTime, at_ms, false);
    }

    /// Cancels a timer of this key that [`set_processing_timer`](Self::set_processing_timer) has
    /// set for this time, if it has not fired.
    pub fn delete_processing_timer(&mut self, at_ms: i64) {
        self.change(TimerKind::ProcessingTime, at_ms, false);
    }

    /// Sends a row on.
    pub fn emit(&mut self, row: U) {
        self.emit.emit(row);
    }

    /// Stops the job with an error; the first one counts.
    pub fn fail(&mut self, error: Error) {
        self.emit.fail(error);
    }

    /// Sets a timer for this key: it fires once the watermark has reached the first point of the
    /// [grid](RowOperator::timer_grid_ms) at or after this time, behind the row that moved the
    /// watermark. Setting the same timer again changes nothing. One that a timer sets fires later
    /// than that timer.
    pub fn set_timer(&mut self, at_ms: i64) {
        self.change(TimerKind::EventTime, at_ms, true);
    }

    /// Sets a timer for this key at the end of the input. It fires with time `i64::MAX`.
    pub fn set_timer_at_end(&mut self) {
        self.change(TimerKind::EventTime, i64::MAX, true);
    }

    /// Forgets the state of this key. Timers that are set stay.
    pub fn forget(&mut self) {
        self.forgets = true;
    }
}

/// A stateful operator over the rows of type `T` of keys of type `K`. Each key has a state of its
/// own, and its rows come in order.
///
/// ```
/// use thalweg::pipeline::Pipeline;
/// use thalweg::rows::{KeyContext, RowOperator};
/// use thalweg::{OrderContract, RunOptions};
///
/// /// Counts the rows of each key per second.
/// struct PerSecond;
///
/// impl RowOperator<u32, (i64, u32)> for PerSecond {
///     type State = u64;
///     type Out = (i64, u32, u64);
///
///     fn timer_grid_ms(&self) -> Option<i64> {
///         Some(1000)
///     }
///     fn row(&self, _: &u32, count: &mut u64, row: (i64, u32), context: &mut KeyContext<Self::Out>) {
///         *count += 1;
///         context.set_timer(row.0 + 1);
///     }
///     fn timer(&self, key: &u32, count: &mut u64, time_ms: i64, context: &mut KeyContext<Self::Out>) {
///         context.emit((time_ms, *key, *count));
///         context.forget();
///     }
/// }
///
/// let rows = [(100, 7), (400, 8), (600, 7), (1100, 8)];
/// let pipeline = Pipeline::new();
/// let counts = pipeline
///     .read_timed_rows("rows", rows, |row: &(i64, u32)| row.0, 0)
///     .key_by(16, |row| row.1)
///     .process("per second", PerSecond)
///     .collect("counts");
/// pipeline.run(RunOptions { order: OrderContract::Arrival, ..RunOptions::default() })?;
/// // The row at 1.1 s has come before the timers of the first second fire behind it.
/// assert_eq!(counts.rows().len(), 3);
/// # Ok::<(), thalweg::Error>(())
/// ```
pub trait RowOperator<K: RowKey, T: Row>: Send + Sync + 'static {
    /// What is kept for a key, from its first row to [`KeyContext::forget`].
    type State: RowState;
    /// The rows that it makes.
    type Out: Row;

    /// Timers fire at multiples of this many milliseconds: a coarser grid lets more rows be worked
    /// on at once. `None`: they fire at the end only.
    fn timer_grid_ms(&self) -> Option<i64> {
        None
    }

    /// True if it sets timers of processing time or asks for the time of the clock. In the ordered
    /// contracts it is refused then, unless `allow_nondeterministic_order` admits it.
    fn uses_processing_time(&self) -> bool {
        false
    }

    /// A key for which no row and no timer came for this many milliseconds of wall clock time
    /// begins from scratch, as with Flink's state TTL; its timers stay. `None` keeps states until
    /// they are forgotten. In the ordered contracts this needs `allow_nondeterministic_order` too.
    fn state_ttl_ms(&self) -> Option<i64> {
        None
    }

    /// About how many bytes a state takes besides its own size, for the account of memory.
    fn extra_bytes(&self, state: &Self::State) -> usize {
        let _ = state;
        0
    }

    /// Takes a row.
    fn row(&self, key: &K, state: &mut Self::State, row: T, context: &mut KeyContext<Self::Out>);

    /// A timer of this key has fired. Those that fire behind the same row do so by time, virtual
    /// partition and key; a key that was forgotten gets a new state.
    fn timer(
        &self,
        key: &K,
        state: &mut Self::State,
        time_ms: i64,
        context: &mut KeyContext<Self::Out>,
    ) {
        let _ = (key, state, time_ms, context);
    }

    /// A timer of processing time has fired, at or after its time. Timers fire in the order of
    /// their times, those of one time in no certain order.
    fn processing_timer(
        &self,
        key: &K,
        state: &mut Self::State,
        time_ms: i64,
        context: &mut KeyContext<Self::Out>,
    ) {
        let _ = (key, state, time_ms, context);
    }
}

/// An operator made of a closure; names the types that the closure's bound leaves open.
pub(super) struct StatefulClosure<S, U, F> {
    pub function: F,
    pub types: PhantomData<fn() -> (S, U)>,
}

impl<K, T, S, U, F> RowOperator<K, T> for StatefulClosure<S, U, F>
where
    K: RowKey,
    T: Row,
    S: RowState,
    U: Row,
    F: Fn(&K, &mut S, T, &mut Emit<U>) + Send + Sync + 'static,
{
    type State = S;
    type Out = U;

    fn row(&self, key: &K, state: &mut S, row: T, context: &mut KeyContext<U>) {
        (self.function)(key, state, row, &mut context.emit);
    }
}
