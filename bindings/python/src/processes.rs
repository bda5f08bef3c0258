//! Keyed process functions of Python: relations that queries read as views.
//!
//! The class of the user's runs in a *runner* (`thalweg/process.py`), one for each partition, which
//! holds the states of the partition's keys and their timers. A runner is called in a lane, one
//! piece of work at a time, in the order in which it was posted.
//!
//! # Protocol
//! 1. A worker that brings rows leaves them for the runner and continues: it does not wait for the
//!    interpreter, unless the runner is more than [`ROWS_BEHIND_MAX`] rows behind.
//! 2. What the runner has made leaves with the next call of the partition. While something is being
//!    computed the partition asks for a tick.
//! 3. A watermark is answered once the runner has seen it: [`Progress::More`] until then, after
//!    [`WAIT`] at most. So no row leaves behind a watermark that it came before.
//!
//! # Snapshots
//! | table | a row | columns behind `$partition` |
//! |---|---|---|
//! | `states` | a key with a state | the key, the fields of the state |
//! | `timers` | a timer | the key, `time_ms`, `by_clock` |
//! | `made` | a row that was made and has not left | its columns |
//!
//! A capture is one more piece of work: it sees what came before it and nothing else, and its rows
//! are handed over when they are there. Rows that leave between the cut and that moment stand in
//! `made`: they come behind the cut. A cut may come while an older one still waits for its capture.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BooleanArray, Int64Array, RecordBatch, UInt8Array};
use arrow_schema::{DataType as Arrow, Field, SchemaRef};
use arrow_select::take::take_record_batch;
use crossbeam_channel::{Receiver, Sender, bounded};
use pyo3::prelude::*;
use pyo3::types::PyList;
use thalweg::session::{Executor, ProcessTable};
use thalweg::{Column, DataType, Error, Result, TableSchema};
use thalweg_core::operator::{Partition, Piece, Progress, Route, WatermarkCall, WatermarkInterest};
use thalweg_core::snapshot::{TableRows, state_schema};
use thalweg_core::time::{Grid, WatermarkBefore};
use thalweg_core::{
    Bundle, Captured, Extent, Operator, Output, PartitionContext, Restored, Watermark,
};
use thalweg_operators::keys::{hash_keys, partition_of};

use crate::functions::failed;
use crate::lanes::Lanes;
use crate::values::{column_of, column_values};

/// How many rows a runner may be behind before a worker waits for it.
const ROWS_BEHIND_MAX: usize = 1 << 17;
/// How long a watermark waits in one call for what is being computed.
const WAIT: Duration = Duration::from_micros(500);
/// Epochs end at multiples of this, in milliseconds of event time: each is a turn of the runner.
const GRID_MS: i64 = 1000;
/// About how many bytes a key takes, with its state and its timers.
const KEY_BYTES: usize = 512;

const STATES: &str = "states";
const TIMERS: &str = "timers";
const MADE: &str = "made";

/// A process function as it was registered.
pub struct PythonProcess {
    /// What the relation is called.
    pub name: String,
    /// The relation that it reads.
    pub input: String,
    /// The columns that it reads, the key first.
    pub columns: Vec<String>,
    /// What it makes.
    pub result: TableSchema,
    /// The columns of a state.
    pub state: Vec<Column>,
    /// Makes a runner.
    pub make: Py<PyAny>,
}

impl std::fmt::Debug for PythonProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PythonProcess({})", self.name)
    }
}

/// The same, shared by the plans that read it.
#[derive(Debug)]
pub struct ProcessRelation(pub Arc<PythonProcess>);

