//! How fast joins that time bounds take rows, on one thread, with data in memory.
//!
//! Run with `cargo run --release -p thalweg-operators --example time_join_speed`. Each line is the
//! best of several passes over bundles of 8192 rows that alternate between the sides, in million
//! rows per second (rows of both sides together). A watermark follows every hundred milliseconds of
//! event time. An argument chooses the lines that contain it.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::shim::{SplitMix64, SystemClock};
use thalweg_core::{
    Bundle, Column, DataType, Error, Exchange, Operator, Output, PartitionContext, Piece, Progress,
    Stamps, TableSchema, Transform, Watermark, WatermarkBefore,
};
use thalweg_operators::join::JoinKind;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::interval::{IntervalJoin, IntervalJoinSpec};
use thalweg_operators::join::sides::{Side, Sides, TagSide};
use thalweg_operators::join::temporal::{TemporalJoin, TemporalJoinSpec};
use thalweg_operators::join::window::{WindowJoin, WindowJoinSpec};
use thalweg_operators::window::LatePolicy;

const ROWS: usize = 8192;
const BUNDLES: usize = 800;
const PASSES: usize = 5;
/// Rows of both sides in a second of event time.
const ROWS_PER_SECOND: usize = 1_000_000;

fn main() -> Result<(), Error> {
    let uniform =
        |keys: u64| Box::new(move |random: &mut SplitMix64| random.below(keys) as i64) as Key;
    // A tenth of the rows has one of a hundred keys.
    let skewed = || -> Key {
        Box::new(|random| {
            let keys = if random.below(10) == 0 { 100 } else { 100_000_000 };
            random.below(keys) as i64
        })
    };
    interval("interval, 64-bit keys, 1 s", &uniform(1 << 62), 500, JoinKind::Inner)?;
    interval("interval, 1,000,000 keys, 1 s", &uniform(1_000_000), 500, JoinKind::Inner)?;
    interval("interval, 1,000,000 keys, 100 ms", &uniform(1_000_000), 50, JoinKind::Inner)?;
    interval("interval, 1,000,000 keys, 1 s, full", &uniform(1_000_000), 500, JoinKind::Full)?;
    interval("interval, 1,000,000 keys, 1 s, semi", &uniform(1_000_000), 500, JoinKind::Semi)?;
    interval("interval, skewed keys, 20 ms", &skewed(), 10, JoinKind::Inner)?;
    windows("window of 1 s, 64-bit keys", &uniform(1 << 62), JoinKind::Inner)?;
    windows("window of 1 s, 1,000,000 keys", &uniform(1_000_000), JoinKind::Inner)?;
    temporal("temporal, 10,000 keys", &uniform(10_000))?;
    temporal("temporal, 1,000,000 keys", &uniform(1_000_000))
}

/// Draws a key.
type Key = Box<dyn Fn(&mut SplitMix64) -> i64>;

fn sides() -> Sides {
    let columns = || {
        TableSchema::new(vec![
            Column::new("key", DataType::BigInt.nullable()),
            Column::new("ts", DataType::Timestamp(3).not_null()),
            Column::new("value", DataType::BigInt.nullable()),
            Column::new("window_start", DataType::Timestamp(3).not_null()),
            Column::new("window_end", DataType::Timestamp(3).not_null()),
        ])
    };
    Sides::new(columns(), columns())
}

