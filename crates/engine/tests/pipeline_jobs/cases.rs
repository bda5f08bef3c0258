//! Pipelines with each kind of state, and the loops that say what is to come of them.
//!
//! Each writes lines of text to a folder of files, exactly once. Results of windows stand in the
//! order in which their windows end; of one end in that of the keys' hashes, so expected sequences
//! are made with one key or with windows that never end together.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use serde::{Deserialize, Serialize};
use thalweg::pipeline::{CountWindow, MemorySource, Pipeline, Stream, Window, count, maximum, sum};
use thalweg::rows::{
    FiredTimer, KeyContext, ProcessFunction, RowPoll, RowSource, Waker, virtual_partition,
};
use thalweg::{Column, DataType, OrderContract, Result, TableSchema};
use thalweg_core::shim::SplitMix64;

use super::gate::{Gate, Gated};
use super::two_inputs;

pub type Build = fn(&Pipeline, &Arc<Gate>, &[Reading], &Path) -> Result<()>;

/// A pipeline, and what is to come of it.
pub struct Case {
    pub name: &'static str,
    pub build: Build,
    pub expected: fn(&[Reading]) -> Vec<String>,
    pub orders: &'static [OrderContract],
}

pub const ORDERS: &[OrderContract] =
    &[OrderContract::Epoch, OrderContract::Arrival, OrderContract::EventTime];

/// No two cases keep the same kind of state.
pub const CASES: &[Case] = &[
    Case { name: "tumbling", build: tumbling, expected: tumbling_serially, orders: ORDERS },
    Case { name: "sessions", build: sessions, expected: sessions_serially, orders: ORDERS },
    Case {
        name: "count-windows",
        build: count_windows,
        expected: count_windows_serially,
        orders: ORDERS,
    },
    Case {
        name: "sliding-counts",
        build: sliding_counts,
        expected: sliding_counts_serially,
        orders: ORDERS,
    },
    Case { name: "rows", build: rows, expected: rows_serially, orders: ORDERS },
    two_inputs::HASH_JOIN,
    two_inputs::CO_AGGREGATE,
    two_inputs::VERTEX,
    two_inputs::RULES,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    pub time_ms: i64,
    pub sensor: i64,
    pub level: i64,
}

/// Readings in the order of their times.
pub fn readings() -> Vec<Reading> {
    let mut random = SplitMix64::new(77);
    let mut time_ms = 0;
    let mut reading = |_| {
        // Now and then nothing comes for a while, and sessions end.
        time_ms += if random.below(9) == 0 { 150 } else { 1 + random.below(20) as i64 };
        Reading { time_ms, sensor: random.below(5) as i64, level: random.below(100) as i64 }
    };
    (0..600).map(&mut reading).collect()
}

pub fn schema() -> TableSchema {
    TableSchema::new(vec![
        Column::new("ts", DataType::Timestamp(3).not_null()),
        Column::new("sensor", DataType::BigInt.not_null()),
        Column::new("level", DataType::BigInt.not_null()),
    ])
}

/// The readings behind a gate, with their times.
pub fn read(pipeline: &Pipeline, gate: &Arc<Gate>, readings: &[Reading]) -> Result<Stream> {
    let numbers = |of: fn(&Reading) -> i64| readings.iter().map(of).collect::<Vec<_>>();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(numbers(|reading| reading.time_ms))),
        Arc::new(Int64Array::from(numbers(|reading| reading.sensor))),
        Arc::new(Int64Array::from(numbers(|reading| reading.level))),
    ];
    let batch = RecordBatch::try_new(schema().arrow(), columns)?;
    let inner = MemorySource::new(schema(), vec![batch]);
    let source = Gated { inner, gate: Arc::clone(gate) };
    pipeline.read("readings", source, schema()).watermark("ts", 0)
}

/// Writes rows to the folder of the output.
pub fn write(stream: Stream, folder: &Path) -> Result<()> {
    let path = format!("{}/", folder.join("out").display());
    stream.write_table("lines", &[("connector", "filesystem"), ("format", "csv"), ("path", &path)])
}

