//! Windows over processing time against a reference: rows and ticks come in a random order on a
//! clock that the test moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, Column, DataType, Exchange, Operator, OrderContract, Output, Partition,
    PartitionContext, Piece, Place, Progress, Route, Stamps, TableSchema, Watermark,
    WatermarkBefore,
};

use super::driver::call;
use crate::test_kit::reopened;
use crate::window::{
    ClockWindows, LatePolicy, SessionAggregate, SessionSpec, WindowAggregate, WindowAggregateSpec,
    WindowSpec,
};

/// (end, start, key), and how many rows.
type Windows = BTreeMap<(i64, i64, i64), i64>;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Aligned(WindowSpec),
    Session(i64),
}

const KINDS: [Kind; 4] = [
    Kind::Aligned(WindowSpec::Tumble { size_ms: 10, offset_ms: 3 }),
    Kind::Aligned(WindowSpec::Hop { slide_ms: 5, size_ms: 15, offset_ms: 0 }),
    Kind::Aligned(WindowSpec::Cumulate { step_ms: 5, max_size_ms: 20, offset_ms: 0 }),
    Kind::Session(7),
];

fn operator(kind: Kind, ordered: bool) -> ClockWindows {
    let input = TableSchema::new(vec![
        Column::new("clock", DataType::TimestampLtz(3).not_null()),
        Column::new("key", DataType::BigInt.not_null()),
    ]);
    let (keys, zone) = (vec![1], Some(chrono_tz::Tz::UTC));
    let aggregates = vec![call("COUNT", false, None, None)];
    let late = LatePolicy::Fail;
    let inner: Arc<dyn Operator> = match kind {
        Kind::Aligned(window) => Arc::new(
            WindowAggregate::new(WindowAggregateSpec {
                window,
                rowtime: 0,
                zone,
                keys,
                aggregates,
                late,
                input,
            })
            .expect("it fits"),
        ),
        Kind::Session(gap_ms) => Arc::new(
            SessionAggregate::new(SessionSpec {
                gap_ms,
                rowtime: 0,
                zone,
                keys,
                aggregates,
                late,
                input,
            })
            .expect("it fits"),
        ),
    };
    ClockWindows::new(inner, 0, vec![1], ordered)
}

/// Partitions under a clock.
struct Bench {
    operator: ClockWindows,
    partitions: Vec<Box<dyn Partition>>,
    clock: Arc<ManualClock>,
    /// Time is up whenever an operator asks.
    refuse: bool,
    found: Windows,
}

impl Bench {
    fn new(kind: Kind, partitions: usize, order: OrderContract, refuse: bool) -> Self {
        let operator = operator(kind, order.is_ordered());
        let open = |partition| operator.open(PartitionContext { partition, partitions, order });
        let partitions = (0..partitions).map(|p| open(p).expect("it opens")).collect();
        let clock = Arc::new(ManualClock::default());
        Bench { operator, partitions, clock, refuse, found: Windows::new() }
    }

    fn now_ms(&self) -> i64 {
        thalweg_core::shim::Clock::wall_ms(self.clock.as_ref())
    }

    fn output(&self) -> Output {
        Output::new(self.clock.clone(), if self.refuse { 0 } else { u64::MAX })
    }

    fn rows(&mut self, keys: &[i64]) {
        // What stands in the column of the time is not read.
        let times = TimestampMillisecondArray::from_value(-1, keys.len()).with_timezone("UTC");
        let columns: Vec<ArrayRef> =
            vec![Arc::new(times), Arc::new(Int64Array::from(keys.to_vec()))];
        let schema = TableSchema::new(vec![
            Column::new("clock", DataType::TimestampLtz(3).not_null()),
            Column::new("key", DataType::BigInt.not_null()),
        ]);
        let batch = RecordBatch::try_new(schema.arrow(), columns).expect("it fits");
        let before = WatermarkBefore::All(Watermark(i64::MAX - 1));
        let bundle = Bundle::new(batch, Stamps { watermark_before: before, ..Stamps::first() });
        let route = self.operator.route(&bundle, self.partitions.len()).expect("it routes");
        let Route::Scatter(parts) = route else { panic!("rows go by key") };
        for (number, rows) in parts.iter().enumerate() {
            let mut output = self.output();
            let piece = Piece { bundle: &bundle, rows: Some(rows), is_local: false, lanes: 2 };
            self.partitions[number].rows(piece, &mut output).expect("no row is late");
            self.take(output);
        }
    }

    /// Calls whoever waits for the clock, as the runtime does.
    fn tick(&mut self) {
        let now_ms = self.now_ms();
        for number in 0..self.partitions.len() {
            if self.partitions[number].ticks_at().is_none_or(|at_ms| at_ms > now_ms) {
                continue;
            }
            loop {
                let mut output = self.output();
                let progress = self.partitions[number].tick(&mut output).expect("it ticks");
                self.take(output);
                if progress == Progress::Done {
                    break;
                }
            }
            let next = self.partitions[number].ticks_at();
            assert!(next.is_none_or(|at_ms| at_ms > now_ms), "{next:?} at {now_ms}");
        }
    }

