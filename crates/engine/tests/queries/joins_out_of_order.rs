//! Joins whose rows are taken in any order: by a seed, three workers take the bundles of any epoch
//! of either side, and what leaves equals plain loops over the rows; also where jobs are killed and
//! resume from a snapshot with other workers. A count per window behind an interval join finds none
//! of its pairs late.
//!
//! `THALWEG_SWEEP_SEEDS=10000` runs as many schedules.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray};
use thalweg::pipeline::MemorySource;
use thalweg::{Column, DataType, ManualClock, Result, RowKind, RunOptions, TableSchema};
use thalweg_core::connector::Sink;
use thalweg_core::graph::{Graph, Input, StageId, StageKind};
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::shim::SplitMix64;
use thalweg_core::snapshot::RestoredCut;
use thalweg_core::{Extent, Operator, OperatorClass};
use thalweg_expr::Expr;
use thalweg_operators::aggregate::{AggregateCall, resolve};
use thalweg_operators::assigner::{AssignerSpec, WatermarkAssigner};
use thalweg_operators::join::JoinKind;
use thalweg_operators::join::equi::EquiJoin;
use thalweg_operators::join::interval::{IntervalJoin, IntervalJoinSpec};
use thalweg_operators::join::sides::{Side, Sides, TagSide};
use thalweg_operators::join::window::{WindowJoin, WindowJoinSpec};
use thalweg_operators::reference::Value;
use thalweg_operators::test_kit::{assert_same_rows, rows_of, sorted};
use thalweg_operators::window::{LatePolicy, WindowAggregate, WindowAggregateSpec, WindowSpec};
use thalweg_runtime::simulate::{Simulation, restored, simulate};
use thalweg_runtime::{SchedulerPolicy, SnapshotMode};

/// Windows of the joined rows.
const SIZE_MS: i64 = 20;
/// Windows in which pairs are counted.
const COUNTED_MS: i64 = 10;

fn time(name: &str) -> Column {
    Column::new(name, DataType::Timestamp(3).not_null())
}

/// The row time, the watermark that a row establishes, its window, its key, and a number.
fn schema() -> TableSchema {
    let key = Column::new("key", DataType::BigInt.nullable());
    let number = Column::new("number", DataType::BigInt.not_null());
    TableSchema::new(vec![
        time("ts"),
        time("watermark"),
        time("window_start"),
        time("window_end"),
        key,
        number,
    ])
}

#[derive(Clone, Copy, Debug)]
struct Row {
    time: i64,
    watermark: i64,
    key: Option<i64>,
    number: i64,
    /// The watermark before it, of its own input.
    before: i64,
}

impl Row {
    fn start(&self) -> i64 {
        self.time.div_euclid(SIZE_MS) * SIZE_MS
    }

    fn values(&self) -> Vec<Value> {
        let key = self.key.map_or(Value::Null, Value::Integer);
        let start = self.start();
        let times = [self.time, self.watermark, start, start + SIZE_MS].map(Value::Integer);
        times.into_iter().chain([key, Value::Integer(self.number)]).collect()
    }
}

/// Rows out of order, some of them late.
fn random_rows(rows: u64, random: &mut SplitMix64) -> Vec<Row> {
    let (keys, disorder_ms) = (1 + random.below(6), 1 + random.below(40));
    let (mut now, mut before) = (0, i64::MIN);
    let mut all = Vec::new();
    for number in 0..rows as i64 {
        now += random.below(5) as i64;
        let time = now - random.below(disorder_ms) as i64;
        let key = (random.below(9) > 0).then(|| random.below(keys) as i64);
        let watermark = time - random.below(25) as i64;
        all.push(Row { time, watermark, key, number, before });
        before = before.max(watermark);
    }
    all
}

fn batch(rows: &[Row]) -> RecordBatch {
    let times = |of: fn(&Row) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values(rows.iter().map(of)))
    };
    let columns: Vec<ArrayRef> = vec![
        times(|row| row.time),
        times(|row| row.watermark),
        times(Row::start),
        times(|row| row.start() + SIZE_MS),
        Arc::new(rows.iter().map(|row| row.key).collect::<Int64Array>()),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.number))),
    ];
    RecordBatch::try_new(schema().arrow(), columns).expect("columns as declared")
}