impl ProcessTable for ProcessRelation {
    fn input(&self) -> &str {
        &self.0.input
    }
    fn columns(&self) -> &[String] {
        &self.0.columns
    }
    fn result(&self) -> TableSchema {
        self.0.result.clone()
    }
    fn operator(&self, types: &[DataType]) -> Result<Arc<dyn Operator>> {
        let Some(key) = types.first() else {
            return Err(Error::internal("a process function without a key"));
        };
        Ok(Arc::new(ProcessOperator { process: Arc::clone(&self.0), key: key.clone() }))
    }
    fn description(&self) -> String {
        format!("runs in: {}", Lanes::ROWS.description())
    }
}

/// A process function as the engine runs it.
struct ProcessOperator {
    process: Arc<PythonProcess>,
    key: DataType,
}

impl Operator for ProcessOperator {
    fn name(&self) -> String {
        self.process.name.clone()
    }
    fn rows_depend_on_watermarks(&self) -> bool {
        true
    }
    /// What was computed leaves when the clock asks for it.
    fn uses_processing_time(&self) -> bool {
        true
    }
    /// Rows say which watermark was before them, so timers fire in front of the right rows
    /// whatever the grid is; without rows they fire at the next point of it.
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Grids(vec![Grid { period_ms: GRID_MS, offset_ms: 0 }])
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let mut scattered = vec![Vec::new(); partitions];
        let keys = std::slice::from_ref(bundle.batch.column(0));
        for (row, hash) in (0u32..).zip(hash_keys(keys, bundle.num_rows())?) {
            scattered[partition_of(hash, partitions)].push(row);
        }
        Ok(Route::Scatter(scattered))
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        // The least virtual partition of its range.
        let first = (opening.partition * 256).div_ceil(opening.partitions);
        let layout = Layout {
            process: Arc::clone(&self.process),
            key: self.key.clone(),
            owner: u8::try_from(first).unwrap_or(u8::MAX),
        };
        let (inner, changed) = (Mutex::new(LaneState::default()), Condvar::new());
        let lane = Arc::new(Lane { layout, inner, changed, runner: Mutex::new(None) });
        Ok(Box::new(ProcessPartition { lane, asked: None, now_ms: i64::MIN, has_ended: false }))
    }
    fn memory_hint(&self) -> &'static str {
        "raise 'memory.limit', or call ctx.forget() for keys that are done"
    }
}

/// One partition: what a worker touches.
struct ProcessPartition {
    lane: Arc<Lane>,
    /// The watermark that was posted and that the runner has not answered yet.
    asked: Option<Watermark>,
    /// The clock when it was last read.
    now_ms: i64,
    has_ended: bool,
}

impl ProcessPartition {
    fn read_clock(&mut self, output: &Output) {
        self.now_ms = self.now_ms.max(output.wall_ms());
    }
}

