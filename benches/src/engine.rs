//! The workloads through the engine, each with its result as a checksum.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use thalweg::pipeline::{Pipeline, Window, count};
use thalweg::{DataType, Report, Result, RowKind, RunOptions, Sink};
use thalweg_core::OrderContract;
use thalweg_expr::{Expr, Scalar, Session, build};

use crate::data::{bid_schema, sorted_schema};
use crate::latency::{self, AgeSink, Latencies, Schedule};
use crate::source::Replay;
use thalweg_workloads::streambox::wordcount;
use thalweg_workloads::streambox::words::{split, word_schema};

/// Adds up a column of the results.
#[derive(Clone, Default)]
pub struct Totals(Arc<Mutex<(u64, i64, u64)>>);

impl Totals {
    /// (rows, sum, sum of squares).
    pub fn get(&self) -> (u64, i64, u64) {
        *self.0.lock().expect("the sink does not panic")
    }
}

struct TotalsSink {
    totals: Totals,
    column: usize,
}

impl Sink for TotalsSink {
    fn name(&self) -> String {
        "totals".to_owned()
    }
    fn open(&mut self) -> Result<()> {
        Ok(())
    }
    fn write(&mut self, batch: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        let values = batch.column(self.column).as_primitive::<Int64Type>().values();
        let mut totals = self.totals.0.lock().expect("the sink does not panic");
        totals.0 += values.len() as u64;
        totals.1 += values.iter().sum::<i64>();
        totals.2 += values.iter().map(|&n| (n * n) as u64).sum::<u64>();
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

/// Batches with the span of event time that one lap takes.
#[derive(Clone)]
pub struct Input {
    pub batches: Arc<Vec<RecordBatch>>,
    pub period_ms: i64,
    pub laps: usize,
}

impl Input {
    fn source(&self) -> Replay {
        Replay::new(Arc::clone(&self.batches), self.period_ms, self.laps)
    }
}

/// How a workload is run.
#[derive(Clone, Copy)]
pub struct How {
    pub workers: usize,
    pub order: OrderContract,
    pub bundle_rows_max: usize,
}

impl How {
    /// This many workers, in contract `epoch`, with bundles that grow.
    pub fn workers(workers: usize) -> How {
        How { workers, order: OrderContract::Epoch, bundle_rows_max: 65_536 }
    }
    /// The same in contract `arrival`.
    pub fn in_arrival_order(self) -> How {
        How { order: OrderContract::Arrival, ..self }
    }
}

fn options(how: How) -> RunOptions {
    let How { workers, order, bundle_rows_max } = how;
    RunOptions { workers, order, bundle_rows_max, ..RunOptions::default() }
}

/// Words per window of 30 s sliding by 1 s.
pub fn wordcount(input: &Input, how: How) -> Result<(Report, Totals)> {
    let (pipeline, totals) = (Pipeline::new(), Totals::default());
    let words = word_schema().arrow();
    pipeline
        .read("text", input.source(), wordcount::schema())
        .watermark("ts", 1)?
        .flat_map("split", word_schema(), move |batch| split(batch, &words))
        .window(Window::sliding(30_000, 1000), "ts")?
        .key_by(&["word"])?
        .aggregate(vec![count().named("n")])?
        .write("totals", TotalsSink { totals: totals.clone(), column: 1 });
    Ok((pipeline.run(options(how))?, totals))
}

/// Bids above a price, price * 908 / 1000.
pub fn filter_project(input: &Input, how: How, above: i64) -> Result<(Report, Totals)> {
    let (pipeline, totals) = (Pipeline::new(), Totals::default());
    let column = |n: usize| Expr::column(n, DataType::BigInt.not_null());
    let (condition, price) = dear(above)?;
    pipeline
        .read("bids", input.source(), bid_schema())
        .filter_by("dear", condition)
        .project("scaled", vec![("auction", column(1)), ("bidder", column(2)), ("price", price)])
        .write("totals", TotalsSink { totals: totals.clone(), column: 2 });
    Ok((pipeline.run(options(how))?, totals))
}

/// Bids per auction and tumbling second.
pub fn count_per_key(input: &Input, how: How) -> Result<(Report, Totals)> {
    let (pipeline, totals) = (Pipeline::new(), Totals::default());
    pipeline
        .read("bids", input.source(), bid_schema())
        .watermark("ts", 1)?
        .window(Window::tumbling(1000), "ts")?
        .key_by(&["auction"])?
        .aggregate(vec![count().named("n")])?
        .write("totals", TotalsSink { totals: totals.clone(), column: 1 });
    Ok((pipeline.run(options(how))?, totals))
}

/// What runs at a fixed rate.
#[derive(Clone, Copy)]
pub enum Paced {
    Wordcount,
    FilterProject,
    CountPerKey,
}

/// A workload at this many rows per second for a while; how late its results leave.
pub fn paced(
    workload: Paced,
    input: &Input,
    how: How,
    rows_per_second: f64,
    lasts: Duration,
) -> Result<Latencies> {
    const ABOVE: i64 = 5_000;
    let times = input.batches[0].column(0).as_primitive::<TimestampMillisecondType>();
    let schedule = Schedule::new(rows_per_second, times.value(0));
    let rows = (rows_per_second * lasts.as_secs_f64()) as u64;
    let latencies = latency::latencies();
    let source = latency::Paced::new(input.source(), schedule.clone(), rows);
    let sink = |column, windows| AgeSink {
        schedule: schedule.clone(),
        latencies: Arc::clone(&latencies),
        column,
        windows,
        warm_up: lasts / 5,
        newest_ms: i64::MIN,
    };
    let pipeline = Pipeline::new();
    match workload {
        Paced::Wordcount => {
            let words = word_schema().arrow();
            let counts = pipeline
                .read("text", source, wordcount::schema())
                .watermark("ts", 1)?
                .flat_map("split", word_schema(), move |batch| split(batch, &words))
                .window(Window::sliding(30_000, 1000), "ts")?
                .key_by(&["word"])?
                .aggregate(vec![count().named("n")])?;
            let end = counts.schema().index_of("window_end").expect("windows have an end");
            counts.write("ages", sink(end, true));
        }
        Paced::CountPerKey => {
            let counts = pipeline
                .read("bids", source, bid_schema())
                .watermark("ts", 1)?
                .window(Window::tumbling(1000), "ts")?
                .key_by(&["auction"])?
                .aggregate(vec![count().named("n")])?;
            let end = counts.schema().index_of("window_end").expect("windows have an end");
            counts.write("ages", sink(end, true));
        }
        Paced::FilterProject => {
            let (condition, price) = dear(ABOVE)?;
            let time = Expr::column(0, bid_schema().columns[0].column_type.clone());
            pipeline
                .read("bids", source, bid_schema())
                .filter_by("dear", condition)
                .project("scaled", vec![("ts", time), ("price", price)])
                .write("ages", sink(0, false));
        }
    }
    pipeline.run(options(how))?;
    Ok(latencies)
}

/// A price above this, and the price scaled.
fn dear(above: i64) -> Result<(Expr, Expr)> {
    let session = Session::default();
    let long = |n: i64| Expr::literal(Scalar::Integer(n), DataType::BigInt.not_null());
    let column = |n: usize| Expr::column(n, DataType::BigInt.not_null());
    let condition = build::binary(build::BinaryOp::Greater, column(3), long(above), &session)?;
    let scaled = build::binary(build::BinaryOp::Multiply, column(3), long(908), &session)?;
    Ok((condition, build::binary(build::BinaryOp::Divide, scaled, long(1000), &session)?))
}

/// Bids above a price, counted per auction and second, as a pipeline of closures.
pub fn chain_of_closures(input: &Input, how: How, above: i64) -> Result<(Report, Totals)> {
    let (pipeline, totals) = (Pipeline::new(), Totals::default());
    pipeline
        .read("bids", input.source(), bid_schema())
        .watermark("ts", 1)?
        .filter("dear", move |batch| {
            let prices = batch.column(3).as_primitive::<Int64Type>();
            Ok(prices.iter().map(|price| price.map(|price| price > above)).collect())
        })
        .map("scaled", bid_schema(), |batch| {
            let prices = batch.column(3).as_primitive::<Int64Type>();
            let mut columns = batch.columns().to_vec();
            columns[3] = Arc::new(prices.unary::<_, Int64Type>(|price| price * 908 / 1000));
            Ok(RecordBatch::try_new(batch.schema(), columns)?)
        })
        .window(Window::tumbling(1000), "ts")?
        .key_by(&["auction"])?
        .aggregate(vec![count().named("n")])?
        .write("totals", TotalsSink { totals: totals.clone(), column: 1 });
    Ok((pipeline.run(options(how))?, totals))
}

/// The same with expressions, as SQL makes them.
pub fn chain_of_expressions(input: &Input, how: How, above: i64) -> Result<(Report, Totals)> {
    let (pipeline, totals) = (Pipeline::new(), Totals::default());
    let session = Session::default();
    let long = |n: i64| Expr::literal(Scalar::Integer(n), DataType::BigInt.not_null());
    let column = |n: usize| Expr::column(n, bid_schema().columns[n].column_type.clone());
    let condition = build::binary(build::BinaryOp::Greater, column(3), long(above), &session)?;
    let scaled = build::binary(build::BinaryOp::Multiply, column(3), long(908), &session)?;
    let price = build::binary(build::BinaryOp::Divide, scaled, long(1000), &session)?;
    pipeline
        .read("bids", input.source(), bid_schema())
        .watermark("ts", 1)?
        .filter_by("dear", condition)
        .project("scaled", vec![("ts", column(0)), ("auction", column(1)), ("price", price)])
        .window(Window::tumbling(1000), "ts")?
        .key_by(&["auction"])?
        .aggregate(vec![count().named("n")])?
        .write("totals", TotalsSink { totals: totals.clone(), column: 1 });
    Ok((pipeline.run(options(how))?, totals))
}

/// Sorted inputs merged by time into one sequence.
pub fn merge(inputs: &[Input], how: How) -> Result<(Report, Totals)> {
    let (pipeline, totals) = (Pipeline::new(), Totals::default());
    let read = |(number, input): (usize, &Input)| {
        pipeline
            .read(&format!("input-{number}"), input.source(), sorted_schema())
            .watermark("ts", 1)
    };
    let mut streams = inputs.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
    let first = streams.remove(0);
    first.union(streams)?.write("totals", TotalsSink { totals: totals.clone(), column: 2 });
    Ok((pipeline.run(options(how))?, totals))
}
