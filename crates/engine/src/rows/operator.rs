//! What operators over rows are: closures or [`RowOperator`]s, and what they are given.

use thalweg_core::Error;

use super::Row;
use super::codec::RowWriter;
use super::key::RowKey;

/// Where an operator puts the rows that it makes.
pub struct Emit<U> {
    pub(super) writer: RowWriter<U>,
    /// For each row where it belongs: the row that caused it, or the time of its timer.
    pub(super) places: Vec<i64>,
    pub(super) place: i64,
    pub(super) failure: Option<Error>,
}

impl<U: Row> Emit<U> {
    pub(super) fn new() -> Self {
        Emit { writer: RowWriter::new(), places: Vec::new(), place: 0, failure: None }
    }

    /// Sends a row on.
    pub fn emit(&mut self, row: U) {
        match self.writer.push(&row) {
            Ok(()) => self.places.push(self.place),
            Err(error) => self.fail(error),
        }
    }

    /// Stops the job with an error; the first one counts.
    pub fn fail(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    /// The error, if there is one.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

/// What a [`RowOperator`] can do besides sending rows on.
pub struct KeyContext<U> {
    pub(super) emit: Emit<U>,
    /// Timers that were set during a call, at these times.
    pub(super) timers_ms: Vec<i64>,
    pub(super) forgets: bool,
}

impl<U: Row> KeyContext<U> {
    pub(super) fn new() -> Self {
        KeyContext { emit: Emit::new(), timers_ms: Vec::new(), forgets: false }
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
    /// watermark. Setting the same timer again changes nothing. One that a timer sets fires later than
    /// that timer.
    pub fn set_timer(&mut self, at_ms: i64) {
        self.timers_ms.push(at_ms);
    }

    /// Sets a timer for this key at the end of the input. It fires with time `i64::MAX`.
    pub fn set_timer_at_end(&mut self) {
        self.timers_ms.push(i64::MAX);
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
    type State: Default + Send + 'static;
    /// The rows that it makes.
    type Out: Row;

    /// Timers fire at multiples of this many milliseconds: a coarser grid lets more rows be worked
    /// on at once. `None`: they fire at the end only.
    fn timer_grid_ms(&self) -> Option<i64> {
        None
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
}

/// An operator made of a closure; names the types that the closure's bound leaves open.
pub(super) struct StatefulClosure<S, U, F> {
    pub function: F,
    pub types: std::marker::PhantomData<fn() -> (S, U)>,
}

impl<K, T, S, U, F> RowOperator<K, T> for StatefulClosure<S, U, F>
where
    K: RowKey,
    T: Row,
    S: Default + Send + 'static,
    U: Row,
    F: Fn(&K, &mut S, T, &mut Emit<U>) + Send + Sync + 'static,
{
    type State = S;
    type Out = U;

    fn row(&self, key: &K, state: &mut S, row: T, context: &mut KeyContext<U>) {
        (self.function)(key, state, row, &mut context.emit);
    }
}
