//! The ordered contracts: the very sequence of a loop over the rows, for every number of workers,
//! bundle size, policy and seed.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::shim::ManualClock;
use thalweg_core::time::Grid;
use thalweg_core::{
    Bundle, Operator, OperatorClass, OrderContract, Output, Partition, PartitionContext, Piece,
    Place, Progress, Result, Route, Watermark,
};
use thalweg_runtime::simulate::simulate;
use thalweg_runtime::{PartitionScheme, RunOptions, SchedulerPolicy, start};

const CLASSES: [OperatorClass; 2] = [OperatorClass::Commuting, OperatorClass::Sequenced];
const SCHEMES: [PartitionScheme; 3] =
    [PartitionScheme::Hybrid, PartitionScheme::Cells, PartitionScheme::Partitioned];
const POLICIES: [SchedulerPolicy; 6] = common::POLICIES;
const DELAY: i64 = 10;
const SIZE: i64 = 20;

fn options(workers: usize, bundle_rows_max: usize, scheduler: SchedulerPolicy) -> RunOptions {
    let order = OrderContract::Arrival;
    RunOptions { workers, bundle_rows_max, scheduler, order, ..RunOptions::default() }
}

fn simulated(workers: usize, bundle_rows_max: usize, seed: u64) -> RunOptions {
    let clock = Arc::new(ManualClock::default());
    let partitioning = SCHEMES[(seed / 3) as usize % SCHEMES.len()];
    RunOptions { clock, partitioning, ..options(workers, bundle_rows_max, policy_of(seed)) }
}

/// The results in canonical order, and late rows as they came.
fn sequences(rows: &[(i64, i64)]) -> (Vec<(i64, i64)>, Vec<(i64, i64)>) {
    let (mut results, late) = reference(rows, DELAY, SIZE);
    results.sort_by_key(|&(end, value)| {
        let key = value / 1_000_000;
        (end, virtual_partition(key), key)
    });
    (results, late)
}

#[test]
fn threads_give_the_sequence_of_the_loop() {
    let rows = disorder(5_000, 1);
    let (expected, expected_late) = sequences(&rows);
    let mut schemes = SCHEMES.into_iter().cycle();
    for class in CLASSES {
        for workers in [1, 2, 3, 4, 8] {
            for bundle in [1, 7, 1000, 65536] {
                for policy in POLICIES {
                    let count = Count { size: SIZE, class, cancel_between: false };
                    let input = (Rows::boxed(rows.clone()), Delay::boxed(DELAY, SIZE));
                    let (graph, results, late) = counting(vec![input], count);
                    let partitioning = schemes.next().expect("they go round");
                    let options = RunOptions { partitioning, ..options(workers, bundle, policy) };
                    let report =
                        start(graph, options).and_then(|job| job.wait()).expect("the job runs");
                    let what = format!(
                        "{class:?}, {workers} workers, {bundle} rows, {policy:?}, {partitioning:?}"
                    );
                    assert!(results.rows() == expected, "{what}");
                    assert!(late.rows() == expected_late, "{what}");
                    assert_eq!(report.metrics.late(), expected_late.len() as u64, "{what}");
                    assert_eq!(*results.ended.lock().expect("no panic"), "finished");
                }
            }
        }
    }
}

/// Makes a result in each call. From the second one on it waits for those before to arrive.
struct OneByOne(Collect);

struct OneByOnePartition {
    sink: Collect,
    made: i64,
}

/// How long a result may take to its sink.
const PATIENCE: Duration = Duration::from_secs(20);

impl Operator for OneByOne {
    fn name(&self) -> String {
        "one by one".into()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Commuting
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Grids(vec![Grid { period_ms: SIZE, offset_ms: 0 }])
    }
    fn watermark_phases(&self) -> usize {
        2
    }
    fn route(&self, _: &Bundle, _: usize) -> Result<Route> {
        Ok(Route::Any)
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(OneByOnePartition { sink: self.0.clone(), made: 0 }))
    }
}

impl Partition for OneByOnePartition {
    fn rows(&mut self, _: Piece<'_>, _: &mut Output) -> Result<()> {
        Ok(())
    }
    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        if call.phase == 0 || call.watermark != Watermark(2 * SIZE - 1) {
            return Ok(Progress::Done);
        }
        let began = Instant::now();
        while self.sink.rows().len() < self.made as usize {
            assert!(began.elapsed() < PATIENCE, "{} results wait for the others", self.made);
            std::thread::yield_now();
        }
        output.emit_at(batch(&[(2 * SIZE, self.made)]), Place::WindowEnd(2 * SIZE));
        self.made += 1;
        Ok(if self.made < 5 { Progress::More } else { Progress::Done })
    }
    fn state_bytes(&self) -> usize {
        0
    }
}