/// Columns of numbers.
pub fn numbers(names: &[&str]) -> TableSchema {
    let column = |name: &&str| Column::new(*name, DataType::BigInt.not_null());
    TableSchema::new(names.iter().map(column).collect())
}

/// Drops the columns after this many.
pub fn first_columns(stream: Stream, columns: usize) -> Stream {
    let schema = TableSchema::new(stream.schema().columns[..columns].to_vec());
    stream.map("first columns", schema, move |batch| {
        Ok(batch.project(&(0..columns).collect::<Vec<_>>())?)
    })
}

fn tumbling(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading], folder: &Path) -> Result<()> {
    let windows = read(pipeline, gate, rows)?
        .window(Window::tumbling(100), "ts")?
        .aggregate(vec![count(), sum("level"), maximum("sensor")])?;
    write(first_columns(windows, 3), folder)
}

fn tumbling_serially(readings: &[Reading]) -> Vec<String> {
    let mut windows: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
    for reading in readings {
        let window = windows.entry(reading.time_ms / 100).or_default();
        *window = (window.0 + 1, window.1 + reading.level, window.2.max(reading.sensor));
    }
    windows.values().map(|(n, sum, max)| format!("{n},{sum},{max}")).collect()
}

pub const GAP_MS: i64 = 100;

fn sessions(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading], folder: &Path) -> Result<()> {
    let windows = read(pipeline, gate, rows)?
        .window(Window::session(GAP_MS), "ts")?
        .aggregate(vec![count(), sum("level")])?;
    write(first_columns(windows, 2), folder)
}

fn sessions_serially(readings: &[Reading]) -> Vec<String> {
    let sessions =
        readings.chunk_by(|one, next| next.time_ms - one.time_ms < GAP_MS).map(|session| {
            let sum: i64 = session.iter().map(|reading| reading.level).sum();
            format!("{},{sum}", session.len())
        });
    sessions.collect()
}

fn count_windows(
    pipeline: &Pipeline,
    gate: &Arc<Gate>,
    rows: &[Reading],
    folder: &Path,
) -> Result<()> {
    let windows = read(pipeline, gate, rows)?
        .count_window(CountWindow::tumbling(7))
        .key_by(&["sensor"])?
        .aggregate(vec![sum("level"), maximum("level")])?;
    write(windows, folder)
}

/// After each `slide` rows of a key the sum and the highest of the last `size`.
fn counted(readings: &[Reading], size: usize, slide: usize) -> Vec<String> {
    let mut keys: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let mut lines = Vec::new();
    for reading in readings {
        let levels = keys.entry(reading.sensor).or_default();
        levels.push(reading.level);
        if levels.len().is_multiple_of(slide) {
            let last = &levels[levels.len().saturating_sub(size)..];
            let (sum, max) = (last.iter().sum::<i64>(), last.iter().max().expect("a row"));
            lines.push(format!("{},{sum},{max}", reading.sensor));
        }
    }
    lines
}

fn count_windows_serially(readings: &[Reading]) -> Vec<String> {
    counted(readings, 7, 7)
}

fn sliding_counts(
    pipeline: &Pipeline,
    gate: &Arc<Gate>,
    rows: &[Reading],
    folder: &Path,
) -> Result<()> {
    let windows = read(pipeline, gate, rows)?
        .count_window(CountWindow::sliding(10, 3))
        .key_by(&["sensor"])?
        .aggregate(vec![sum("level"), maximum("level")])?;
    write(windows, folder)
}

fn sliding_counts_serially(readings: &[Reading]) -> Vec<String> {
    counted(readings, 10, 3)
}

/// What is written.
#[derive(Serialize, Deserialize)]
pub struct Line {
    pub number: i64,
    pub sum: i64,
}

/// The sum of the levels of a sensor until it is silent for a while.
struct Silence;

/// When its silence is reported, and the sum so far.
type Summed = (i64, i64);

impl ProcessFunction<i64, Reading> for Silence {
    type State = Summed;
    type Out = (i64, i64);