impl Partition for ProcessPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        self.read_clock(output);
        let before = &piece.bundle.stamps.watermark_before;
        let (rows, before) = match piece.rows {
            None => (piece.bundle.batch.clone(), before.clone()),
            Some(rows) => {
                let chosen = arrow_array::UInt32Array::from(rows.to_vec());
                (take_record_batch(&piece.bundle.batch, &chosen)?, before.take(rows))
            }
        };
        self.lane.post(Work::Rows { rows, before, now_ms: self.now_ms });
        let mut state = self.lane.state();
        while state.rows_behind > ROWS_BEHIND_MAX && state.error.is_none() {
            state = self.lane.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.hand_over(output)
    }

    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        self.read_clock(output);
        if self.asked.replace(call.watermark) != Some(call.watermark) {
            let now_ms = self.now_ms;
            self.lane.post(Work::Watermark { watermark_ms: call.watermark.0, now_ms });
        }
        let mut state = self.lane.state();
        if state.is_busy() {
            let waited = self.lane.changed.wait_timeout(state, WAIT);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.hand_over(output)?;
        if state.is_busy() {
            return Ok(Progress::More);
        }
        drop(state);
        self.asked = None;
        self.has_ended = call.watermark == Watermark::END;
        Ok(Progress::Done)
    }

    fn state_bytes(&self) -> usize {
        self.lane.state().keys * KEY_BYTES
    }

    /// While something is computed, nobody knows which timers there will be.
    fn wakes_at(&self) -> Watermark {
        let state = self.lane.state();
        match state.is_busy() || !state.made.is_empty() || state.error.is_some() {
            true => Watermark::MIN,
            false => state.timer.map_or(Watermark::END, |at_ms| Watermark(at_ms.saturating_sub(1))),
        }
    }

    fn ticks_at(&self) -> Option<i64> {
        let state = self.lane.state();
        match state.is_busy() || !state.made.is_empty() || state.error.is_some() {
            true => Some(self.now_ms.saturating_add(1)),
            false if self.has_ended => None,
            false => state.clock_timer,
        }
    }

    fn tick(&mut self, output: &mut Output) -> Result<Progress> {
        self.read_clock(output);
        let mut state = self.lane.state();
        state.hand_over(output)?;
        let is_due = state.clock_timer.is_some_and(|at_ms| at_ms <= self.now_ms);
        let is_wanted = is_due && !state.is_busy() && !self.has_ended;
        drop(state);
        if is_wanted {
            self.lane.post(Work::Tick { now_ms: self.now_ms });
        }
        Ok(Progress::Done)
    }

    fn capture(&mut self, _extent: Extent) -> Result<Captured> {
        let mut captured = Captured::default();
        let mut add = |name, schema: SchemaRef| {
            let (sender, receiver) = bounded(1);
            captured.add_later(name, schema, Box::new(move || received(&receiver)));
            sender
        };
        let layout = &self.lane.layout;
        let states = add(STATES, layout.states());
        let timers = add(TIMERS, layout.timers());
        let made = add(MADE, layout.made());
        let mut state = self.lane.state();
        let waiting = state.made.clone();
        state.behind_cuts.push_back(waiting);
        drop(state);
        self.lane.post(Work::Capture { states, timers, made });
        Ok(captured)
    }

    fn restore(&mut self, restored: &Restored) -> Result<()> {
        let layout = &self.lane.layout;
        let tables = [(STATES, layout.states()), (TIMERS, layout.timers()), (MADE, layout.made())];
        for (name, schema) in tables {
            let fits = |batch: &RecordBatch| batch.schema_ref().fields() == schema.fields();
            if !restored.table(name).iter().all(fits) {
                return Err(Error::data(format!(
                    "the snapshot holds other keys, states or rows of {} than it has now",
                    layout.process.name
                ))
                .hint("start from scratch, or register the class that the snapshot is of"));
            }
        }
        let made = restored.table(MADE).iter().map(|batch| layout.without_owner(batch));
        self.lane.state().made = made.collect::<Result<_>>()?;
        let [states, timers] = [STATES, TIMERS].map(|name| restored.table(name).to_vec());
        self.lane.post(Work::Restore { states, timers });
        self.now_ms = i64::MIN;
        Ok(())
    }
}

fn received(rows: &Receiver<Result<RecordBatch>>) -> Result<TableRows> {
    let gone = |_| Error::io("Python has ended before a snapshot was taken");
    let rows = rows.recv().map_err(gone)??;
    let rows = if rows.num_rows() == 0 { Vec::new() } else { vec![rows] };
    Ok(TableRows { rows, removed: Vec::new() })
}

/// How what is kept stands in tables.
struct Layout {
    process: Arc<PythonProcess>,
    key: DataType,
    /// A virtual partition of this partition.
    owner: u8,
}

impl Layout {
    fn key_field(&self) -> Field {
        Field::new(&self.process.columns[0], self.key.arrow(), true)
    }

    fn states(&self) -> SchemaRef {
        let of_state = self.process.state.iter();
        let of_state = of_state.map(|column| {
            Field::new(format!("state.{}", column.name), column.column_type.data_type.arrow(), true)
        });
        state_schema(std::iter::once(self.key_field()).chain(of_state))
    }

