//! Sorted inputs: order, bounds, memory, and going on from a position.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::{ArrayRef, Int64Array, TimestampMillisecondArray};
use thalweg_core::DataType;
use thalweg_core::counter::{row_position, rows_before};
use thalweg_core::shim::{ManualClock, SplitMix64};

/// Batches of (time, number) as given.
struct Given(Vec<Vec<(i64, i64)>>);

impl Source for Given {
    fn name(&self) -> String {
        "given".to_owned()
    }
    fn start(&mut self, _: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        if self.0.is_empty() {
            return Ok(SourcePoll::End);
        }
        let (times, numbers): (Vec<i64>, Vec<i64>) = self.0.remove(0).into_iter().unzip();
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times));
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers));
        let batch = RecordBatch::try_from_iter([("ts", times), ("n", numbers)])?;
        let origin = Some(Origin { file: "given.csv".into(), first_row: 11 });
        Ok(SourcePoll::Batch(SourceBatch { origin, ..SourceBatch::new(batch) }))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

fn read(batches: Vec<Vec<(i64, i64)>>, within_ms: Option<i64>) -> Result<Vec<i64>> {
    let rowtime = Expr::column(0, DataType::Timestamp(3).not_null());
    let clock = Arc::new(ManualClock::default());
    let given = Box::new(Given(batches));
    let mut source = TimeOrderedSource::new(given, "t".into(), rowtime, within_ms, true, clock);
    let mut numbers = Vec::new();
    while let SourcePoll::Batch(SourceBatch { batch, .. }) = source.poll(100)? {
        let column = batch.column(1).as_primitive::<arrow_array::types::Int64Type>();
        numbers.extend_from_slice(column.values());
    }
    assert_eq!((source.waiting.bytes, source.waiting.batches.len()), (0, 0));
    Ok(numbers)
}

#[test]
fn sorted_rows_pass_and_the_first_other_is_named() {
    let sorted = vec![vec![(1, 1), (1, 2)], vec![(1, 3), (5, 4)]];
    assert_eq!(read(sorted, None).expect("sorted"), [1, 2, 3, 4]);
    let error = read(vec![vec![(1, 1), (7, 2), (3, 3)]], None).expect_err("not sorted");
    let text = error.to_string();
    assert!(text.contains("given.csv") && text.contains("13"), "{text}");
    assert!(error.help().is_some_and(|help| help.contains("'4 ms'")), "{:?}", error.help());
}

#[test]
fn rows_within_the_bound_are_sorted_by_time_then_arrival_however_they_are_cut() {
    let rows = [(5, 1), (3, 2), (5, 3), (4, 4), (9, 5), (5, 6), (12, 7), (8, 8)];
    let expected = [2, 4, 1, 3, 6, 8, 5, 7];
    for cut in 1..=rows.len() {
        let batches = rows.chunks(cut).map(<[_]>::to_vec).collect();
        assert_eq!(read(batches, Some(4)).expect("within"), expected, "cut at {cut}");
        let batches = rows.chunks(cut).map(<[_]>::to_vec).collect();
        let error = read(batches, Some(3)).expect_err("two rows are 4 ms behind");
        assert!(error.to_string().contains("4 ms behind"), "{error}");
    }
}
#[test]
fn random_disorder_is_sorted_stably_and_nothing_is_kept_that_has_left() {
    for seed in 0..50 {
        let mut random = SplitMix64::new(seed);
        let rows: Vec<(i64, i64)> =
            (0..2000).map(|n| (n / 4 + random.below(60) as i64, n)).collect();
        let mut expected = rows.clone();
        expected.sort_by_key(|&(time, _)| time);
        let expected: Vec<i64> = expected.into_iter().map(|(_, n)| n).collect();
        let mut batches = Vec::new();
        let mut rest = &rows[..];
        while !rest.is_empty() {
            let cut = rest.len().min(random.below(90) as usize);
            let (first, others) = rest.split_at(cut);
            batches.push(first.to_vec());
            rest = others;
        }
        assert_eq!(read(batches, Some(60)).expect("within"), expected, "seed {seed}");
    }
}

#[test]
fn a_long_wait_keeps_only_its_own_batch() {
    // The first row waits for all others, each of which can soon leave.
    let mut waiting = Waiting::default();
    let batch = |time: i64| {
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![time]));
        RecordBatch::try_from_iter([("ts", times)]).expect("one column")
    };
    waiting.add(batch(1_000_000), &[1_000_000], (SplitId::ONLY, 0), 0);
    let one = waiting.bytes;
    for time in 0..1000 {
        waiting.add(batch(time), &[time], (SplitId::ONLY, 0), 0);
        let released = waiting.release(time - 1).expect("sorts");
        assert_eq!(released.map_or(0, |rows| rows.num_rows()), usize::from(time > 0));
        assert!(waiting.batches.len() <= 4 && waiting.bytes <= 4 * one, "at {time}");
    }
}

