//! Captures of what has changed, read while rows are processed, are what whole ones are, and no
//! larger than need be.

use std::sync::Arc;

use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, Exchange, Extent, Operator, Output, Partition, PartitionContext, Piece, Progress,
    Stamps, Watermark,
};

use super::fixture::{N, Row, aggregate, batch, function, script, spec};
use super::random::{DELAY_MS, random_rows};
use crate::over::{Frame, OverAggregate, OverCall, OverFunction, OverSpec, OverTime};
use crate::test_kit::{DriveOptions, TableCapture, capture_table, check_captures};

fn lag(offset: u64) -> OverCall {
    function(OverFunction::Lag { column: N, offset, default: None })
}

fn sums() -> Vec<OverCall> {
    vec![aggregate("SUM", Some(N)), aggregate("MIN", Some(N)), lag(2)]
}

fn numbers() -> Vec<OverCall> {
    let numbers = [OverFunction::RowNumber, OverFunction::Rank, OverFunction::DenseRank];
    numbers.map(function).to_vec()
}

fn leads() -> Vec<OverCall> {
    let lead = OverFunction::Lead { column: N, offset: 2, default: None };
    vec![function(lead), lag(1), aggregate("COUNT", None)]
}

#[test]
fn changes_put_together_are_the_whole() {
    let all = Frame::Rows { preceding: None };
    let (rows, range) =
        (Frame::Rows { preceding: Some(3) }, Frame::Range { preceding_ms: Some(9) });
    let limited = |spec: OverSpec| OverSpec { state_ttl_ms: Some(40), ..spec };
    let arriving = |spec: OverSpec| OverSpec { time: OverTime::Arrival, ..spec };
    let specs = [
        spec(all, sums()),
        spec(rows, sums()),
        spec(range, sums()),
        spec(all, numbers()),
        spec(all, leads()),
        limited(spec(all, sums())),
        limited(spec(rows, numbers())),
        arriving(spec(rows, sums())),
        limited(arriving(spec(all, sums()))),
        arriving(spec(range, sums())),
        OverSpec { keys: Vec::new(), ..spec(rows, sums()) },
    ];
    for (place, spec) in specs.into_iter().enumerate() {
        let operator = OverAggregate::new(spec).expect("it fits");
        for seed in 0..6 {
            let script = script(&random_rows(seed, 250), DELAY_MS, 0, 1 + 5 * place % 9);
            let partitions = 1 + seed as usize % 3;
            let bundle_rows = [1, 5, 40][place % 3];
            let options = DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
            check_captures(&operator, &script, &options);
        }
    }
}

/// One partition of unbounded sums by key.
struct Sums {
    partition: Box<dyn Partition>,
    exchange: Exchange,
}

impl Sums {
    fn new() -> Self {
        let spec = spec(Frame::Rows { preceding: None }, sums());
        let partition = OverAggregate::new(spec).expect("it fits").open(PartitionContext::only());
        Sums { partition: partition.expect("a partition"), exchange: Exchange::new(1) }
    }

    /// A row at this time for each of these keys, and a watermark that fires them.
    fn fire(&mut self, time: i64, keys: impl Iterator<Item = u64>) {
        self.wait(time, keys, 1);
        self.pass(time);
    }

    /// A row at this time for each of these keys, by one of this many lanes.
    fn wait(&mut self, time: i64, keys: impl Iterator<Item = u64>, lanes: usize) {
        let row = |key| Row { time, key: Some(format!("key {key}")), n: Some(time) };
        let rows: Vec<Row> = keys.map(row).collect();
        let bundle = Bundle::new(batch(&rows), Stamps::first());
        let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
        let piece = Piece::whole(&bundle, lanes);
        self.partition.rows(piece, &mut output).expect("taken");
    }

    fn pass(&mut self, time: i64) {
        let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
        let call = WatermarkCall { watermark: Watermark(time), phase: 0, exchange: &self.exchange };
        let progress = self.partition.watermark(&call, &mut output).expect("taken");
        assert_eq!(progress, Progress::Done, "there was time enough");
    }

