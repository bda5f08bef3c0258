use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, TimestampMillisecondArray};
use arrow_buffer::NullBuffer;
use thalweg_core::connector::{Assign, Assigned, ExactStamps, Origin};
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::shim::SplitMix64;
use thalweg_core::{
    Column, DataType, Error, Grid, Result, SourceBatch, SplitId, TableSchema, Watermark,
    WatermarkBefore,
};
use thalweg_expr::{Expr, Session, build};

use super::{AssignerSpec, WatermarkAssigner};

fn time_column(index: usize) -> Expr {
    Expr::column(index, DataType::Timestamp(3).nullable())
}

/// Column 0 is the row time, column 1 what the row establishes.
fn spec(interest: WatermarkInterest) -> AssignerSpec {
    AssignerSpec {
        table: "departures".to_owned(),
        computed: Vec::new(),
        rowtime: 0,
        watermark: time_column(1),
        interest,
        max_future_skew_ms: None,
    }
}

fn rows(times: &[Option<i64>], watermarks: &[Option<i64>]) -> SourceBatch {
    let column = |name| Column::new(name, DataType::Timestamp(3).nullable());
    let schema = TableSchema::new(vec![column("sched"), column("w")]);
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times.to_vec()));
    let watermarks: ArrayRef = Arc::new(TimestampMillisecondArray::from(watermarks.to_vec()));
    SourceBatch {
        batch: RecordBatch::try_new(schema.arrow(), vec![times, watermarks]).unwrap(),
        origin: Some(Origin { file: Arc::from("in.csv"), first_row: 10 }),
        split: SplitId::ONLY,
    }
}

fn some(values: &[i64]) -> Vec<Option<i64>> {
    values.iter().copied().map(Some).collect()
}

fn tens() -> WatermarkInterest {
    WatermarkInterest::Grids(vec![Grid { period_ms: 10, offset_ms: 0 }])
}

/// The stage's part: the running watermark of the one split, and the one taken last.
struct Split {
    assigner: WatermarkAssigner,
    running: Watermark,
    taken: Watermark,
}

impl Split {
    fn of(assigner: WatermarkAssigner) -> Split {
        Split { assigner, running: Watermark::MIN, taken: Watermark::MIN }
    }
    fn new(spec: AssignerSpec) -> Split {
        Split::of(WatermarkAssigner::new(spec))
    }
    fn assign(&mut self, batch: SourceBatch, wall_ms: i64) -> Result<Assigned> {
        let assigned = self.assigner.assign(batch, self.running, wall_ms)?;
        self.running = assigned.watermark_after;
        Ok(assigned)
    }
    fn take_watermark(&mut self) -> Option<Watermark> {
        let crosses = self.assigner.crosses(self.taken, self.running);
        crosses.then(|| {
            self.taken = self.running;
            self.running
        })
    }
}

fn stamps(assigned: &Assigned) -> Vec<i64> {
    (0..assigned.batch.num_rows()).map(|row| assigned.watermark_before.at(row).0).collect()
}

#[test]
fn each_row_is_stamped_with_the_maximum_before_it() {
    let mut assigner = Split::new(spec(WatermarkInterest::Every));
    let watermarks = [Some(5), None, Some(3), Some(9)];
    let first = assigner.assign(rows(&some(&[1, 2, 3, 4]), &watermarks), 0).unwrap();
    assert_eq!(stamps(&first), [i64::MIN, 5, 5, 5]);
    let second = assigner.assign(rows(&some(&[1, 2]), &some(&[0, 20])), 0).unwrap();
    assert_eq!(stamps(&second), [9, 9]);
    assert_eq!(assigner.running, Watermark(20));
}

#[test]
fn watermarks_are_taken_where_a_window_closes() {
    let mut assigner = Split::new(spec(tens()));
    let mut step = |watermark| {
        assigner.assign(rows(&some(&[watermark]), &some(&[watermark])), 0).unwrap();
        assigner.take_watermark()
    };
    assert_eq!(step(5), Some(Watermark(5)), "whatever ended before is closed now");
    assert_eq!(step(8), None);
    assert_eq!(step(9), Some(Watermark(9)), "closes [0, 10)");
    assert_eq!(step(18), None);
    assert_eq!(step(40), Some(Watermark(40)));
    assert_eq!(step(30), None);
}

#[test]
fn interest_decides_which_watermarks_are_taken() {
    let last = |interest| {
        let mut assigner = Split::new(spec(interest));
        assigner.assign(rows(&some(&[1]), &some(&[1])), 0).unwrap();
        assigner.take_watermark();
        assigner.assign(rows(&some(&[2]), &some(&[2])), 0).unwrap();
        assigner.take_watermark()
    };
    assert_eq!(last(WatermarkInterest::Every), Some(Watermark(2)));
    assert_eq!(last(WatermarkInterest::EndOnly), None);
    assert_eq!(last(tens()), None);
}

