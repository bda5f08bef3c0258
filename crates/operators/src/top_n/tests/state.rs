//! Causes, state that goes with its keys and windows, and processing time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::shim::{ManualClock, SharedClock, SplitMix64};
use thalweg_core::{
    Bundle, DataType, ErrorKind, Operator, OperatorClass, OrderContract, Output, Partition,
    PartitionContext, Piece, Place, RowKind, Stamps, TableSchema,
};

use super::{
    FUNCTIONS, batch, changes, check_changes, lines, lines_of, numbered, operator, spec, table,
};
use crate::sort::SortKey;
use crate::test_kit::{DriveOptions, check_operator, drive, reopened, sorted, stamped};
use crate::top_n::{
    Deduplicate, DeduplicateBy, DeduplicateSpec, Keep, RankFunction, TopN, TopNSpec,
};
use crate::window::LatePolicy;

fn input() -> TableSchema {
    table(&[("k", DataType::BigInt), ("v", DataType::BigInt)])
}

fn rows(keys: &[i64], values: &[i64]) -> RecordBatch {
    let column = |values: &[i64]| Arc::new(Int64Array::from(values.to_vec())) as ArrayRef;
    batch(&input(), vec![column(keys), column(values)])
}

fn top(to: u64) -> TopNSpec {
    spec(&input(), &[0], vec![SortKey::descending(1)], to)
}

/// A partition with a clock that the test moves.
struct Clocked<'a> {
    operator: &'a dyn Operator,
    partition: Box<dyn Partition>,
    clock: Arc<ManualClock>,
    /// True if another partition continues before each call.
    restores: bool,
}

impl<'a> Clocked<'a> {
    fn new(operator: &'a dyn Operator) -> Self {
        let partition = operator.open(PartitionContext::only()).expect("a partition");
        Clocked { operator, partition, clock: Arc::default(), restores: false }
    }
    fn restoring(operator: &'a dyn Operator, restores: bool) -> Self {
        Clocked { restores, ..Clocked::new(operator) }
    }
    fn pass_ms(&self, ms: u64) {
        self.clock.advance(Duration::from_millis(ms));
    }
    fn rows(&mut self, batch: RecordBatch, kinds: Option<&[RowKind]>) -> Output {
        if self.restores {
            let partitions = std::slice::from_mut(&mut self.partition);
            let order = OrderContract::Epoch;
            let mut others = reopened(self.operator, partitions, 1, order).expect("it continues");
            self.partition = others.remove(0);
        }
        let mut bundle = Bundle::new(batch, Stamps::first());
        bundle.kinds = kinds.map(Arc::from);
        let mut output = Output::new(Arc::clone(&self.clock) as SharedClock, u64::MAX);
        let piece = Piece::whole(&bundle, 1);
        self.partition.rows(piece, &mut output).expect("taken");
        output
    }
    fn lines(&mut self, batch: RecordBatch) -> Vec<String> {
        let output = self.rows(batch, None);
        output.emitted.iter().flat_map(|e| lines_of(&e.batch, e.kinds.as_ref())).collect()
    }
}

#[test]
fn changes_stand_where_their_rows_stand() {
    let plain = operator(numbered(top(2)));
    let mut partition = Clocked::new(&plain);
    let output = partition.rows(rows(&[7, 8, 7, 7, 7], &[1, 1, 5, 0, 6]), None);
    // Row 2 moves row 0 down; row 3 is not among the first; row 4 moves two.
    assert_eq!(output.emitted[0].place, Place::Caused(vec![0, 1, 2, 2, 2, 4, 4, 4, 4]));
    let operator = operator(TopNSpec { retracts: true, ..numbered(top(2)) });
    let mut partition = Clocked::new(&operator);
    partition.rows(rows(&[7, 7, 7], &[1, 2, 3]), None);
    let output = partition.rows(rows(&[7, 7], &[0, 3]), Some(&[RowKind::Insert, RowKind::Delete]));
    let emitted = &output.emitted[0];
    assert_eq!(emitted.place, Place::Caused(vec![1; 4]));
    let lines = lines_of(&emitted.batch, emitted.kinds.as_ref());
    assert_eq!(lines, ["-U,7,3,1", "+U,7,2,1", "-U,7,2,2", "+U,7,1,2"]);
}