    /// How many rows and bytes the keys of a capture come to, and whether they are all.
    fn capture(&mut self, extent: Extent) -> (usize, usize, Extent) {
        let captured = self.partition.capture(extent).expect("it is captured");
        let mut tables = captured.tables.into_iter();
        let table = tables.find(|table| table.name == "keys").expect("a table of keys");
        let extent = table.extent;
        let captured = (table.rows)().expect("it is read");
        assert!(captured.removed.is_empty(), "no key has gone");
        let rows = captured.rows.iter().map(|rows| rows.num_rows()).sum();
        let bytes = captured.rows.iter().map(thalweg_core::bundle::batch_bytes).sum();
        (rows, bytes, extent)
    }
}

#[test]
fn captures_follow_what_changes() {
    let mut sums = Sums::new();
    sums.fire(1, 0..20_000);
    let (all, all_bytes, extent) = sums.capture(Extent::Incremental);
    assert_eq!((all, extent), (20_000, Extent::Full), "the first");
    let mut random = SplitMix64::new(1);
    for round in 2..5 {
        sums.fire(round, (0..200).map(|_| random.below(20_000)));
        let (rows, bytes, extent) = sums.capture(Extent::Incremental);
        assert!((150..=200).contains(&rows), "{rows} rows of 200 updates");
        assert_eq!(extent, Extent::Incremental);
        assert!(bytes * 50 < all_bytes, "{bytes} bytes, and {all_bytes} for all");
    }
    assert_eq!(sums.capture(Extent::Incremental).0, 0, "nothing has changed");
    assert_eq!(sums.capture(Extent::Full).0, 20_000);
}

#[test]
fn waiting_rows_are_captured_once() {
    let mut sums = Sums::new();
    let waiting =
        |sums: &mut Sums| capture_table(&mut *sums.partition, Extent::Incremental, "waiting_rows");
    sums.wait(100, 0..20_000, 1);
    sums.wait(200, 0..20_000, 1);
    let all = waiting(&mut sums);
    assert_eq!((all.rows, all.extent), (40_000, Extent::Full), "the first");
    sums.wait(150, 0..100, 1);
    let few = waiting(&mut sums);
    assert_eq!((few.rows, few.removed, few.extent), (100, 0, Extent::Incremental));
    assert!(few.bytes * 100 < all.bytes, "{} bytes, and {} for all", few.bytes, all.bytes);
    sums.pass(150);
    let none = waiting(&mut sums);
    assert_eq!((none.rows, none.removed, none.kept_from), (0, 0, Some(151)), "the rest expires");
    assert_eq!(capture_table(&mut *sums.partition, Extent::Full, "waiting_rows").rows, 20_000);
}

/// Where inputs are joined, a watermark may be ahead of that of a lane.
#[test]
fn overdue_rows_are_captured_until_they_leave() {
    let mut sums = Sums::new();
    let capture =
        |sums: &mut Sums, name| capture_table(&mut *sums.partition, Extent::Incremental, name);
    let rows = |captured: TableCapture| (captured.rows, captured.removed);
    sums.wait(100, 0..10, 2);
    assert_eq!(rows(capture(&mut sums, "waiting_rows")), (10, 0));
    sums.pass(50);
    sums.wait(40, 0..3, 2);
    sums.wait(60, 0..2, 2);
    // A capture writes both tables; what comes between two of them is captured by the second.
    assert_eq!(rows(capture(&mut sums, "overdue")), (3, 0));
    assert_eq!(rows(capture(&mut sums, "waiting_rows")), (0, 0), "captured by the capture before");
    assert_eq!(rows(capture(&mut sums, "overdue")), (3, 0), "they have not left");
    sums.pass(51);
    assert_eq!(rows(capture(&mut sums, "overdue")), (0, 0));
    assert_eq!(capture_table(&mut *sums.partition, Extent::Full, "waiting_rows").rows, 12);
}