/// Bundles of both sides in turn, with the time of their last row.
fn bundles(sides: &Sides, keys: &Key) -> Vec<(Bundle, i64)> {
    let mut random = SplitMix64::new(7);
    let tags = [TagSide::new(Side::Left, sides), TagSide::new(Side::Right, sides)];
    let mut bundles = Vec::with_capacity(BUNDLES);
    for number in 0..BUNDLES {
        // Both sides move on at the same pace.
        let first = number / 2 * 2 * ROWS;
        let time = |row: usize| ((first + 2 * row) * 1000 / ROWS_PER_SECOND) as i64;
        let key: ArrayRef =
            Arc::new(Int64Array::from_iter_values((0..ROWS).map(|_| keys(&mut random))));
        let times = |of: &dyn Fn(i64) -> i64| -> ArrayRef {
            let times = (0..ROWS).map(|row| of(time(row)));
            Arc::new(TimestampMillisecondArray::from_iter_values(times))
        };
        let ts = times(&|time| time);
        let (start, end) = (times(&|t| t / 1000 * 1000), times(&|t| t / 1000 * 1000 + 1000));
        let batch = RecordBatch::try_new(
            sides.schema(Side::Left).arrow(),
            vec![Arc::clone(&key), ts, key, start, end],
        );
        let before = WatermarkBefore::All(Watermark(time(0) - 20));
        let stamps = Stamps { watermark_before: before, ..Stamps::first() };
        let bundle = Bundle::new(batch.expect("five columns"), stamps);
        let bundle = tags[number % 2].apply(bundle).expect("a tagged bundle");
        bundles.push((bundle, time(ROWS - 1)));
    }
    bundles
}

fn interval(what: &str, keys: &Key, reach_ms: i64, kind: JoinKind) -> Result<(), Error> {
    let sides = sides();
    let bundles = bundles(&sides, keys);
    let join = IntervalJoin::new(IntervalJoinSpec {
        join: EquiJoin { sides, kind, left_keys: vec![0], right_keys: vec![0], residual: None },
        left_time: 1,
        right_time: 1,
        lower_ms: -reach_ms,
        upper_ms: reach_ms,
        late: LatePolicy::Drop,
    })?;
    measure(what, &join, &bundles)
}

fn windows(what: &str, keys: &Key, kind: JoinKind) -> Result<(), Error> {
    let sides = sides();
    let bundles = bundles(&sides, keys);
    let join = WindowJoin::new(WindowJoinSpec {
        join: EquiJoin { sides, kind, left_keys: vec![0], right_keys: vec![0], residual: None },
        left_window: (3, 4),
        right_window: (3, 4),
    })?;
    measure(what, &join, &bundles)
}

fn temporal(what: &str, keys: &Key) -> Result<(), Error> {
    let sides = sides();
    let bundles = bundles(&sides, keys);
    let join = TemporalJoin::new(TemporalJoinSpec {
        join: EquiJoin {
            sides,
            kind: JoinKind::Left,
            left_keys: vec![0],
            right_keys: vec![0],
            residual: None,
        },
        left_time: 1,
        right_time: 1,
    })?;
    measure(what, &join, &bundles)
}

fn measure(what: &str, join: &dyn Operator, bundles: &[(Bundle, i64)]) -> Result<(), Error> {
    if std::env::args().nth(1).is_some_and(|wanted| !what.contains(&wanted)) {
        return Ok(());
    }
    let (mut best, mut left, mut peak) = (f64::MAX, 0, 0);
    for _ in 0..PASSES {
        let mut partition = join.open(PartitionContext::only())?;
        let exchange = Exchange::new(1);
        let clock = Arc::new(SystemClock::new());
        let (mut captured, mut rows) = (i64::MIN, 0);
        let start = Instant::now();
        for (bundle, newest) in bundles {
            let mut output = Output::new(clock.clone(), u64::MAX);
            partition.rows(Piece::whole(bundle, 2), &mut output)?;
            if newest / 100 > captured {
                captured = newest / 100;
                peak = peak.max(partition.state_bytes());
                let call = WatermarkCall {
                    watermark: Watermark(newest - 20),
                    phase: 0,
                    exchange: &exchange,
                };
                while partition.watermark(&call, &mut output)? == Progress::More {}
            }
            rows += output.emitted.iter().map(|emitted| emitted.batch.num_rows()).sum::<usize>();
        }
        best = best.min(start.elapsed().as_secs_f64());
        left = rows;
    }
    let rate = (ROWS * bundles.len()) as f64 / best / 1e6;
    println!("{what:45} {rate:7.1} M rows/s, {left:9} rows out, {:4} MB", peak >> 20);
    Ok(())
}