#[test]
fn one_stamp_for_all_rows_where_none_can_be_late() {
    let mut assigner = Split::new(spec(tens()));
    let in_time = assigner.assign(rows(&some(&[12, 11, 19]), &some(&[2, 1, 17])), 0).unwrap();
    assert!(matches!(in_time.watermark_before, WatermarkBefore::All(Watermark::MIN)));
    // The running watermark is 17 now. Reaching 19 closes [10, 20), and a row at 18 is in it.
    let edge = assigner.assign(rows(&some(&[18, 35, 18]), &some(&[8, 19, 8])), 0).unwrap();
    assert!(matches!(edge.watermark_before, WatermarkBefore::Rows(_)));
    assert_eq!(stamps(&edge), [17, 17, 19]);
    // Nothing new is established, so one stamp is exact, though a row is late.
    let late = assigner.assign(rows(&some(&[3, 4]), &some(&[1, 1])), 0).unwrap();
    assert!(matches!(late.watermark_before, WatermarkBefore::All(Watermark(19))));
}

#[test]
fn exact_watermarks_on_demand() {
    let mut assigner = Split::of(WatermarkAssigner::new(spec(tens())).with_exact_watermarks(true));
    let assigned = assigner.assign(rows(&some(&[12, 11, 19]), &some(&[2, 1, 7])), 0).unwrap();
    assert_eq!(stamps(&assigned), [i64::MIN, 2, 2]);
}

/// Behind which rows the watermark crosses a time that matters, as whoever gives it a place there
/// finds out: from the stamp of the next row, or behind the last one from what runs on.
fn crossings(assigner: WatermarkAssigner, times: &[i64], batch_rows: usize) -> Vec<usize> {
    let mut split = Split::of(assigner);
    let (mut taken, mut crossings) = (Watermark::MIN, Vec::new());
    for (number, times) in times.chunks(batch_rows).enumerate() {
        let watermarks: Vec<i64> = times.iter().map(|time| time - 3).collect();
        let assigned = split.assign(rows(&some(times), &some(&watermarks)), 0).unwrap();
        for row in 0..times.len() {
            let after = match row + 1 < times.len() {
                true => assigned.watermark_before.at(row + 1),
                false => split.running,
            };
            if split.assigner.crosses(taken, after) {
                taken = after;
                crossings.push(number * batch_rows + row);
            }
        }
    }
    crossings
}

#[test]
fn the_row_at_which_a_watermark_crosses_is_known() {
    let mut random = SplitMix64::new(5);
    for seed in 0..200 {
        // Sorted inputs, which meet by time, and others.
        let mut times: Vec<i64> = (0..60).map(|_| random.below(150) as i64).collect();
        if seed % 2 == 0 {
            times.sort_unstable();
        }
        let interest = if seed % 3 == 0 { WatermarkInterest::Every } else { tens() };
        // At a constant distance behind the row time, and by an expression.
        for watermark in [time_column(0), time_column(1)] {
            let assigner = |rows| {
                let spec = AssignerSpec { watermark: watermark.clone(), ..spec(interest.clone()) };
                let mut assigner = WatermarkAssigner::new(spec);
                assigner.stamp_exactly(rows);
                assigner
            };
            let expected = crossings(assigner(ExactStamps::Everywhere), &times, 1);
            for batch_rows in [1, 7, 60] {
                let found = crossings(assigner(ExactStamps::WhereCrossed), &times, batch_rows);
                assert_eq!(found, expected, "seed {seed}, batches of {batch_rows}");
            }
        }
    }
}

#[test]
fn batches_that_cross_nothing_are_not_stamped_row_by_row() {
    let mut assigner = WatermarkAssigner::new(spec(tens()));
    assigner.stamp_exactly(ExactStamps::WhereCrossed);
    assert_eq!(assigner.exact_stamps(), ExactStamps::WhereCrossed);
    let mut split = Split::of(assigner);
    let mut before = |times: &[i64], watermarks: &[i64]| {
        let batch = rows(&some(times), &some(watermarks));
        split.assign(batch, 0).unwrap().watermark_before
    };
    // The first watermark crosses whatever was before.
    assert!(matches!(before(&[11, 12], &[10, 11]), WatermarkBefore::Rows(_)));
    assert!(matches!(before(&[13, 14], &[12, 13]), WatermarkBefore::All(Watermark(11))));
    assert!(matches!(before(&[25, 26], &[14, 19]), WatermarkBefore::Rows(_)));
}