#[derive(Clone, Copy, Debug)]
enum On {
    Window,
    /// `right + lower <= left <= right + upper`
    Interval(i64, i64),
}

struct Case {
    on: On,
    kind: JoinKind,
    /// The inputs of the left and of the right side.
    inputs: [Vec<Vec<Row>>; 2],
}

impl Case {
    fn random(seed: u64) -> Self {
        let random = &mut SplitMix64::new(seed);
        let bounds = [(-7, 5), (0, 0), (3, 9), (-9, -3), (-60, 60)][random.below(5) as usize];
        let on = if random.below(2) == 0 { On::Window } else { On::Interval(bounds.0, bounds.1) };
        let kind = JoinKind::ALL[random.below(6) as usize];
        let mut side = || {
            let inputs = 1 + random.below(2);
            (0..inputs).map(|_| random_rows(20 + random.below(80), random)).collect()
        };
        Case { on, kind, inputs: [side(), side()] }
    }

    fn operator(&self) -> (Arc<dyn Operator>, TableSchema) {
        let (kind, sides, residual) = (self.kind, Sides::new(schema(), schema()), None);
        let (left_keys, right_keys) = (vec![4], vec![4]);
        match self.on {
            On::Window => {
                let (left_window, right_window) = ((2, 3), (2, 3));
                let join = WindowJoin::new(WindowJoinSpec {
                    join: EquiJoin { sides, kind, left_keys, right_keys, residual },
                    left_window,
                    right_window,
                })
                .expect("it fits");
                let output = join.output_schema().clone();
                (Arc::new(join), output)
            }
            On::Interval(lower_ms, upper_ms) => {
                let join = IntervalJoin::new(IntervalJoinSpec {
                    join: EquiJoin { sides, kind, left_keys, right_keys, residual },
                    left_time: 0,
                    right_time: 0,
                    lower_ms,
                    upper_ms,
                    late: LatePolicy::Drop,
                })
                .expect("it fits");
                let output = join.output_schema().clone();
                (Arc::new(join), output)
            }
        }
    }

    /// True if pairs are counted by the window of the left row.
    fn counts(&self) -> bool {
        matches!(self.on, On::Interval(..)) && self.kind == JoinKind::Inner
    }

    fn graph(&self, written: &Written) -> Graph {
        let mut graph = Graph::default();
        let sides = Sides::new(schema(), schema());
        let mut tagged = Vec::new();
        for (side, inputs) in [Side::Left, Side::Right].into_iter().zip(&self.inputs) {
            for (number, rows) in inputs.iter().enumerate() {
                let name = format!("{side:?}-{number}");
                let source = Box::new(MemorySource::new(schema(), vec![batch(rows)]));
                let assigner = WatermarkAssigner::new(AssignerSpec {
                    table: name.clone(),
                    computed: Vec::new(),
                    rowtime: 0,
                    watermark: Expr::column(1, DataType::Timestamp(3).not_null()),
                    interest: WatermarkInterest::Every,
                    max_future_skew_ms: None,
                });
                let source = StageKind::Source { source, assigner: Some(Box::new(assigner)) };
                let from = graph.add(&name, &name, source, vec![]);
                let tag = StageKind::Transform(Arc::new(TagSide::new(side, &sides)));
                let from = graph.add(format!("{name}-tag"), "tag", tag, vec![of(from)]);
                tagged.push(of(from));
            }
        }
        let (operator, output) = self.operator();
        assert_eq!(operator.class(), OperatorClass::Commuting);
        let join = graph.add("join", "join", StageKind::Operator(operator), tagged);
        let sink = |kept: &Kept| StageKind::Sink(Box::new(KeepRows(kept.clone())));
        graph.add("pairs", "pairs", sink(&written.pairs), vec![of(join)]);
        if self.counts() {
            let count = StageKind::Operator(Arc::new(count_per_window(output)));
            let count = graph.add("count", "count", count, vec![of(join)]);
            graph.add("counts", "counts", sink(&written.counts), vec![of(count)]);
        }
        graph
    }

