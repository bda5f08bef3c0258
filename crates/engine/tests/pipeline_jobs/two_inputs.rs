//! Pipelines of several streams: a table that is looked up, aggregates of two streams, and graphs
//! of processors.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg::pipeline::{JoinKind, MemorySource, Pipeline, Stream, Window, count, sum};
use thalweg::rows::vertex::{Context, Edge, Entry, Inbox, Processor, SavedEntries};
use thalweg::rows::{FiredTimer, Rows, virtual_partition};
use thalweg::{OrderContract, Result};

use super::cases::{
    Case, GAP_MS, Line, ORDERS, Reading, first_columns, given, numbers, read, schema, write,
};
use super::gate::Gate;

pub const HASH_JOIN: Case =
    Case { name: "hash-join", build: hash_join, expected: hash_join_serially, orders: ORDERS };
pub const CO_AGGREGATE: Case = Case {
    name: "co-aggregate",
    build: co_aggregate,
    expected: co_aggregate_serially,
    orders: ORDERS,
};
pub const VERTEX: Case =
    Case { name: "vertex", build: vertex, expected: vertex_serially, orders: ORDERS };
/// Rules come before readings, which `event_time` refuses.
pub const RULES: Case = Case {
    name: "rules",
    build: rules,
    expected: rules_serially,
    orders: &[OrderContract::Epoch, OrderContract::Arrival],
};

/// Two limits of each sensor but the last.
const LIMITS: [(i64, i64); 8] =
    [(0, 40), (1, 90), (2, 10), (3, 60), (0, 50), (1, 95), (2, 80), (3, 99)];

fn hash_join(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading], folder: &Path) -> Result<()> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(LIMITS.iter().map(|limit| limit.0))),
        Arc::new(Int64Array::from_iter_values(LIMITS.iter().map(|limit| limit.1))),
    ];
    let limits = numbers(&["sensor", "limit"]);
    let batch = RecordBatch::try_new(limits.arrow(), columns)?;
    let limits = pipeline.read("limits", MemorySource::new(limits.clone(), vec![batch]), limits);
    let readings = read(pipeline, gate, rows)?;
    let joined = readings.join(JoinKind::Inner, limits).on(&[("sensor", "sensor")])?.hashed()?;
    let three = numbers(&["sensor", "level", "limit"]);
    write(joined.map("three columns", three, |batch| Ok(batch.project(&[1, 2, 4])?)), folder)
}

fn hash_join_serially(readings: &[Reading]) -> Vec<String> {
    let lines = readings.iter().flat_map(|reading| {
        let own = LIMITS.iter().filter(|limit| limit.0 == reading.sensor);
        own.map(|limit| format!("{},{},{}", reading.sensor, reading.level, limit.1))
    });
    lines.collect()
}

/// Readings of another source: some levels at the same times, without a gate.
fn others(pipeline: &Pipeline, rows: &[Reading]) -> Result<Stream> {
    let rows: Vec<&Reading> = rows.iter().filter(|reading| reading.level % 3 == 0).collect();
    let numbers = |of: fn(&Reading) -> i64| rows.iter().map(|row| of(row)).collect::<Vec<_>>();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(TimestampMillisecondArray::from(numbers(|reading| reading.time_ms))),
        Arc::new(Int64Array::from(numbers(|reading| reading.sensor))),
        Arc::new(Int64Array::from(numbers(|reading| reading.level))),
    ];
    let batch = RecordBatch::try_new(schema().arrow(), columns)?;
    pipeline.read("others", MemorySource::new(schema(), vec![batch]), schema()).watermark("ts", 0)
}

fn co_aggregate(
    pipeline: &Pipeline,
    gate: &Arc<Gate>,
    rows: &[Reading],
    folder: &Path,
) -> Result<()> {
    let window = |stream: Stream| stream.window(Window::tumbling(100), "ts")?.key_by(&[]);
    let others = (window(others(pipeline, rows)?)?, vec![count().named("others")]);
    let readings = window(read(pipeline, gate, rows)?)?;
    let windows = readings.co_aggregate(vec![count(), sum("level")], vec![others])?;
    write(first_columns(windows, 3), folder)
}