/// The set of (row, window) pairs that are closed must not depend on the cut into batches.
#[test]
fn judgements_do_not_depend_on_batches() {
    let mut random = SplitMix64::new(11);
    for _ in 0..200 {
        let times: Vec<i64> = (0..40).map(|i| i * 2 + random.below(30) as i64 - 15).collect();
        let watermarks: Vec<i64> =
            times.iter().map(|time| time - random.below(20) as i64).collect();
        let judge = |batch_rows: usize| {
            let mut assigner = Split::new(spec(tens()));
            let mut judged = Vec::new();
            for (times, watermarks) in times.chunks(batch_rows).zip(watermarks.chunks(batch_rows)) {
                let batch = rows(&some(times), &some(watermarks));
                let assigned = assigner.assign(batch, 0).unwrap();
                for (row, time) in times.iter().enumerate() {
                    let first_end = time.div_euclid(10) * 10 + 10;
                    let before = assigned.watermark_before.at(row);
                    judged.extend((0..3).map(|n| before.closes(first_end + n * 10)));
                }
            }
            judged
        };
        let one_by_one = judge(1);
        assert!([2, 7, 40].iter().all(|&batch_rows| judge(batch_rows) == one_by_one));
    }
}

/// The watermark follows the row time at this distance.
fn delayed(delay_ms: i64, interest: WatermarkInterest) -> Split {
    let text = format!("0.{delay_ms:03}");
    let delay = build::interval(&text, "SECOND", None).unwrap();
    let session = Session::default();
    let watermark =
        build::binary(build::BinaryOp::Subtract, time_column(0), delay, &session).unwrap();
    Split::new(AssignerSpec { watermark, ..spec(interest) })
}

/// One stamp stands for many more rows where the watermark follows the row time; what is late is
/// late all the same.
#[test]
fn judgements_at_a_constant_distance_do_not_depend_on_batches() {
    let mut random = SplitMix64::new(12);
    let (mut stamped, mut batches) = (0, 0);
    for round in 0..300 {
        let (delay_ms, disorder) = ([0, 1, 2, 7, 30][round % 5], [1, 2, 9, 40][round / 5 % 4]);
        let interest = if round % 3 == 0 { WatermarkInterest::Every } else { tens() };
        let times: Vec<i64> = (0..60).map(|i| i * 2 / 3 + random.below(disorder) as i64).collect();
        let mut judge = |batch_rows: usize| {
            let mut assigner = delayed(delay_ms, interest.clone());
            let mut judged = Vec::new();
            for times in times.chunks(batch_rows) {
                let batch = rows(&some(times), &vec![None; times.len()]);
                let before = assigner.assign(batch, 0).unwrap().watermark_before;
                batches += 1;
                stamped += usize::from(matches!(before, WatermarkBefore::Rows(_)));
                judged.extend(times.iter().enumerate().map(|(row, &time)| match interest {
                    // A session may end right where a row comes.
                    WatermarkInterest::Every => before.at(row).closes(time),
                    _ => before.at(row).closes(time.div_euclid(10) * 10 + 10),
                }));
            }
            (judged, assigner.running)
        };
        let one_by_one = judge(1);
        assert!([2, 7, 60].map(&mut judge).iter().all(|judged| *judged == one_by_one));
    }
    assert!(stamped > 100 && stamped < batches / 8, "{stamped} of {batches}");
}

#[test]
fn rows_in_the_order_of_time_need_no_stamps_of_their_own() {
    let mut assigner = delayed(1, tens());
    let times: Vec<i64> = (0..500).map(|row| row / 3).collect();
    let assigned = assigner.assign(rows(&some(&times), &vec![None; 500]), 0).unwrap();
    assert!(matches!(assigned.watermark_before, WatermarkBefore::All(Watermark::MIN)));
    assert_eq!(assigner.running, Watermark(165));
    // A session that ends at a row is closed by a watermark right before it.
    let mut assigner = delayed(1, WatermarkInterest::Every);
    let assigned = assigner.assign(rows(&some(&[0, 10, 10]), &[None; 3]), 0).unwrap();
    assert_eq!(stamps(&assigned), [i64::MIN, -1, 9]);
    // Without a distance the second of two rows at 169 is late for the window that ends behind it.
    let mut assigner = delayed(0, tens());
    let assigned = assigner.assign(rows(&some(&[169, 169]), &[None; 2]), 0).unwrap();
    assert_eq!(stamps(&assigned), [i64::MIN, 169]);
}

#[test]
fn a_null_row_time_names_table_column_file_and_row() {
    let mut assigner = Split::new(spec(tens()));
    let error: Error = assigner.assign(rows(&[Some(1), None], &some(&[1, 1])), 0).unwrap_err();
    let text = error.to_string();
    let names = ["'sched'", "'departures'", "in.csv, row 11", "must not be null"];
    assert!(names.iter().all(|name| text.contains(name)), "{text}");
}