/// However many rows come, only the first ones are kept.
#[test]
fn rows_that_are_not_among_the_first_are_not_kept() {
    for function in FUNCTIONS {
        let operator = operator(TopNSpec { function, ..numbered(top(3)) });
        let mut partition = Clocked::new(&operator);
        let mut bytes = Vec::new();
        for round in 0..100 {
            // Each row is better than all before.
            let values: Vec<i64> = (0..100).map(|n| round * 100 + n).collect();
            partition.rows(rows(&[1; 100], &values), None);
            bytes.push(partition.partition.state_bytes());
        }
        assert!(bytes[99] <= 2 * bytes[5], "{function:?}: {} then {}", bytes[5], bytes[99]);
    }
}

/// With ever-new keys that go again, the state stays as large as what lives at once.
#[test]
fn state_goes_with_its_keys() {
    for unique in [None, Some(vec![1])] {
        let spec = TopNSpec { retracts: true, unique, ..numbered(top(3)) };
        let operator = operator(spec);
        let mut partition = Clocked::new(&operator);
        let mut bytes = Vec::new();
        for round in 0..200 {
            let keys: Vec<i64> = (0..100).map(|key| round * 100 + key).collect();
            partition.rows(rows(&keys, &keys), None);
            let gone = partition.rows(rows(&keys, &keys), Some(&[RowKind::Delete; 100]));
            assert_eq!(gone.emitted[0].batch.num_rows(), 100);
            // What was never there leaves nothing behind either.
            partition.rows(rows(&keys, &keys), Some(&[RowKind::Delete; 100]));
            bytes.push(partition.partition.state_bytes());
        }
        assert!(bytes[199] <= 2 * bytes[10], "{} then {}", bytes[10], bytes[199]);
    }
}

#[test]
fn keys_that_were_not_written_for_long_are_forgotten() {
    let operator = operator(TopNSpec { state_ttl_ms: Some(1000), ..numbered(top(1)) });
    for restores in [false, true] {
        let mut partition = Clocked::restoring(&operator, restores);
        assert_eq!(partition.lines(rows(&[1], &[5])), ["+I,1,5,1"]);
        partition.pass_ms(600);
        let nothing = partition.lines(rows(&[1], &[4]));
        assert!(nothing.is_empty(), "it does not enter, so nothing is written");
        partition.pass_ms(600);
        assert_eq!(partition.lines(rows(&[1], &[4])), ["+I,1,4,1"], "forgotten without a change");
        partition.pass_ms(600);
        assert_eq!(partition.lines(rows(&[1], &[6])), ["-U,1,4,1", "+U,1,6,1"]);
        partition.pass_ms(600);
        assert_eq!(partition.lines(rows(&[1], &[7])), ["-U,1,6,1", "+U,1,7,1"]);
        check_forgets_old_keys(&mut partition);
    }
}

fn check_forgets_old_keys(partition: &mut Clocked<'_>) {
    let (mut bytes, restores) = (Vec::new(), partition.restores);
    for round in 0..60 {
        // Who continues looks at keys from the first one, wherever the oldest stand: give it time.
        partition.restores = restores && round % 8 == 0;
        let keys: Vec<i64> = (0..200).map(|key| round * 200 + key).collect();
        partition.rows(rows(&keys, &keys), None);
        partition.pass_ms(300);
        bytes.push(partition.partition.state_bytes());
    }
    partition.restores = restores;
    assert!(bytes[59] <= 2 * bytes[10], "{} then {}", bytes[10], bytes[59]);
}

#[test]
fn deduplication_forgets_as_well() {
    let operator = |keep| {
        let spec = DeduplicateSpec {
            keys: vec![0],
            keep,
            by: DeduplicateBy::Arrival,
            input: input(),
            state_ttl_ms: Some(1000),
            late: LatePolicy::Drop,
        };
        Deduplicate::new(spec).expect("valid")
    };
    let (keep_first, keep_last) = (operator(Keep::First), operator(Keep::Last));
    for restores in [false, true] {
        let mut first = Clocked::restoring(&keep_first, restores);
        assert_eq!(first.lines(rows(&[1], &[5])), ["+I,1,5"]);
        first.pass_ms(600);
        assert!(first.lines(rows(&[1], &[6])).is_empty());
        first.pass_ms(600);
        assert_eq!(first.lines(rows(&[1], &[7])), ["+I,1,7"], "others do not keep it alive");
        check_forgets_old_keys(&mut first);
        let mut last = Clocked::restoring(&keep_last, restores);
        assert_eq!(last.lines(rows(&[1], &[5])), ["+I,1,5"]);
        last.pass_ms(600);
        assert_eq!(last.lines(rows(&[1], &[6])), ["-U,1,5", "+U,1,6"]);
        last.pass_ms(600);
        assert_eq!(last.lines(rows(&[1], &[7])), ["-U,1,6", "+U,1,7"], "each row is written");
        last.pass_ms(1000);
        assert_eq!(last.lines(rows(&[1], &[8])), ["+I,1,8"]);
        check_forgets_old_keys(&mut last);
    }
}