    fn end(&mut self) {
        let exchange = Exchange::new(self.partitions.len());
        for number in 0..self.partitions.len() {
            let call = WatermarkCall { watermark: Watermark::END, phase: 0, exchange: &exchange };
            loop {
                let mut output = self.output();
                let partition = &mut self.partitions[number];
                let progress = partition.watermark(&call, &mut output).expect("it closes");
                self.take(output);
                if progress == Progress::Done {
                    break;
                }
            }
            assert_eq!(self.partitions[number].ticks_at(), None, "nothing comes behind the end");
        }
    }

    /// This many other partitions continue where these are.
    fn restore(&mut self, count: usize) {
        let order = OrderContract::Epoch;
        self.partitions = reopened(&self.operator, &mut self.partitions, count, order)
            .expect("what was captured is restored");
    }

    fn take(&mut self, output: Output) {
        for emitted in output.emitted {
            if self.operator.is_singleton() {
                assert_eq!(emitted.place, Place::AsEmitted, "rows of a lone partition");
            }
            let batch = &emitted.batch;
            let longs = |column: usize| batch.column(column).as_primitive::<Int64Type>();
            let times =
                |column: usize| batch.column(column).as_primitive::<TimestampMillisecondType>();
            for row in 0..batch.num_rows() {
                let window = (times(3).value(row), times(2).value(row), longs(0).value(row));
                let previous = self.found.insert(window, longs(1).value(row));
                assert_eq!(previous, None, "{window:?} left twice");
            }
        }
    }
}

/// What windows these rows (time, key) make.
fn reference(kind: Kind, rows: &[(i64, i64)]) -> Windows {
    let mut windows = Windows::new();
    let mut sessions: BTreeMap<i64, (i64, i64, i64)> = BTreeMap::new();
    for &(time, key) in rows {
        match kind {
            Kind::Aligned(spec) => {
                for (start, end) in spec.assign(time) {
                    *windows.entry((end, start, key)).or_default() += 1;
                }
            }
            Kind::Session(gap_ms) => {
                let session = sessions.entry(key).or_insert((time, time, 0));
                // A session whose end the clock has reached is over.
                if time - session.1 >= gap_ms {
                    windows.insert((session.1 + gap_ms, session.0, key), session.2);
                    *session = (time, time, 0);
                }
                *session = (session.0, time, session.2 + 1);
            }
        }
    }
    if let Kind::Session(gap_ms) = kind {
        let last = sessions.into_iter();
        windows.extend(last.map(|(key, (from, to, rows))| ((to + gap_ms, from, key), rows)));
    }
    windows
}

#[test]
fn rows_lie_in_the_windows_of_the_clock_whenever_it_ticks() {
    for seed in 0..400 {
        let mut random = SplitMix64::new(seed);
        let kind = KINDS[random.below(4) as usize];
        let partitions = 1 + random.below(3) as usize;
        let mut bench = Bench::new(kind, partitions, OrderContract::Epoch, seed % 2 == 1);
        let mut rows = Vec::new();
        for _ in 0..60 {
            match random.below(5) {
                4 if seed % 3 > 0 => bench.restore(1 + random.below(3) as usize),
                0 => {
                    let keys: Vec<i64> =
                        (0..1 + random.below(5)).map(|_| random.below(4) as i64).collect();
                    rows.extend(keys.iter().map(|&key| (bench.now_ms(), key)));
                    bench.rows(&keys);
                }
                1 => {
                    bench.tick();
                    let now_ms = bench.now_ms();
                    let over =
                        reference(kind, &rows).into_iter().filter(|((end, ..), _)| *end <= now_ms);
                    assert_eq!(
                        bench.found,
                        over.collect(),
                        "{kind:?}, seed {seed}, at {now_ms} ms"
                    );
                }
                _ => bench.clock.advance(Duration::from_millis(random.below(6))),
            }
        }
        bench.end();
        assert_eq!(bench.found, reference(kind, &rows), "{kind:?}, seed {seed}");
    }
}

#[test]
fn where_a_sequence_is_promised_windows_that_are_over_leave_before_the_next_rows() {
    let mut bench = Bench::new(KINDS[0], 1, OrderContract::Arrival, true);
    assert!(bench.operator.is_singleton());
    bench.rows(&[1, 2, 1]);
    bench.clock.advance(Duration::from_millis(13));
    bench.rows(&[7]);
    let over: Windows = [((3, -7, 1), 2), ((3, -7, 2), 1)].into();
    assert_eq!(bench.found, over);
}

#[test]
fn the_clock_of_a_partition_never_goes_back() {
    let mut bench = Bench::new(KINDS[0], 1, OrderContract::Epoch, false);
    bench.clock.advance(Duration::from_millis(14));
    bench.rows(&[1]);
    bench.clock = Arc::new(ManualClock::default());
    bench.rows(&[1]);
    bench.end();
    assert_eq!(bench.found, [((23, 13, 1), 2)].into());
}