    /// True if rows of both sides meet.
    fn meet(&self, left: &Row, right: &Row) -> bool {
        let of_key = left.key.is_some() && left.key == right.key;
        let effective = |row: &Row| row.time.max(row.before.saturating_add(1));
        of_key
            && match self.on {
                On::Window => left.start() == right.start(),
                On::Interval(lower, upper) => {
                    right.time + lower <= left.time
                        && left.time <= right.time + upper
                        && effective(right) + lower <= left.time
                        && effective(left) <= right.time + upper
                }
            }
    }

    fn is_late(&self, side: Side, row: &Row) -> bool {
        match self.on {
            On::Window => row.start() + SIZE_MS - 1 <= row.before,
            On::Interval(lower, upper) => {
                let done_at = side.pick(row.time - lower, row.time + upper);
                row.time <= row.before && done_at <= row.before
            }
        }
    }

    /// The rows that are to leave, and how many are late.
    fn expected(&self) -> Expected {
        let mut late = 0;
        let mut on_time = |side: Side| -> Vec<Row> {
            let all = self.inputs[side as usize].iter().flatten().copied();
            let (gone, kept): (Vec<Row>, Vec<Row>) = all.partition(|row| self.is_late(side, row));
            late += gone.len() as u64;
            kept
        };
        let (lefts, rights) = (on_time(Side::Left), on_time(Side::Right));
        let none = || vec![Value::Null; schema().len()];
        let both = |left: Vec<Value>, right: Vec<Value>| [left, right].concat();
        let (kind, mut pairs, mut counts) = (self.kind, Vec::new(), Vec::new());
        for left in &lefts {
            let partners: Vec<&Row> =
                rights.iter().filter(|right| self.meet(left, right)).collect();
            match kind {
                JoinKind::Semi | JoinKind::Anti => {
                    let leaves = partners.is_empty() == (kind == JoinKind::Anti);
                    pairs.extend(leaves.then(|| left.values()));
                }
                _ => {
                    pairs.extend(partners.iter().map(|right| both(left.values(), right.values())));
                    let is_padded = partners.is_empty() && kind.pads_left_rows();
                    pairs.extend(is_padded.then(|| both(left.values(), none())));
                }
            }
            counts.extend(vec![left.time.div_euclid(COUNTED_MS) * COUNTED_MS; partners.len()]);
        }
        if kind.pads_right_rows() {
            let alone = |right: &&Row| !lefts.iter().any(|left| self.meet(left, right));
            let alone = rights.iter().filter(alone);
            pairs.extend(alone.map(|right| both(none(), right.values())));
        }
        counts.sort_unstable();
        let count_of = |of: &[i64]| vec![Value::Integer(of.len() as i64), Value::Integer(of[0])];
        let counts = counts.chunk_by(|a, b| a == b).map(count_of).collect();
        Expected { pairs: sorted(pairs), counts: sorted(counts), late }
    }
}

struct Expected {
    pairs: Vec<Vec<Value>>,
    counts: Vec<Vec<Value>>,
    late: u64,
}

fn of(from: StageId) -> Input {
    Input { from, port: 0 }
}

fn count_per_window(input: TableSchema) -> WindowAggregate {
    let (function, result) = resolve("COUNT", false, &[]).expect("an aggregate of ours");
    let name = "n".to_owned();
    let count =
        AggregateCall { function, argument: None, distinct: false, filter: None, result, name };
    WindowAggregate::new(WindowAggregateSpec {
        window: WindowSpec::Tumble { size_ms: COUNTED_MS, offset_ms: 0 },
        rowtime: 0,
        zone: None,
        keys: vec![],
        aggregates: vec![count],
        late: LatePolicy::Drop,
        input,
    })
    .expect("it fits")
}

/// The rows that a sink has, and how many it had at the newest cut.
#[derive(Clone, Default)]
struct Kept {
    rows: Arc<Mutex<Vec<Vec<Value>>>>,
    at_cut: Arc<AtomicUsize>,
}

/// What sinks keep.
#[derive(Default)]
struct Written {
    pairs: Kept,
    counts: Kept,
}

impl Written {
    /// Leaves what each sink had at the newest cut. When that was complete it may have got more.
    fn roll_back(&self) {
        for Kept { rows, at_cut } in [&self.pairs, &self.counts] {
            rows.lock().expect("no panic").truncate(at_cut.load(Ordering::Relaxed));
        }
    }