fn co_aggregate_serially(readings: &[Reading]) -> Vec<String> {
    let mut windows: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
    for reading in readings {
        let window = windows.entry(reading.time_ms / 100).or_default();
        let is_other = i64::from(reading.level % 3 == 0);
        *window = (window.0 + 1, window.1 + reading.level, window.2 + is_other);
    }
    windows.values().map(|(n, sum, others)| format!("{n},{sum},{others}")).collect()
}

/// The sum of the levels of a sensor until it is silent for a while, by port 0, and every fifth
/// reading, by port 1.
#[derive(Default)]
struct SumUntilSilence {
    /// When its silence is reported, the sum so far, and how many readings there were.
    sensors: BTreeMap<i64, (i64, i64, i64)>,
}

impl Processor for SumUntilSilence {
    type Key = i64;
    type Saved = (i64, i64, i64);

    fn process(
        &mut self,
        _: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, i64>,
    ) -> Result<()> {
        while let Some(reading) = inbox.peek::<Reading>()? {
            let (old_ms, sum, count) =
                self.sensors.get(&reading.sensor).copied().unwrap_or_default();
            let fifth = Line { number: reading.sensor, sum: count + 1 };
            if (count + 1) % 5 == 0 && !context.offer(1, &fifth)? {
                return Ok(());
            }
            let timer_ms = reading.time_ms + GAP_MS;
            context.delete_timer(&reading.sensor, old_ms);
            context.set_timer(&reading.sensor, timer_ms);
            self.sensors.insert(reading.sensor, (timer_ms, sum + reading.level, count + 1));
            inbox.remove();
        }
        Ok(())
    }

    fn timer(
        &mut self,
        sensor: &i64,
        _: FiredTimer,
        context: &mut Context<'_, i64>,
    ) -> Result<bool> {
        let (_, sum, _) = self.sensors.get(sensor).copied().unwrap_or_default();
        let is_taken = context.offer(0, &Line { number: -1 - sensor, sum })?;
        if is_taken {
            self.sensors.remove(sensor);
        }
        Ok(is_taken)
    }

    fn save(&mut self, entries: &mut SavedEntries<i64, Self::Saved>) -> Result<()> {
        self.sensors.iter().try_for_each(|(sensor, state)| entries.put(*sensor, *state))
    }

    fn restore(&mut self, entry: Entry<i64, Self::Saved>) -> Result<()> {
        self.sensors.extend(entry.key.map(|sensor| (sensor, entry.value)));
        Ok(())
    }
}

fn timed(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading]) -> Rows<Reading> {
    let source = given(rows, gate);
    pipeline.read_timed_row_source("readings", source, |reading| reading.time_ms, 0)
}

fn write_lines(lines: Rows<Line>, folder: &Path) -> Result<()> {
    write(lines.into_columns("columns", numbers(&["number", "sum"])), folder)
}

fn vertex(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading], folder: &Path) -> Result<()> {
    let outputs = pipeline
        .vertex("sums until silence", |_| SumUntilSilence::default())
        .input(timed(pipeline, gate, rows), Edge::partitioned(|reading: &Reading| reading.sensor))
        .outbox_items(1)
        .outputs(2)?;
    // Of one time the rows of the first stream come first.
    write_lines(outputs.output(1)?.union(vec![outputs.output(0)?])?, folder)
}