    fn timers(&self) -> SchemaRef {
        let time = Field::new("time_ms", Arrow::Int64, true);
        let by_clock = Field::new("by_clock", Arrow::Boolean, true);
        state_schema([self.key_field(), time, by_clock])
    }

    fn made(&self) -> SchemaRef {
        state_schema(
            self.process.result.arrow().fields().iter().map(|field| field.as_ref().clone()),
        )
    }

    /// Rows of a table that belong to keys.
    fn keyed(&self, schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
        let rows = columns[0].len();
        let owners = hash_keys(std::slice::from_ref(&columns[0]), rows)?;
        let owners: UInt8Array = owners.into_iter().map(|hash| Some((hash >> 56) as u8)).collect();
        let columns = std::iter::once(Arc::new(owners) as ArrayRef).chain(columns);
        Ok(RecordBatch::try_new(schema, columns.collect())?)
    }

    /// Rows that were made, as a table.
    fn owned(&self, made: &[RecordBatch]) -> Result<RecordBatch> {
        let made = arrow_select::concat::concat_batches(&self.process.result.arrow(), made)?;
        let owners: ArrayRef = Arc::new(UInt8Array::from(vec![self.owner; made.num_rows()]));
        let columns = std::iter::once(owners).chain(made.columns().iter().cloned());
        Ok(RecordBatch::try_new(self.made(), columns.collect())?)
    }

    fn without_owner(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let columns = batch.columns()[1..].to_vec();
        Ok(RecordBatch::try_new(self.process.result.arrow(), columns)?)
    }
}

/// What a runner is asked to do.
enum Work {
    Rows { rows: RecordBatch, before: WatermarkBefore, now_ms: i64 },
    Watermark { watermark_ms: i64, now_ms: i64 },
    Tick { now_ms: i64 },
    Capture { states: Send1, timers: Send1, made: Send1 },
    Restore { states: Vec<RecordBatch>, timers: Vec<RecordBatch> },
}

type Send1 = Sender<Result<RecordBatch>>;

impl Work {
    fn rows(&self) -> usize {
        if let Work::Rows { rows, .. } = self { rows.num_rows() } else { 0 }
    }
}

/// A runner, and what waits for it and what it has made.
struct Lane {
    layout: Layout,
    inner: Mutex<LaneState>,
    /// Some work was done.
    changed: Condvar,
    /// Made by the lane when it is first used; only the lane locks it.
    runner: Mutex<Option<Py<PyAny>>>,
}

#[derive(Default)]
struct LaneState {
    waiting: VecDeque<Work>,
    /// The lane has been asked to do the next piece of work, or is doing it.
    is_running: bool,
    rows_behind: usize,
    /// What has not left yet.
    made: Vec<RecordBatch>,
    /// For each cut that is not captured yet, oldest first: what was made before it and leaves
    /// behind it.
    behind_cuts: VecDeque<Vec<RecordBatch>>,
    error: Option<Error>,
    /// When the next timer of event time is due.
    timer: Option<i64>,
    /// When the next timer of the clock is due.
    clock_timer: Option<i64>,
    keys: usize,
}

impl LaneState {
    fn is_busy(&self) -> bool {
        self.is_running || !self.waiting.is_empty()
    }

    /// Keeps what was made, for all cuts that wait as well: captures are work in the same queue, so
    /// this lies before all of them.
    fn made_before_cuts(&mut self, made: Option<RecordBatch>) {
        for before in &mut self.behind_cuts {
            before.extend(made.clone());
        }
        self.made.extend(made);
    }

    /// Lets what was made leave.
    fn hand_over(&mut self, output: &mut Output) -> Result<()> {
        self.made.drain(..).for_each(|rows| output.emit(rows));
        self.error.clone().map_or(Ok(()), Err)
    }
}

/// What a piece of work led to.
struct Done {
    made: Option<RecordBatch>,
    timer: Option<i64>,
    clock_timer: Option<i64>,
    keys: usize,
}