    fn check(&self, case: &Case, what: &str) {
        let rows = |kept: &Kept| kept.rows.lock().expect("no panic").clone();
        let expected = case.expected();
        assert_same_rows(&sorted(rows(&self.pairs)), &expected.pairs, what);
        if case.counts() {
            let counts = rows(&self.counts).into_iter().map(|row| row[..2].to_vec());
            assert_same_rows(&sorted(counts.collect()), &expected.counts, what);
        }
    }
}

struct KeepRows(Kept);

impl Sink for KeepRows {
    fn name(&self) -> String {
        "keep".to_owned()
    }
    fn write(&mut self, batch: &RecordBatch, _kinds: Option<&[RowKind]>) -> Result<()> {
        let mut rows = self.0.rows.lock().expect("no panic");
        rows.extend(rows_of(std::slice::from_ref(batch)));
        Ok(())
    }
    /// Comes with a cut, behind the rows in front of it.
    fn prepare(&mut self) -> Result<Option<String>> {
        let rows = self.0.rows.lock().expect("no panic").len();
        self.0.at_cut.store(rows, Ordering::Relaxed);
        Ok(None)
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}

fn options(random: &mut SplitMix64) -> RunOptions {
    let scheduler = match random.below(3) {
        0 => SchedulerPolicy::RoundRobin,
        _ => SchedulerPolicy::Nem,
    };
    RunOptions {
        workers: 1 + random.below(4) as usize,
        bundle_rows_max: 1 + random.below(30) as usize,
        clock: Arc::new(ManualClock::default()),
        scheduler,
        ..RunOptions::default()
    }
}

fn seeds(in_suite: u64) -> u64 {
    let asked = std::env::var("THALWEG_SWEEP_SEEDS").ok();
    asked.and_then(|text| text.parse().ok()).unwrap_or(in_suite)
}

#[test]
fn random_schedules_give_what_plain_loops_give() {
    let (mut pairs, mut late) = (0, 0);
    for seed in 0..seeds(300) {
        let case = Case::random(seed);
        let what = format!("seed {seed}: {:?} {:?}", case.on, case.kind);
        let (written, mut random) = (Written::default(), SplitMix64::new(seed));
        let report = simulate(case.graph(&written), options(&mut random), 2, seed);
        let report = report.unwrap_or_else(|error| panic!("{what}: {error}"));
        written.check(&case, &what);
        let expected = case.expected();
        assert_eq!(report.metrics.late(), expected.late, "{what}, late rows");
        (pairs, late) = (pairs + expected.pairs.len(), late + expected.late);
    }
    assert!(pairs > 1000 && late > 100, "{pairs} rows, {late} of them late, prove little");
}

/// Runs a job to its end, though it is killed. How often that was.
fn killed(case: &Case, seed: u64, written: &Written) -> usize {
    let random = &mut SplitMix64::new(seed);
    let (mut last, mut kills) = (None::<RestoredCut>, 0);
    loop {
        let snapshots = Some(SnapshotMode::ExactlyOnce);
        let options = RunOptions { snapshots, ..options(random) };
        let graph = case.graph(written);
        let mut job = Simulation::begin(graph, options, 2, random.next_u64(), last.as_ref())
            .expect("it resumes");
        loop {
            if job.is_over() || job.has_ended() {
                job.take_cut(Extent::Full).expect("the last cut");
                job.control().complete().expect("it finishes");
                job.end().expect("it ends well");
                return kills;
            }
            if random.below(20) == 0 {
                last = Some(
                    job.take_cut(Extent::Full).and_then(restored).expect("a cut can be taken"),
                );
            }
            if kills < 6 && random.below(60) == 0 {
                break;
            }
            job.step();
        }
        kills += 1;
        written.roll_back();
    }
}

#[test]
fn killed_jobs_give_what_plain_loops_give() {
    let mut kills = 0;
    for seed in 0..seeds(100) {
        let (case, written) = (Case::random(seed), Written::default());
        kills += killed(&case, seed, &written);
        written.check(&case, &format!("seed {seed}: {:?} {:?}", case.on, case.kind));
    }
    assert!(kills > 50, "{kills} kills prove little");
}
