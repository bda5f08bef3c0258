//! Runs an operator as the runtime would, on one thread, and prints what it emits.

use std::sync::Arc;

use arrow_array::builder::{BooleanBuilder, StringViewBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, TimestampMillisecondType};
use arrow_array::{
    Array, ArrayRef, Decimal128Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    TimestampMillisecondArray,
};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::ManualClock;
use thalweg_core::{
    Bundle, Column, DataType, Exchange, Operator, OrderContract, Output, Partition,
    PartitionContext, Progress, Result, Stamps, TableSchema, Watermark, WatermarkBefore,
};

use crate::aggregate::{AggregateCall, resolve};
use crate::test_kit::reopened;

/// One input row.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub(super) time: i64,
    pub(super) key: Option<i64>,
    pub(super) word: Option<String>,
    pub(super) number: Option<i32>,
    pub(super) flag: Option<bool>,
    pub(super) price: Option<i128>,
    pub(super) weight: Option<f64>,
    /// Its place in arrival order, where the reference needs it.
    pub(super) serial: usize,
}

pub(super) const TIME: usize = 0;
pub(super) const KEY: usize = 1;
pub(super) const WORD: usize = 2;
pub(super) const NUMBER: usize = 3;
pub(super) const FLAG: usize = 4;
pub(super) const PRICE: usize = 5;
pub(super) const WEIGHT: usize = 6;

pub(super) fn input_schema(time: DataType) -> TableSchema {
    let column = |name: &str, data_type: DataType| Column::new(name, data_type.nullable());
    TableSchema::new(vec![
        column("time", time),
        column("key", DataType::BigInt),
        column("word", DataType::STRING),
        column("number", DataType::Int),
        column("flag", DataType::Boolean),
        column("price", DataType::Decimal(10, 2)),
        column("weight", DataType::Double),
    ])
}

/// An aggregate over the test input.
pub(super) fn call(
    name: &str,
    distinct: bool,
    argument: Option<usize>,
    filter: Option<usize>,
) -> AggregateCall {
    let schema = input_schema(DataType::Timestamp(3));
    let types: Vec<_> = argument.iter().map(|&a| schema.columns[a].column_type.clone()).collect();
    let (function, result) = resolve(name, distinct, &types).expect("a known aggregate");
    AggregateCall { function, argument, distinct, filter, result, name: name.to_lowercase() }
}

pub(super) fn batch(rows: &[Row], schema: &TableSchema) -> RecordBatch {
    let times = TimestampMillisecondArray::from_iter_values(rows.iter().map(|row| row.time))
        .with_data_type(schema.columns[TIME].column_type.data_type.arrow());
    let mut words = StringViewBuilder::new();
    let mut flags = BooleanBuilder::new();
    for row in rows {
        words.append_option(row.word.as_deref());
        flags.append_option(row.flag);
    }
    let prices: Decimal128Array = rows.iter().map(|row| row.price).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(times),
        Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>()),
        Arc::new(words.finish()),
        Arc::new(rows.iter().map(|row| row.number).collect::<Int32Array>()),
        Arc::new(flags.finish()),
        Arc::new(prices.with_data_type(DataType::Decimal(10, 2).arrow())),
        Arc::new(rows.iter().map(|row| row.weight).collect::<Float64Array>()),
    ];
    RecordBatch::try_new(schema.arrow(), columns).expect("columns fit the schema")
}

/// The running watermark before each row, and after the last: the highest time minus a delay.
pub(super) fn running_watermarks(rows: &[Row], delay_ms: i64) -> Vec<i64> {
    let mut watermark = i64::MIN;
    let mut watermarks = vec![watermark];
    for row in rows {
        watermark = watermark.max(row.time - delay_ms);
        watermarks.push(watermark);
    }
    watermarks
}

/// What an operator did in a run.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Outcome {
    /// Result rows as text, sorted.
    pub(super) rows: Vec<String>,
    /// Times of late rows that were sent out, sorted.
    pub(super) late_times: Vec<i64>,
    pub(super) accepted: u64,
    pub(super) late: u64,
    pub(super) partly_late: u64,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) partitions: usize,
    pub(super) bundle_rows: usize,
    pub(super) delay_ms: i64,
    /// Feed the rows of the next bundle before the watermark of this one is consumed.
    pub(super) early: bool,
    /// Every call of `watermark` finds its time up.
    pub(super) hurried: bool,
    /// Now and then other partitions continue with what these captured.
    pub(super) restores: bool,
}

pub(super) struct Driver<'a> {
    operator: &'a dyn Operator,
    partitions: Vec<Box<dyn Partition>>,
    hurried: bool,
    pub(super) outcome: Outcome,
    /// The highest window end that each partition has emitted.
    last_ends: Vec<i64>,
}

impl<'a> Driver<'a> {
    pub(super) fn new(operator: &'a dyn Operator, partitions: usize, hurried: bool) -> Self {
        let states = (0..partitions).map(|p| {
            operator
                .open(PartitionContext { partition: p, partitions, order: OrderContract::Epoch })
                .expect("opened")
        });
        Driver {
            operator,
            partitions: states.collect(),
            hurried,
            outcome: Outcome::default(),
            last_ends: vec![i64::MIN; partitions],
        }
    }