fn vertex_serially(readings: &[Reading]) -> Vec<String> {
    let mut sensors: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
    let mut lines = Vec::new();
    let report = |sensors: &mut BTreeMap<i64, (i64, i64, i64)>, until_ms: i64| {
        let silent = sensors.extract_if(.., |_, state| state.0 - 1 <= until_ms);
        let mut silent: Vec<_> = silent
            .map(|(sensor, state)| (state.0, virtual_partition(&sensor), sensor, state.1))
            .collect();
        silent.sort_unstable();
        silent.into_iter().map(|(.., sensor, sum)| format!("{},{sum}", -1 - sensor)).collect()
    };
    for reading in readings {
        let state = sensors.entry(reading.sensor).or_default();
        *state = (reading.time_ms + GAP_MS, state.1 + reading.level, state.2 + 1);
        if state.2 % 5 == 0 {
            lines.push(format!("{},{}", reading.sensor, state.2));
        }
        // The reading has moved the watermark to its own time.
        let silent: Vec<String> = report(&mut sensors, reading.time_ms);
        lines.extend(silent);
    }
    lines.extend(report(&mut sensors, i64::MAX - 1));
    lines
}

/// Compares readings with the limits that have come before, and numbers the alarms of a sensor.
#[derive(Default)]
struct Compare {
    limits: Vec<(i64, i64)>,
    alarms: BTreeMap<i64, i64>,
    limits_ended: bool,
}

/// Limits are saved for all, and that they are complete; numbers of alarms for their sensors.
type Compared = (i64, i64);

impl Processor for Compare {
    type Key = i64;
    type Saved = Compared;

    fn process(
        &mut self,
        input: usize,
        inbox: &mut Inbox<'_>,
        context: &mut Context<'_, i64>,
    ) -> Result<()> {
        if input == 1 {
            assert!(!self.limits_ended);
            while let Some(limit) = inbox.take()? {
                self.limits.push(limit);
            }
            return Ok(());
        }
        assert!(self.limits.len() == LIMITS.len() && self.limits_ended);
        while let Some(reading) = inbox.peek::<Reading>()? {
            let alarms = self.alarms.get(&reading.sensor).copied().unwrap_or_default() + 1;
            let is_above =
                |limit: &&(i64, i64)| limit.0 == reading.sensor && reading.level > limit.1;
            if self.limits.iter().any(|limit| is_above(&limit)) {
                if !context.offer(0, &Line { number: reading.sensor, sum: alarms })? {
                    return Ok(());
                }
                self.alarms.insert(reading.sensor, alarms);
            }
            inbox.remove();
        }
        Ok(())
    }

    fn complete_input(&mut self, input: usize, _: &mut Context<'_, i64>) -> Result<bool> {
        self.limits_ended |= input == 1;
        Ok(true)
    }

    fn save(&mut self, entries: &mut SavedEntries<i64, Compared>) -> Result<()> {
        self.limits.iter().for_each(|limit| entries.put_for_all(*limit));
        self.alarms.iter().try_for_each(|(sensor, alarms)| entries.put(*sensor, (0, *alarms)))
    }

    fn restore(&mut self, entry: Entry<i64, Compared>) -> Result<()> {
        match entry.key {
            Some(sensor) => drop(self.alarms.insert(sensor, entry.value.1)),
            None => self.limits.push(entry.value),
        }
        self.limits_ended = self.limits.len() == LIMITS.len();
        Ok(())
    }
}

fn rules(pipeline: &Pipeline, gate: &Arc<Gate>, rows: &[Reading], folder: &Path) -> Result<()> {
    let limits = pipeline.read_rows("limits", LIMITS);
    let outputs = pipeline
        .vertex("compare", |_| Compare::default())
        .input(timed(pipeline, gate, rows), Edge::partitioned(|reading: &Reading| reading.sensor))
        .input(limits, Edge::broadcast().priority(-1))
        .outputs(1)?;
    write_lines(outputs.output(0)?, folder)
}

fn rules_serially(readings: &[Reading]) -> Vec<String> {
    let mut alarms: BTreeMap<i64, i64> = BTreeMap::new();
    let lines = readings.iter().filter_map(|reading| {
        let is_above = |limit: &(i64, i64)| limit.0 == reading.sensor && reading.level > limit.1;
        LIMITS.iter().any(is_above).then(|| {
            let number = alarms.entry(reading.sensor).or_default();
            *number += 1;
            format!("{},{number}", reading.sensor)
        })
    });
    lines.collect()
}
