//! Throughput with records that come before their time (StreamBox, §9, figure 7): a share of the
//! records of each epoch carries a time of one to three epochs later. The variant of a point is the
//! share in percent.
//!
//! The watermark stays behind by as much in all variants, so nothing is late and results are
//! complete, which is checked: no late rows, and counts that add up to the records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, RecordBatch, TimestampMillisecondArray};
use serde_json::{Value, json};
use thalweg::{Error, OrderContract, Result};
use thalweg_core::shim::mix64;
use thalweg_workloads::streambox::{Job, RunSettings, Table, distinct, netmon};

use super::age_sinks::each;
use super::point::Point;
use super::process::Mark;

/// Workloads that are measured so.
pub const WORKLOADS: [&str; 2] = ["netmon", "distinct"];
/// Shares of records that come early, in percent.
pub const SHARES: [u64; 3] = [0, 20, 40];

const EPOCH_MS: i64 = 100;
const EPOCHS_MAX: i64 = 3;
const RECORDS: u64 = 5_000_000;

/// Runs a point: once to warm up, once measured.
pub fn run(point: &Point) -> Result<Value> {
    let share = point.variant.parse().map_err(|_| {
        Error::plan(format!("no share of early records: '{}', try '20'", point.variant))
    })?;
    let job = job(&point.workload, share);
    once(point, &job)?;
    let mark = Mark::now();
    let (late, counted) = once(point, &job)?;
    let spent = mark.spent();
    let records = job.num_rows() as u64;
    let mut row = spent.fields(records);
    row["rows_per_second"] = json!(records as f64 / spent.elapsed.as_secs_f64());
    let is_whole = late == 0 && (point.workload != "netmon" || counted == records);
    let wrong = || format!("WRONG: {late} late rows, {counted} of {records} counted");
    row["check"] = json!(if is_whole { "ok".to_owned() } else { wrong() });
    Ok(row)
}

fn job(name: &str, share: u64) -> Job {
    let early = |table: Table| early(table, share);
    match name {
        "distinct" => {
            distinct::job(early(distinct::table(&distinct::Settings::with_records(RECORDS))))
        }
        _ => netmon::job(early(netmon::table(&netmon::Settings::with_records(RECORDS)))),
    }
}

/// Late rows, and the sum of column `n`.
fn once(point: &Point, job: &Job) -> Result<(u64, u64)> {
    let workers = point.workers;
    let settings = RunSettings { workers, order: OrderContract::Epoch, bundle_rows_max: 65_536 };
    let counted = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&counted);
    let sink = each("counts", move |batch| {
        if let Some(column) = batch.column_by_name("n") {
            let rows: i64 = column.as_primitive::<Int64Type>().values().iter().sum();
            // Relaxed: read when the job is over.
            sum.fetch_add(rows as u64, Ordering::Relaxed);
        }
    });
    let report = job.run(settings, sink)?;
    Ok((report.metrics.late(), counted.load(Ordering::Relaxed)))
}

/// A share of the records in percent gets a time of later epochs.
fn early(table: Table, share: u64) -> Table {
    let mut number = 0;
    let mut moved = |batch: &RecordBatch| {
        let times = batch.column(0).as_primitive::<TimestampMillisecondType>();
        let times = times.values().iter().map(|&time_ms| {
            number += 1;
            time_ms + early_ms(number, share)
        });
        let mut columns = batch.columns().to_vec();
        columns[0] = Arc::new(TimestampMillisecondArray::from_iter_values(times)) as ArrayRef;
        RecordBatch::try_new(batch.schema(), columns).expect("only times have changed")
    };
    let batches = table.batches.iter().map(&mut moved).collect();
    Table { batches, delay_ms: EPOCHS_MAX * EPOCH_MS + 1, ..table }
}

/// How much too early a record comes.
fn early_ms(number: u64, share: u64) -> i64 {
    let draw = mix64(number);
    if draw % 100 < share { (1 + (draw >> 32) as i64 % EPOCHS_MAX) * EPOCH_MS } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_early_by_whole_epochs() {
        let early: Vec<i64> = (0..10_000).map(|number| early_ms(number, 20)).collect();
        let share = early.iter().filter(|&&ms| ms > 0).count();
        assert!((1_900..2_100).contains(&share), "{share}");
        assert!(early.iter().all(|ms| ms % EPOCH_MS == 0 && *ms <= EPOCHS_MAX * EPOCH_MS));
        assert!((0..1_000).all(|number| early_ms(number, 0) == 0));
    }
}