#[test]
fn inserts_cannot_be_retracted() {
    let script = changes(&rows(&[1], &[1]), &[RowKind::Delete]);
    let error = drive(&operator(top(1)), &script, &DriveOptions::default()).expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Internal);
    assert!(TopN::new(TopNSpec { from: 3, ..top(2) }).is_err());
    assert!(TopN::new(TopNSpec { window_end: Some(1), ..top(2) }).is_err());
}

/// The ranks up to 3 of rows in their order, each with what it is ranked by.
fn ranks(function: RankFunction, rows: &[(i64, usize)]) -> Vec<(i64, usize)> {
    let (mut last, mut dense, mut ranked) = (None, 0, Vec::new());
    for (n, &(value, _)) in rows.iter().enumerate() {
        dense += usize::from(last != Some(value));
        let rank = match function {
            RankFunction::RowNumber => n + 1,
            RankFunction::Rank => rows.partition_point(|row| row.0 < value) + 1,
            RankFunction::DenseRank => dense,
        };
        last = Some(value);
        ranked.push((value, rank));
    }
    ranked.retain(|&(_, rank)| rank <= 3);
    ranked
}

/// Rows of windows of 10 ms, each with the watermark before it: what leaves is the first three
/// ranks of each key of each window that were on time, and then nothing is kept.
#[test]
fn windows_leave_when_they_close_and_leave_nothing_behind() {
    let input = table(&[
        ("k", DataType::BigInt),
        ("window_end", DataType::Timestamp(3)),
        ("v", DataType::BigInt),
    ]);
    for seed in 0..12 {
        let mut random = SplitMix64::new(seed);
        let function = FUNCTIONS[seed as usize % 3];
        let (mut keys, mut ends, mut values, mut watermarks) = (vec![], vec![], vec![], vec![]);
        let mut expected: BTreeMap<(i64, i64), Vec<(i64, usize)>> = BTreeMap::new();
        let (mut running, mut late) = (i64::MIN, 0);
        for n in 0..3000 {
            let time = n as i64 / 4 - random.below(15) as i64;
            let end = time.div_euclid(10) * 10 + 10;
            let (key, value) = (random.below(4) as i64, random.below(20) as i64);
            if end - 1 <= running {
                late += 1;
            } else {
                expected.entry((end, key)).or_default().push((-value, n));
            }
            running = running.max(time - 8);
            keys.push(key);
            ends.push(end);
            values.push(value);
            watermarks.push(Some(time - 8));
        }
        let rows = batch(
            &input,
            vec![
                Arc::new(Int64Array::from(keys)),
                Arc::new(TimestampMillisecondArray::from(ends)),
                Arc::new(Int64Array::from(values)),
            ],
        );
        let three = numbered(spec(&input, &[0, 1], vec![SortKey::descending(2)], 3));
        let operator = operator(TopNSpec { window_end: Some(1), function, ..three });
        // Numbers of rows that sort alike depend on who came first.
        let commutes = operator.class() == OperatorClass::Commuting;
        assert_eq!(commutes, function != RankFunction::RowNumber, "{function:?}");
        let script = stamped(&rows, &watermarks, 50);
        let driven = check_operator(&operator, &script);
        check_changes(&operator, &script);
        assert!(late > 10 && driven.late == late, "seed {seed}: {late} late rows");
        let actual = lines(&driven);
        let mut wanted: Vec<String> = Vec::new();
        for ((end, key), mut rows) in expected {
            rows.sort_unstable();
            let end = thalweg_core::text::format_timestamp_millis(end, 3);
            let ranked = ranks(function, &rows).into_iter();
            wanted.extend(ranked.map(|(value, n)| format!("+I,{key},{end},{},{n}", -value)));
        }
        let mut left = actual.clone();
        left.sort();
        wanted.sort();
        assert_eq!(left, wanted, "seed {seed}");
        let end_of = |line: &String| line.split(',').nth(2).map(str::to_string);
        assert!(actual.iter().map(end_of).is_sorted(), "seed {seed}: windows leave by their ends");
        assert_eq!(sorted(driven.changes()).len(), wanted.len());
        let (peak, left) = (driven.peak_state_bytes, driven.final_state_bytes);
        assert!(left <= peak, "seed {seed}: {left} of {peak}");
    }
}
