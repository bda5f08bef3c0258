//! Captures of what has changed, read while rows are processed, are what whole ones are, and no
//! larger than need be.

use std::sync::Arc;

use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, Exchange, Extent, Operator, Output, Partition, PartitionContext, Piece, Progress,
    Stamps, Watermark,
};

use super::fixture::{Case, Fits, Row, batch, script};
use super::{DELAY_MS, case, one, random_rows};
use crate::pattern::{MatchRecognize, Skip};
use crate::test_kit::{DriveOptions, capture_table, check_captures};

#[test]
fn changes_put_together_are_the_whole() {
    for seed in 0..40 {
        let mut random = SplitMix64::new(seed);
        let case = Case::random(&mut random);
        let rows = random_rows(&mut random, 150, 12);
        let operator = MatchRecognize::new(case.spec()).expect("it fits");
        let script = script(&rows, DELAY_MS, 1 + seed as usize % 9);
        let partitions = 1 + seed as usize % 3;
        let bundle_rows = [1, 5, 40][seed as usize % 3];
        let options = DriveOptions { partitions, bundle_rows, seed, ..DriveOptions::default() };
        check_captures(&operator, &script, &options);
    }
}

/// One partition of a pattern: 1, and some time later 2.
struct Pairs {
    partition: Box<dyn Partition>,
    exchange: Exchange,
}

impl Pairs {
    fn new() -> Self {
        let case = case(vec![one(Fits::Is(1)), one(Fits::Is(2))], Skip::PastLastRow);
        let operator = MatchRecognize::new(Case { by_key: true, ..case }.spec()).expect("it fits");
        let partition = operator.open(PartitionContext::only()).expect("a partition");
        Pairs { partition, exchange: Exchange::new(1) }
    }

    /// A row with this number at this time for each of these keys, and a watermark that fires them.
    fn fire(&mut self, time: i64, n: i64, keys: std::ops::Range<u64>) {
        self.wait(time, n, keys);
        self.pass(time);
    }

    fn wait(&mut self, time: i64, n: i64, keys: std::ops::Range<u64>) {
        let row = |key| Row { time, key: Some(format!("key {key}")), n: Some(n), rank: 0 };
        let rows: Vec<Row> = keys.map(row).collect();
        let bundle = Bundle::new(batch(&rows), Stamps::first());
        let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
        let piece = Piece::whole(&bundle, 1);
        self.partition.rows(piece, &mut output).expect("taken");
    }

    fn pass(&mut self, time: i64) {
        let mut output = Output::new(Arc::new(ManualClock::default()), u64::MAX);
        let call = WatermarkCall { watermark: Watermark(time), phase: 0, exchange: &self.exchange };
        let progress = self.partition.watermark(&call, &mut output).expect("taken");
        assert_eq!(progress, Progress::Done, "there was time enough");
    }

    /// How many keys a capture of changes writes, how many it names as gone, and whether they are
    /// all.
    fn capture(&mut self) -> (usize, usize, Extent) {
        let captured = self.partition.capture(Extent::Incremental).expect("it is captured");
        let mut tables = captured.tables.into_iter();
        let table = tables.find(|table| table.name == "keys").expect("a table of keys");
        let extent = table.extent;
        let captured = (table.rows)().expect("it is read");
        let count = |rows: &[arrow_array::RecordBatch]| rows.iter().map(|b| b.num_rows()).sum();
        (count(&captured.rows), count(&captured.removed), extent)
    }
}

#[test]
fn captures_follow_what_changes() {
    let mut pairs = Pairs::new();
    pairs.fire(1, 1, 0..10_000);
    assert_eq!(pairs.capture(), (10_000, 0, Extent::Full), "the first");
    pairs.fire(2, 1, 20..120);
    assert_eq!(pairs.capture(), (100, 0, Extent::Incremental), "runs that started from scratch");
    pairs.fire(3, 2, 50..150);
    assert_eq!(pairs.capture(), (0, 100, Extent::Incremental), "matches have left");
    pairs.fire(4, 0, 10_000..30_000);
    assert_eq!(pairs.capture(), (0, 0, Extent::Incremental), "keys that never had a run");
    pairs.fire(5, 1, 140..160);
    pairs.fire(6, 2, 155..158);
    assert_eq!(pairs.capture(), (17, 3, Extent::Incremental), "some of each");
}

#[test]
fn waiting_rows_are_captured_once() {
    let mut pairs = Pairs::new();
    let waiting = |pairs: &mut Pairs| {
        capture_table(&mut *pairs.partition, Extent::Incremental, "waiting_rows")
    };
    pairs.wait(100, 1, 0..10_000);
    pairs.wait(200, 1, 0..10_000);
    let all = waiting(&mut pairs);
    assert_eq!((all.rows, all.extent), (20_000, Extent::Full), "the first");
    pairs.wait(150, 1, 0..100);
    let few = waiting(&mut pairs);
    assert_eq!((few.rows, few.removed, few.extent), (100, 0, Extent::Incremental));
    assert!(few.bytes * 100 < all.bytes, "{} bytes, and {} for all", few.bytes, all.bytes);
    pairs.pass(150);
    let none = waiting(&mut pairs);
    assert_eq!((none.rows, none.removed, none.kept_from), (0, 0, Some(151)), "the rest expires");
    assert_eq!(capture_table(&mut *pairs.partition, Extent::Full, "waiting_rows").rows, 10_000);
}