    fn output(&self) -> Output {
        let deadline_ns = if self.hurried { 0 } else { u64::MAX };
        Output::new(Arc::new(ManualClock::default()), deadline_ns)
    }

    pub(super) fn rows(&mut self, bundle: &Bundle) -> Result<()> {
        let partitions = self.partitions.len();
        let route = self.operator.route(bundle, partitions)?;
        for share in route.shares(bundle.stamps.ordinal as usize % partitions) {
            let mut output = self.output();
            self.partitions[share.partition].rows(share.piece(bundle, 1), &mut output)?;
            self.gather(share.partition, output);
        }
        Ok(())
    }

    pub(super) fn watermark(&mut self, watermark: i64) -> Result<()> {
        let exchange = Exchange::new(self.partitions.len());
        for phase in 0..self.operator.watermark_phases() {
            for partition in 0..self.partitions.len() {
                let call =
                    WatermarkCall { watermark: Watermark(watermark), phase, exchange: &exchange };
                loop {
                    let mut output = self.output();
                    let progress = self.partitions[partition].watermark(&call, &mut output)?;
                    self.gather(partition, output);
                    if progress == Progress::Done {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    fn gather(&mut self, partition: usize, output: Output) {
        self.outcome.accepted += output.accepted;
        self.outcome.late += output.late;
        self.outcome.partly_late += output.partly_late;
        for emitted in output.emitted {
            if emitted.port == 1 {
                let times = emitted.batch.column(TIME).as_primitive::<TimestampMillisecondType>();
                self.outcome.late_times.extend(times.values().iter());
                continue;
            }
            let ends = emitted.batch.column(emitted.batch.num_columns() - 2);
            for &end in ends.as_primitive::<TimestampMillisecondType>().values() {
                assert!(end >= self.last_ends[partition], "windows come out oldest first");
                self.last_ends[partition] = end;
            }
            self.outcome.rows.extend(print(&emitted.batch));
        }
    }

    /// This many other partitions continue where these are.
    pub(super) fn restore(&mut self, count: usize) {
        let order = OrderContract::Epoch;
        self.partitions = reopened(self.operator, &mut self.partitions, count, order)
            .expect("what was captured is restored");
        // What left is known of all of them.
        let last = self.last_ends.iter().copied().min().unwrap_or(i64::MIN);
        self.last_ends = vec![last; count];
    }

    pub(super) fn finish(mut self) -> Outcome {
        self.watermark(i64::MAX).expect("the end of time");
        self.outcome.rows.sort_unstable();
        self.outcome.late_times.sort_unstable();
        self.outcome
    }

    pub(super) fn state_keys(&self) -> Option<usize> {
        self.partitions.iter().map(|partition| partition.state_keys()).sum()
    }

    pub(super) fn state_bytes(&self) -> usize {
        self.partitions.iter().map(|partition| partition.state_bytes()).sum()
    }
}

/// Rows as text: floats to nine digits, everything else in full.
fn print(batch: &RecordBatch) -> Vec<String> {
    (0..batch.num_rows())
        .map(|row| {
            let cells = batch.columns().iter().map(|column| cell(column, row));
            cells.collect::<Vec<_>>().join("|")
        })
        .collect()
}

fn cell(column: &ArrayRef, row: usize) -> String {
    if column.is_null(row) {
        return "-".to_string();
    }
    if let Some(floats) = column.as_primitive_opt::<Float64Type>() {
        return format!("{:.9}", floats.value(row));
    }
    if let Some(times) = column.as_primitive_opt::<TimestampMillisecondType>() {
        return times.value(row).to_string();
    }
    arrow_cast::display::array_value_to_string(column, row).expect("a printable value")
}

/// Cuts rows into bundles, one epoch each, and runs them through an operator.
pub(super) fn run(
    operator: &dyn Operator,
    rows: &[Row],
    schema: &TableSchema,
    how: Run,
) -> Outcome {
    let watermarks = running_watermarks(rows, how.delay_ms);
    let mut driver = Driver::new(operator, how.partitions, how.hurried);
    let mut pending = None;
    for (number, chunk) in rows.chunks(how.bundle_rows).enumerate() {
        let first = number * how.bundle_rows;
        let before = watermarks[first..first + chunk.len()].to_vec();
        let epoch = number as u64;
        let stamps = Stamps {
            epoch: epoch / 3,
            ordinal: epoch % 3,
            serial: epoch,
            watermark_before: WatermarkBefore::Rows(before.into()),
            ..Stamps::first()
        };
        if how.restores && number % 3 == how.bundle_rows % 3 {
            driver.restore(1 + (number + how.partitions) % 5);
        }
        driver.rows(&Bundle::new(batch(chunk, schema), stamps)).expect("rows are taken");
        let after = watermarks[first + chunk.len()];
        if epoch % 3 != 2 {
            continue;
        }
        let due = if how.early { pending.replace(after) } else { Some(after) };
        if let Some(watermark) = due {
            driver.watermark(watermark).expect("a watermark is taken");
        }
    }
    driver.finish()
}