impl Lane {
    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the runner work, behind what it has.
    fn post(self: &Arc<Self>, work: Work) {
        let mut state = self.state();
        state.rows_behind += work.rows();
        state.waiting.push_back(work);
        let begins = !std::mem::replace(&mut state.is_running, true);
        drop(state);
        if begins {
            self.ask();
        }
    }

    fn ask(self: &Arc<Self>) {
        let lane = Arc::clone(self);
        Lanes::ROWS.execute(Box::new(move || lane.run()));
    }

    /// Does one piece of work. Called by a lane, one call at a time.
    fn run(self: &Arc<Self>) {
        let mut state = self.state();
        let Some(work) = state.waiting.pop_front() else {
            state.is_running = false;
            return;
        };
        let has_failed = state.error.is_some();
        drop(state);
        let rows = work.rows();
        let done = match has_failed {
            true => Ok(None),
            false => catch_unwind(AssertUnwindSafe(|| self.work(work).map(Some)))
                .unwrap_or_else(|_| Err(Error::internal("a process function's runner panicked"))),
        };
        let mut state = self.state();
        state.rows_behind -= rows;
        match done {
            Ok(None) => {}
            Ok(Some(Done { made, timer, clock_timer, keys })) => {
                (state.timer, state.clock_timer, state.keys) = (timer, clock_timer, keys);
                let made = made.filter(|rows| rows.num_rows() > 0);
                state.made_before_cuts(made);
            }
            Err(error) => state.error = Some(error),
        }
        state.is_running = !state.waiting.is_empty();
        let continues = state.is_running;
        drop(state);
        self.changed.notify_all();
        if continues {
            self.ask();
        }
    }

    fn work(&self, work: Work) -> Result<Done> {
        let called = Python::try_attach(|py| self.call(py, work));
        called.ok_or_else(|| Error::io("Python is about to end"))?
    }

    fn call(&self, py: Python<'_>, work: Work) -> Result<Done> {
        let name = &self.layout.process.name;
        let fail = |error| failed(py, name, error);
        let runner = self.runner(py).map_err(fail)?;
        let runner = runner.bind(py);
        let made = match work {
            Work::Rows { rows, before, now_ms } => {
                let columns = values_of(py, rows.columns()).map_err(fail)?;
                let before = match before {
                    WatermarkBefore::All(watermark) => {
                        watermark.0.into_pyobject(py).map(Bound::into_any)
                    }
                    WatermarkBefore::Rows(rows) => {
                        Ok(PyList::new(py, rows.iter()).map_err(fail)?.into_any())
                    }
                };
                let before = before.map_err(|error| fail(error.into()))?;
                Some(runner.call_method1("rows", (columns, before, now_ms)).map_err(fail)?)
            }
            Work::Watermark { watermark_ms, now_ms } => {
                Some(runner.call_method1("watermark", (watermark_ms, now_ms)).map_err(fail)?)
            }
            Work::Tick { now_ms } => Some(runner.call_method1("tick", (now_ms,)).map_err(fail)?),
            Work::Capture { states, timers, made } => {
                let behind_cut = self.state().behind_cuts.pop_front().unwrap_or_default();
                // Whoever waits for them may have gone.
                let _gone = states.send(self.captured_states(runner));
                let _gone = timers.send(self.captured_timers(runner));
                let _gone = made.send(self.layout.owned(&behind_cut));
                None
            }
            Work::Restore { states, timers } => {
                let restored = restored(runner, &states, &timers);
                restored.map_err(fail)?;
                None
            }
        };
        let made = made.map(|rows| self.rows_made(&rows)).transpose()?;
        let summary = runner.call_method0("summary").and_then(|summary| summary.extract());
        let (timer, clock_timer, keys) = summary.map_err(fail)?;
        Ok(Done { made, timer, clock_timer, keys })
    }