#[test]
fn results_of_a_window_leave_before_all_are_made() {
    let sink = Collect::default();
    let mut graph = Graph::default();
    let rows = [SIZE, 2 * SIZE, 3 * SIZE].map(|time| (time - 1, 1)).to_vec();
    let (source, assigner) = (Rows::boxed(rows), Delay::boxed(0, SIZE));
    let source = graph.add("source", "source", StageKind::Source { source, assigner }, vec![]);
    let input = |from| vec![Input { from, port: 0 }];
    let operator = StageKind::Operator(Arc::new(OneByOne(sink.clone())));
    let operator = graph.add("one by one", "one by one", operator, input(source));
    graph.add("sink", "sink", StageKind::Sink(Box::new(sink.clone())), input(operator));
    let job = start(graph, RunOptions { partitions: Some(1), ..options(1, 1, POLICIES[0]) });
    job.and_then(|job| job.wait()).expect("the job runs");
    assert_eq!(sink.rows(), [0, 1, 2, 3, 4].map(|number| (2 * SIZE, number)));
}

#[test]
fn simulated_schedules_give_the_sequence_of_the_loop() {
    for seed in 0..200 {
        let rows = disorder(400, seed);
        let (expected, expected_late) = sequences(&rows);
        for class in CLASSES {
            let count = Count { size: SIZE, class, cancel_between: seed % 2 == 0 };
            let input = (Rows::boxed(rows.clone()), Delay::boxed(DELAY, SIZE));
            let (graph, results, late) = counting(vec![input], count);
            let options = simulated(1 + seed as usize % 5, 1 + (seed as usize % 40), seed);
            simulate(graph, options, 2, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(results.rows(), expected, "seed {seed}, {class:?}");
            assert_eq!(late.rows(), expected_late, "seed {seed}, {class:?}");
        }
    }
}

/// source → keep → ┬───────→ union → sink; the counts and the rows meet again.
///                 └→ count ↗
fn meeting(rows: &[(i64, i64)], class: OperatorClass, count_first: bool) -> (Graph, Collect) {
    let sink = Collect::default();
    let mut graph = Graph::default();
    let (source, assigner) = (Rows::boxed(rows.to_vec()), Delay::boxed(DELAY, SIZE));
    let source = graph.add("s", "source", StageKind::Source { source, assigner }, vec![]);
    let input = |from| Input { from, port: 0 };
    let keep = StageKind::Transform(Arc::new(Keep));
    let keep = graph.add("k", "keep", keep, vec![input(source)]);
    let count = Count { size: SIZE, class, cancel_between: false };
    let count = graph.add("c", "count", StageKind::Operator(Arc::new(count)), vec![input(keep)]);
    let mut inputs = vec![input(keep), input(count)];
    if count_first {
        inputs.reverse();
    }
    let union = StageKind::Transform(Arc::new(Keep));
    let union = graph.add("u", "union", union, inputs);
    let kind = StageKind::Sink(Box::new(sink.clone()));
    graph.add("o", "sink", kind, vec![input(union)]);
    (graph, sink)
}

/// The same, one row at a time.
fn met(rows: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let (results, _) = sequences(rows);
    let mut results = results.into_iter().peekable();
    let (mut out, mut running, mut taken) = (Vec::new(), i64::MIN, i64::MIN);
    for &(time, key) in rows {
        if key >= 0 {
            out.push((time, key));
        }
        running = running.max(time - DELAY);
        let is_crossed =
            taken == i64::MIN || (taken + 1).div_euclid(SIZE) != (running + 1).div_euclid(SIZE);
        if is_crossed && running > taken {
            taken = running;
            while let Some(result) = results.next_if(|&(end, _)| end - 1 <= running) {
                out.push(result);
            }
        }
    }
    out.extend(results);
    out
}

#[test]
fn branches_that_meet_again_keep_the_order_of_rows() {
    for seed in 0..100u64 {
        let rows = disorder(300, seed);
        let expected = met(&rows);
        for class in CLASSES {
            let (graph, sink) = meeting(&rows, class, seed % 2 == 1);
            let options = simulated(1 + seed as usize % 4, 1 + (seed as usize % 60), seed);
            simulate(graph, options, 1, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(sink.rows(), expected, "seed {seed}, {class:?}");
        }
    }
}

/// Counts, and says that what rows do depends on the watermarks before them: then several of these
/// share an element.
struct Heeding(Count);

impl Operator for Heeding {
    fn name(&self) -> String {
        self.0.name()
    }
    fn class(&self) -> OperatorClass {
        self.0.class()
    }
    fn rows_depend_on_watermarks(&self) -> bool {
        true
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        self.0.watermark_interest()
    }
    fn ports(&self) -> usize {
        self.0.ports()
    }
    fn judges_lateness(&self) -> bool {
        true
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        self.0.route(bundle, partitions)
    }
    fn open(&self, opening: PartitionContext) -> Result<Box<dyn Partition>> {
        self.0.open(opening)
    }
    fn output_watermark(&self, input: Watermark) -> Option<Watermark> {
        self.0.output_watermark(input)
    }
}

/// The rows of an input and counts of them meet, and are counted once more. What met, the same with
/// these counts among it, and what was late for them.
fn meeting_twice(rows: &[(i64, i64)], cancel_between: bool) -> (Graph, [Collect; 3]) {
    let sinks: [Collect; 3] = Default::default();
    let mut graph = Graph::default();
    let input = |from| Input { from, port: 0 };
    let count = |size| {
        let class = OperatorClass::Sequenced;
        StageKind::Operator(Arc::new(Heeding(Count { size, class, cancel_between })))
    };
    let (source, assigner) = (Rows::boxed(rows.to_vec()), Delay::boxed(DELAY, SIZE));
    let source = graph.add("s", "source", StageKind::Source { source, assigner }, vec![]);
    let counted = graph.add("c", "count", count(SIZE), vec![input(source)]);
    let meet = || StageKind::Transform(Arc::new(Keep));
    let met = graph.add("m", "meet", meet(), vec![input(counted), input(source)]);
    let again = graph.add("a", "count again", count(2 * SIZE), vec![input(met)]);
    let met_again = graph.add("n", "meet again", meet(), vec![input(again), input(met)]);
    let outputs = [input(met), input(met_again), Input { from: again, port: 1 }];
    for (number, (sink, from)) in sinks.iter().zip(outputs).enumerate() {
        let kind = StageKind::Sink(Box::new(sink.clone()));
        graph.add(format!("o{number}"), "sink", kind, vec![from]);
    }
    (graph, sinks)
}

/// Whether watermarks share an element or each ends one (bundles of one row), what leaves is the
/// same.
#[test]
fn watermarks_between_rows_meet_where_edges_do() {
    for seed in 0..60u64 {
        let rows = disorder(300, seed);
        let run = |workers, bundle_rows| {
            let (graph, sinks) = meeting_twice(&rows, seed.is_multiple_of(2));
            simulate(graph, simulated(workers, bundle_rows, seed), 1, seed)
                .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            sinks.map(|sink| sink.rows())
        };
        let expected = run(1, 1);
        let [met, met_again, late] = &expected;
        assert!(met_again.len() > met.len() + 10 && !late.is_empty(), "seed {seed}");
        for (workers, bundle_rows) in [(1, 300), (3, 300), (2, 37)] {
            let what = format!("seed {seed}, {workers} workers, bundles of {bundle_rows}");
            assert!(run(workers, bundle_rows) == expected, "{what}");
        }
    }
}

#[test]
fn inputs_that_meet_keep_their_own_order() {
    let (a, b) = (disorder(3_000, 1), disorder(2_000, 2));
    for workers in [1, 2, 4] {
        let mut graph = Graph::default();
        let sink = Collect::default();
        let mut inputs = Vec::new();
        for (n, rows) in [&a, &b].into_iter().enumerate() {
            let (source, assigner) = (Rows::boxed(rows.clone()), Delay::boxed(DELAY, SIZE));
            let kind = StageKind::Source { source, assigner };
            let from = graph.add(format!("s{n}"), "source", kind, vec![]);
            inputs.push(Input { from, port: 0 });
        }
        let kind = StageKind::Sink(Box::new(sink.clone()));
        graph.add("o", "sink", kind, inputs);
        let job = start(graph, options(workers, 100, SchedulerPolicy::Nem)).expect("it starts");
        job.wait().expect("it runs");
        let rows = sink.rows();
        assert_eq!(rows.len(), a.len() + b.len());
        assert!(is_subsequence(&a, &rows) && is_subsequence(&b, &rows), "{workers} workers");
    }
}

fn is_subsequence(part: &[(i64, i64)], whole: &[(i64, i64)]) -> bool {
    let mut whole = whole.iter();
    part.iter().all(|row| whole.any(|other| other == row))
}

#[test]
fn a_slow_sink_holds_the_source_back_and_nothing_is_lost() {
    let rows = disorder(2_000, 3);
    let count = Count { size: SIZE, class: OperatorClass::Sequenced, cancel_between: false };
    let input = (Rows::boxed(rows.clone()), Delay::boxed(DELAY, SIZE));
    let (graph, results, late) = counting(vec![input], count);
    let mut options = options(3, 5, SchedulerPolicy::Nem);
    options.memory_limit_bytes = 64 << 10;
    start(graph, options).and_then(|job| job.wait()).expect("the job runs");
    let (expected, expected_late) = sequences(&rows);
    assert_eq!((results.rows(), late.rows()), (expected, expected_late));
}

/// Sorted inputs with many ties.
fn sorted(count: usize, seed: u64) -> Vec<(i64, i64)> {
    let mut rows: Vec<_> = disorder(count, seed).into_iter().map(|(t, k)| (t / 3, k)).collect();
    rows.sort_by_key(|&(time, _)| time);
    rows
}

/// source(s) → keep → union → count → sink, and the union to a sink of its own.
fn merging(inputs: &[Vec<(i64, i64)>], class: OperatorClass) -> (Graph, Collect, Collect) {
    let (merged, results) = (Collect::default(), Collect::default());
    let mut graph = Graph::default();
    let input = |from| Input { from, port: 0 };
    let mut kept = Vec::new();
    for (n, rows) in inputs.iter().enumerate() {
        let (source, assigner) = (Rows::boxed(rows.clone()), Delay::boxed(DELAY, SIZE));
        let kind = StageKind::Source { source, assigner };
        let source = graph.add(format!("s{n}"), "source", kind, vec![]);
        let keep = StageKind::Transform(Arc::new(Keep));
        kept.push(input(graph.add(format!("k{n}"), "keep", keep, vec![input(source)])));
    }
    let union = graph.add("u", "union", StageKind::Transform(Arc::new(Keep)), kept);
    let count = Count { size: SIZE, class, cancel_between: false };
    let count = graph.add("c", "count", StageKind::Operator(Arc::new(count)), vec![input(union)]);
    for (name, from, sink) in [("m", union, &merged), ("r", count, &results)] {
        graph.add(name, "sink", StageKind::Sink(Box::new(sink.clone())), vec![input(from)]);
    }
    (graph, merged, results)
}

#[test]
fn inputs_merge_by_time_then_input_then_position() {
    for seed in 0..60u64 {
        let inputs = [sorted(300, seed), sorted(200, seed + 1000), sorted(10, seed + 2000)];
        let mut expected: Vec<(i64, i64)> = inputs.concat();
        expected.sort_by_key(|&(time, _)| time);
        expected.retain(|&(_, key)| key >= 0);
        let mut of_seeds = Vec::new();
        for (class, run) in CLASSES.iter().flat_map(|&class| [(class, 1u64), (class, 2)]) {
            let (graph, merged, results) = merging(&inputs, class);
            let bundle = 1 + (7 * seed * run) as usize % 90;
            let options = RunOptions {
                order: OrderContract::EventTime,
                ..simulated(1 + (seed + run) as usize % 4, bundle, seed + run)
            };
            simulate(graph, options, 1, seed * run).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(merged.rows(), expected, "seed {seed}, {class:?}");
            of_seeds.push(results.rows());
        }
        assert!(of_seeds.iter().all(|rows| *rows == of_seeds[0]), "seed {seed}");
        assert!(!of_seeds[0].is_empty());
    }
}

#[test]
fn threads_merge_by_time() {
    let inputs = [sorted(3_000, 1), sorted(4_000, 2)];
    let mut expected: Vec<(i64, i64)> = inputs.concat();
    expected.sort_by_key(|&(time, _)| time);
    expected.retain(|&(_, key)| key >= 0);
    for workers in [1, 2, 3, 8] {
        for bundle in [1, 100, 65536] {
            let (graph, merged, _) = merging(&inputs, OperatorClass::Commuting);
            let mut options = options(workers, bundle, SchedulerPolicy::Nem);
            options.order = OrderContract::EventTime;
            start(graph, options).and_then(|job| job.wait()).expect("the job runs");
            assert!(merged.rows() == expected, "{workers} workers, {bundle} rows");
        }
    }
}

#[test]
fn a_full_memory_still_asks_the_input_that_a_merge_waits_for() {
    // All of the first input comes before the second one's first row counts: its rows wait.
    let inputs = [(0..20_000).map(|n| (n, 1)).collect(), vec![(30_000, 2), (30_001, 2)]];
    let mut late: Vec<(i64, i64)> = (0..20_000).map(|n| (40_000 + n, 3)).collect();
    late.insert(0, (5, 3));
    let inputs = [&inputs[..], &[late]].concat();
    let mut expected: Vec<(i64, i64)> = inputs.concat();
    expected.sort_by_key(|&(time, _)| time);
    let (graph, merged, _) = merging(&inputs, OperatorClass::Sequenced);
    let mut options = options(2, 64, SchedulerPolicy::Nem);
    options.order = OrderContract::EventTime;
    options.memory_limit_bytes = 256 << 10;
    start(graph, options).and_then(|job| job.wait()).expect("the job runs");
    assert!(merged.rows() == expected);
}
