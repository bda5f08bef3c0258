//! Process functions: a state of one's own for each key, and timers of both kinds.

use super::Row;
use super::key::RowKey;
use super::operator::{KeyContext, RowOperator, TimerKind};

/// A timer that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiredTimer {
    /// The time that it was set for, on the [grid](ProcessFunction::timer_grid_ms), in milliseconds
    /// since 1970; `i64::MAX` for one [at the end](KeyContext::set_timer_at_end).
    pub time_ms: i64,
    /// Which time that is.
    pub kind: TimerKind,
}

/// What is done with the rows of type `T` of keys of type `K`, as Flink's `KeyedProcessFunction`:
/// each key has a state of its own, which may be any type that serde can write and read (a value, a
/// `Vec`, a `BTreeMap`, a struct of several), and sets timers.
///
/// The rows of a key come in order. In the ordered contracts so do timers: of event time by time,
/// virtual partition and key, behind the row that moved the watermark.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use thalweg::pipeline::Pipeline;
/// use thalweg::rows::{FiredTimer, KeyContext, ProcessFunction};
/// use thalweg::{OrderContract, RunOptions};
///
/// #[derive(Serialize, Deserialize)]
/// struct Beat { time_ms: i64, machine: String }
///
/// /// Reports machines that say nothing for five seconds.
/// struct Alarm;
///
/// impl ProcessFunction<String, Beat> for Alarm {
///     type State = Option<i64>; // when the timer is set
///     type Out = (String, i64);
///
///     fn on_row(
///         &self,
///         _: &String,
///         timer_ms: &mut Option<i64>,
///         beat: Beat,
///         context: &mut KeyContext<Self::Out>,
///     ) {
///         if let Some(old_ms) = timer_ms.replace(beat.time_ms + 5_000) {
///             context.delete_timer(old_ms);
///         }
///         context.set_timer(beat.time_ms + 5_000);
///     }
///     fn on_timer(
///         &self,
///         machine: &String,
///         _: &mut Option<i64>,
///         timer: FiredTimer,
///         context: &mut KeyContext<Self::Out>,
///     ) {
///         context.emit((machine.clone(), timer.time_ms - 5_000));
///         context.forget();
///     }
/// }
///
/// let beat = |time_ms, machine: &str| Beat { time_ms, machine: machine.to_owned() };
/// let beats = [beat(0, "press"), beat(3_000, "saw"), beat(4_000, "press"), beat(8_500, "press")];
/// let pipeline = Pipeline::new();
/// let alarms = pipeline
///     .read_timed_rows("beats", beats, |beat: &Beat| beat.time_ms, 0)
///     .key_by(16, |beat| beat.machine.clone())
///     .process_function("alarm", Alarm)
///     .collect("alarms");
/// pipeline.run(RunOptions { order: OrderContract::Arrival, ..RunOptions::default() })?;
/// // At the end of the input all timers of event time fire.
/// assert_eq!(alarms.rows(), [("saw".to_owned(), 3_000), ("press".to_owned(), 8_500)]);
/// # Ok::<(), thalweg::Error>(())
/// ```
pub trait ProcessFunction<K: RowKey, T: Row>: Send + Sync + 'static {
    /// What is kept for a key, from its first row to [`KeyContext::forget`].
    type State: Row + Default;
    /// The rows that it makes.
    type Out: Row;

    /// Takes a row.
    fn on_row(&self, key: &K, state: &mut Self::State, row: T, context: &mut KeyContext<Self::Out>);

    /// A timer of this key has fired. A key that was forgotten gets a new state.
    fn on_timer(
        &self,
        key: &K,
        state: &mut Self::State,
        timer: FiredTimer,
        context: &mut KeyContext<Self::Out>,
    ) {
        let _ = (key, state, timer, context);
    }

    /// Timers of event time fire at multiples of this many milliseconds; a coarser grid lets more
    /// rows be worked on at once. `None`: they fire at the end of the input only.
    fn timer_grid_ms(&self) -> Option<i64> {
        Some(1)
    }

    /// True if it sets timers of processing time or asks for the time of the clock. In the ordered
    /// contracts it is refused then, unless
    /// [`allow_nondeterministic_order`](crate::RunOptions::allow_nondeterministic_order) admits it.
    fn uses_processing_time(&self) -> bool {
        false
    }

    /// See [`RowOperator::state_ttl_ms`].
    fn state_ttl_ms(&self) -> Option<i64> {
        None
    }
}

/// Runs a process function as an operator.
pub(super) struct Processing<F>(pub F);

impl<K: RowKey, T: Row, F: ProcessFunction<K, T>> RowOperator<K, T> for Processing<F> {
    type State = F::State;
    type Out = F::Out;

    fn timer_grid_ms(&self) -> Option<i64> {
        self.0.timer_grid_ms()
    }
    fn uses_processing_time(&self) -> bool {
        self.0.uses_processing_time()
    }
    fn state_ttl_ms(&self) -> Option<i64> {
        self.0.state_ttl_ms()
    }
    fn extra_bytes(&self, state: &F::State) -> usize {
        // What a state has on the heap is about what it takes to write it down.
        postcard::experimental::serialized_size(state).unwrap_or(0)
    }
    fn row(&self, key: &K, state: &mut F::State, row: T, context: &mut KeyContext<F::Out>) {
        self.0.on_row(key, state, row, context);
    }
    fn timer(&self, key: &K, state: &mut F::State, time_ms: i64, context: &mut KeyContext<F::Out>) {
        let timer = FiredTimer { time_ms, kind: TimerKind::EventTime };
        self.0.on_timer(key, state, timer, context);
    }
    fn processing_timer(
        &self,
        key: &K,
        state: &mut F::State,
        time_ms: i64,
        context: &mut KeyContext<F::Out>,
    ) {
        let timer = FiredTimer { time_ms, kind: TimerKind::ProcessingTime };
        self.0.on_timer(key, state, timer, context);
    }
}