    /// The runner, which is made when it is first needed.
    fn runner(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let mut runner = self.runner.lock().unwrap_or_else(PoisonError::into_inner);
        match &*runner {
            Some(runner) => Ok(runner.clone_ref(py)),
            None => {
                let made = self.layout.process.make.call0(py)?;
                Ok(runner.insert(made).clone_ref(py))
            }
        }
    }

    /// What the function emitted, as columns.
    fn rows_made(&self, rows: &Bound<'_, PyAny>) -> Result<RecordBatch> {
        let py = rows.py();
        let name = &self.layout.process.name;
        let values = rows.try_iter().and_then(|rows| rows.collect::<PyResult<Vec<_>>>());
        let values = values.map_err(|error| failed(py, name, error))?;
        let schema = &self.layout.process.result;
        let made = column_of(&values, &DataType::Row(schema.columns.clone()));
        let made = made.map_err(|(row, error)| {
            let value = values.get(row).and_then(|value| value.repr().ok());
            let value = value.map_or_else(String::new, |value| format!(" {value}"));
            Error::user(format!("{name} emitted{value}, which is no row of its result: {error}"))
        })?;
        Ok(RecordBatch::try_new(schema.arrow(), made.as_struct().columns().to_vec())?)
    }

    fn captured_states(&self, runner: &Bound<'_, PyAny>) -> Result<RecordBatch> {
        let fail = |error| failed(runner.py(), &self.layout.process.name, error);
        let columns = runner.call_method0("states").and_then(|columns| listed(&columns));
        let columns = columns.map_err(fail)?;
        let state = self.layout.process.state.iter().map(|column| &column.column_type.data_type);
        let types = std::iter::once(&self.layout.key).chain(state);
        let arrays = columns.iter().zip(types).map(|(values, data_type)| {
            column_of(values, data_type).map_err(|(_, error)| {
                Error::user(format!(
                    "the state of {} is not what its hint says: {error}",
                    self.layout.process.name
                ))
            })
        });
        self.layout.keyed(self.layout.states(), arrays.collect::<Result<_>>()?)
    }

    fn captured_timers(&self, runner: &Bound<'_, PyAny>) -> Result<RecordBatch> {
        let fail = |error| failed(runner.py(), &self.layout.process.name, error);
        let columns = runner.call_method0("timers").map_err(fail)?;
        let (keys, times, by_clock): (Vec<Bound<'_, PyAny>>, Vec<i64>, Vec<bool>) =
            columns.extract().map_err(fail)?;
        let keys = column_of(&keys, &self.layout.key).map_err(|(_, error)| fail(error))?;
        let times: ArrayRef = Arc::new(Int64Array::from(times));
        let by_clock: ArrayRef = Arc::new(BooleanArray::from(by_clock));
        self.layout.keyed(self.layout.timers(), vec![keys, times, by_clock])
    }
}

/// A list of lists.
fn listed<'py>(columns: &Bound<'py, PyAny>) -> PyResult<Vec<Vec<Bound<'py, PyAny>>>> {
    columns.extract()
}

/// The values of columns as a list of lists.
fn values_of<'py>(py: Python<'py>, columns: &[ArrayRef]) -> PyResult<Bound<'py, PyList>> {
    let columns = columns.iter().map(|column| PyList::new(py, column_values(py, column)?));
    PyList::new(py, columns.collect::<PyResult<Vec<_>>>()?)
}

/// Gives a runner what a snapshot holds.
fn restored(
    runner: &Bound<'_, PyAny>,
    states: &[RecordBatch],
    timers: &[RecordBatch],
) -> PyResult<()> {
    for batch in states {
        let columns = values_of(runner.py(), &batch.columns()[1..])?;
        runner.call_method1("restore_states", (columns,))?;
    }
    for batch in timers {
        let columns = values_of(runner.py(), &batch.columns()[1..])?;
        runner.call_method1("restore_timers", (columns,))?;
    }
    Ok(())
}