#[test]
fn rows_of_the_far_future_are_dropped_and_establish_nothing() {
    let mut assigner = Split::new(AssignerSpec { max_future_skew_ms: Some(50), ..spec(tens()) });
    let times = some(&[100, 151, 150, 9_999]);
    let assigned = assigner.assign(rows(&times, &times), 100).unwrap();
    assert_eq!((assigned.quarantined, assigned.batch.num_rows()), (2, 2));
    assert_eq!(assigner.running, Watermark(150));
}

#[test]
fn computed_columns_can_be_row_time() {
    let computed = vec![(Column::new("ts", DataType::Timestamp(3).nullable()), time_column(1))];
    let spec = AssignerSpec { computed, rowtime: 2, watermark: time_column(2), ..spec(tens()) };
    let mut assigner = Split::new(spec);
    let assigned = assigner.assign(rows(&[None], &some(&[7])), 0).unwrap();
    assert_eq!(assigned.batch.schema().field(2).name(), "ts");
    assert_eq!(assigner.running, Watermark(7));
}

#[test]
fn rows_are_stamped_from_where_their_split_is() {
    let mut assigner = Split::new(spec(WatermarkInterest::Every));
    assigner.running = Watermark(100);
    let assigned = assigner.assign(rows(&some(&[50]), &some(&[45])), 0).unwrap();
    assert_eq!(stamps(&assigned), [100]);
}

#[test]
fn rows_behind_which_no_epoch_ends_are_known_before_they_are_stamped() {
    let mut random = SplitMix64::new(3);
    for interest in [tens(), WatermarkInterest::Every, WatermarkInterest::EndOnly] {
        let of_time = AssignerSpec { watermark: time_column(0), ..spec(interest.clone()) };
        let mut assigner = Split::new(of_time);
        let (mut waited, mut ended) = (0, 0);
        for n in 0..1000 {
            let times: Vec<i64> =
                (0..random.below(4)).map(|_| n - random.below(9) as i64).collect();
            let batch = rows(&some(&times), &vec![None; times.len()]);
            let highest = assigner.assigner.highest(&batch.batch).unwrap().max(assigner.running);
            let may_end = assigner.assigner.crosses(assigner.taken, highest);
            assigner.assign(batch, 0).unwrap();
            let ends = assigner.take_watermark().is_some();
            assert_eq!(may_end, ends, "{interest:?}: {times:?}");
            waited += usize::from(!may_end);
            ended += usize::from(ends);
        }
        assert!(waited > 100 && (ended > 50 || interest == WatermarkInterest::EndOnly));
    }
}

#[test]
fn the_watermark_of_rows_from_which_it_is_computed_is_not_known_before() {
    let assigner = WatermarkAssigner::new(spec(tens()));
    assert!(assigner.highest(&rows(&some(&[1]), &some(&[1])).batch).is_none());
}

/// What lies under a NULL may be anything: it drops no row, and establishes nothing.
#[test]
fn what_lies_under_a_null_is_no_time() {
    let far_ms = 1 << 50;
    let batch = |low_ms: i64| {
        let times = vec![low_ms, far_ms, 12].into();
        let valid = NullBuffer::from(vec![true, false, true]);
        let times: ArrayRef = Arc::new(TimestampMillisecondArray::new(times, Some(valid)));
        let schema = rows(&[], &[]).batch.schema();
        let columns = vec![Arc::clone(&times), times];
        SourceBatch::new(RecordBatch::try_new(schema, columns).unwrap())
    };
    for is_exact in [false, true] {
        let max_future_skew_ms = Some(1000);
        // At a constant distance behind the row time, and not.
        for watermark in [time_column(0), time_column(1)] {
            let spec = AssignerSpec { watermark, max_future_skew_ms, ..spec(tens()) };
            let assigner = WatermarkAssigner::new(spec).with_null_times(true);
            let mut assigner = Split::of(assigner.with_exact_watermarks(is_exact));
            let first = assigner.assign(batch(10), 0).unwrap();
            assert_eq!((first.batch.num_rows(), first.quarantined), (3, 0));
            assert_eq!(assigner.running, Watermark(12));
            // The last row's own watermark moves on; the first one is late.
            let second = assigner.assign(batch(3), 0).unwrap();
            assert_eq!(stamps(&second), [12, 12, 12]);
            let too_far = assigner.assign(batch(5000), 0).unwrap();
            assert_eq!((too_far.batch.num_rows(), too_far.quarantined), (2, 1));
            assert_eq!(assigner.running, Watermark(12));
        }
    }
}