    fn on_row(
        &self,
        _: &i64,
        state: &mut Summed,
        reading: Reading,
        context: &mut KeyContext<(i64, i64)>,
    ) {
        context.delete_timer(state.0);
        *state = (reading.time_ms + GAP_MS, state.1 + reading.level);
        context.set_timer(state.0);
    }
    fn on_timer(
        &self,
        sensor: &i64,
        state: &mut Summed,
        _: FiredTimer,
        context: &mut KeyContext<(i64, i64)>,
    ) {
        context.emit((*sensor, state.1));
        context.forget();
    }
}

/// The readings behind a gate, from a source of rows.
pub fn given(readings: &[Reading], gate: &Arc<Gate>) -> GivenReadings {
    GivenReadings { readings: readings.to_vec(), given: 0, gate: Arc::clone(gate) }
}

/// A source of rows behind a gate.
pub struct GivenReadings {
    readings: Vec<Reading>,
    given: usize,
    gate: Arc<Gate>,
}

impl RowSource<Reading> for GivenReadings {
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.gate.wake_by(waker);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize, rows: &mut Vec<Reading>) -> Result<RowPoll> {
        let left = &self.readings[self.given..];
        if left.is_empty() {
            self.gate.end();
            return Ok(RowPoll::End);
        }
        let given = self.gate.pass(rows_max.min(left.len()));
        rows.extend_from_slice(&left[..given]);
        self.given += given;
        Ok(if given == 0 { RowPoll::Pending } else { RowPoll::Rows })
    }
    fn is_bounded(&self) -> bool {
        true
    }
    fn position(&self) -> Option<String> {
        Some(self.given.to_string())
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        self.given = position.parse().expect("its own position");
        Ok(())
    }
}

/// A state for each key, timers of each key, and a state for all rows. Where no sequence is
/// promised the singleton takes rows in any, so no line says both what was reported and which
/// number it has.
fn rows(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading], folder: &Path) -> Result<()> {
    let lines = pipeline
        .read_timed_row_source(
            "readings",
            given(rows, gate),
            |reading: &Reading| reading.time_ms,
            0,
        )
        .key_by(16, |reading: &Reading| reading.sensor)
        .process_function("silence", Silence)
        .key_by(16, |reported: &(i64, i64)| reported.0)
        .stateful("total", |sensor: &i64, total: &mut i64, (_, sum): (i64, i64), out| {
            *total += sum;
            out.emit((*sensor, *total));
        })
        .singleton("number", |count: &mut i64, (sensor, sum): (i64, i64), out| {
            *count += 1;
            out.emit(Line { number: -1 - sensor, sum });
            out.emit(Line { number: *count, sum: 0 });
        });
    write(lines.into_columns("columns", numbers(&["number", "sum"])), folder)
}

fn rows_serially(readings: &[Reading]) -> Vec<String> {
    // When the silence of a sensor is reported, and the sum until then.
    let mut timers: BTreeMap<(i64, u8, i64), i64> = BTreeMap::new();
    let mut totals: BTreeMap<i64, i64> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut report_silences = |timers: &mut BTreeMap<(i64, u8, i64), i64>, until_ms: i64| {
        while let Some(first) = timers.first_entry() {
            if first.key().0 - 1 > until_ms {
                break;
            }
            let ((.., sensor), sum) = first.remove_entry();
            let total = totals.entry(sensor).or_default();
            *total += sum;
            lines.push((-1 - sensor, *total));
        }
    };
    for reading in readings {
        let open = timers.keys().find(|(.., sensor)| *sensor == reading.sensor).copied();
        let sum = open.and_then(|open| timers.remove(&open)).unwrap_or_default();
        let partition = virtual_partition(&reading.sensor);
        timers.insert((reading.time_ms + GAP_MS, partition, reading.sensor), sum + reading.level);
        // The row has moved the watermark to its own time.
        report_silences(&mut timers, reading.time_ms);
    }
    report_silences(&mut timers, i64::MAX - 1);
    let numbered = (1..).zip(lines);
    numbered
        .flat_map(|(n, (reported, sum))| [format!("{reported},{sum}"), format!("{n},0")])
        .collect()
}