/// Rows of (time, number); where it stands is how many of them it gave.
struct Replayable {
    rows: Arc<Vec<(i64, i64)>>,
    given: usize,
    positions: Arc<AtomicUsize>,
}

impl Source for Replayable {
    fn name(&self) -> String {
        "replayable".to_owned()
    }
    fn start(&mut self, _: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let rows = &self.rows[self.given..self.rows.len().min(self.given + rows_max)];
        self.given += rows.len();
        Given(if rows.is_empty() { Vec::new() } else { vec![rows.to_vec()] }).poll(rows_max)
    }
    fn is_bounded(&self) -> bool {
        true
    }
    fn position(&self) -> Option<String> {
        self.positions.fetch_add(1, Ordering::Relaxed);
        Some(row_position(self.given as u64))
    }
    fn seek(&mut self, position: &str) -> Result<()> {
        self.given = rows_before(position)? as usize;
        Ok(())
    }
}

fn replayable(
    rows: &Arc<Vec<(i64, i64)>>,
    within_ms: i64,
    positions: &Arc<AtomicUsize>,
) -> TimeOrderedSource {
    let rowtime = Expr::column(0, DataType::Timestamp(3).not_null());
    let given = Replayable { rows: rows.clone(), given: 0, positions: positions.clone() };
    let clock = Arc::new(ManualClock::default());
    TimeOrderedSource::new(Box::new(given), "t".into(), rowtime, Some(within_ms), true, clock)
}

#[test]
fn rows_that_waited_come_again_and_those_that_left_do_not() {
    for seed in 0..60 {
        let mut random = SplitMix64::new(seed);
        let count = if seed < 50 { 600 } else { 60_000 };
        let rows: Vec<(i64, i64)> =
            (0..count).map(|n| (n / 4 + random.below(60) as i64 - 30, n)).collect();
        let mut expected = rows.clone();
        expected.sort_by_key(|&(time, _)| time);
        let (rows, positions) = (Arc::new(rows), Arc::new(AtomicUsize::new(0)));
        let open = |position: Option<&str>| {
            let mut source = replayable(&rows, 60, &positions);
            if let Some(position) = position {
                source.seek(position).expect("its own position");
            }
            source.start(Arc::new(|| {})).expect("started");
            source
        };
        let mut source = open(None);
        let mut numbers = Vec::new();
        // A run that fails before it has read again what waited gets no further than the one
        // before.
        let mut failures = 30;
        let pause = 1 + random.below(if seed < 50 { 8 } else { 400 });
        loop {
            if failures > 0 && random.below(pause) == 0 {
                failures -= 1;
                let position = source.position().expect("replayable");
                let parsed = OrderedPosition::read(&position).expect("its own");
                // Before anybody has asked no positions are kept, and rows that come again come
                // first.
                let may_be_far = failures == 29
                    || source.splits.all().iter().all(|split| split.arrived < split.again);
                assert!(may_be_far || parsed.rows < 3 * 4096, "{position}");
                source = open(Some(&position));
            }
            match source.poll(1 + random.below(100) as usize).expect("within") {
                SourcePoll::Batch(SourceBatch { batch, .. }) => {
                    let column = batch.column(1).as_primitive::<arrow_array::types::Int64Type>();
                    numbers.extend_from_slice(column.values());
                }
                _ => break,
            }
        }
        let expected: Vec<i64> = expected.into_iter().map(|(_, n)| n).collect();
        assert_eq!(numbers, expected, "seed {seed}");
    }
}

#[test]
fn without_snapshots_the_inner_source_is_asked_once() {
    let rows = Arc::new((0..50_000).map(|n| (n, n)).collect::<Vec<_>>());
    let positions = Arc::new(AtomicUsize::new(0));
    let mut source = replayable(&rows, 10_000, &positions);
    source.start(Arc::new(|| {})).expect("started");
    while let SourcePoll::Batch(_) = source.poll(100).expect("sorted") {}
    assert_eq!(positions.load(Ordering::Relaxed), 1);
    for damaged in ["", "{}", "{\"rows\":1}", "{\"rows\":1,\"leftMs\":x"] {
        assert!(source.seek(damaged).is_err(), "{damaged}");
    }
}
