//! Whole jobs on threads and in the simulator against a loop over the rows: same results, same
//! late rows, for every number of workers, bundle size, policy and seed.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::*;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::shim::ManualClock;
use thalweg_core::{OperatorClass, OrderContract, Watermark};
use thalweg_runtime::simulate::simulate;
use thalweg_runtime::{RunOptions, SchedulerPolicy, start};

const CLASSES: [OperatorClass; 2] = [OperatorClass::Commuting, OperatorClass::Sequenced];

const POLICIES: [SchedulerPolicy; 6] = common::POLICIES;

fn options(workers: usize, bundle_rows_max: usize, scheduler: SchedulerPolicy) -> RunOptions {
    RunOptions { workers, bundle_rows_max, scheduler, ..RunOptions::default() }
}

#[test]
fn threads_equal_the_loop_for_every_setting() {
    let rows = disorder(5_000, 1);
    let (expected, mut expected_late) = reference(&rows, 10, 20);
    expected_late.sort_unstable();
    for class in CLASSES {
        for workers in [1, 2, 4] {
            for bundle in [1, 7, 1000, 65536] {
                for policy in POLICIES {
                    let count = Count { size: 20, class, cancel_between: false };
                    let input = (Rows::boxed(rows.clone()), Delay::boxed(10, 20));
                    let (graph, results, late) = counting(vec![input], count);
                    let report = start(graph, options(workers, bundle, policy))
                        .and_then(|job| job.wait())
                        .expect("the job runs");
                    let what = format!("{class:?}, {workers} workers, {bundle} rows, {policy:?}");
                    assert_eq!(results.sorted(), expected, "{what}");
                    assert_eq!(late.sorted(), expected_late, "{what}");
                    assert_eq!(report.metrics.late(), expected_late.len() as u64, "{what}");
                    assert_eq!(*results.ended.lock().expect("no panic"), "finished");
                }
            }
        }
    }
}

/// However much is left when an input ends, that is no latency of a row.
#[test]
fn results_that_the_end_of_an_input_causes_have_no_latency() {
    for order in [OrderContract::Epoch, OrderContract::Arrival, OrderContract::EventTime] {
        // Windows of 20: the first rows close none, the last one closes the first window.
        for (last, bundles) in [(19, None), (29, None), (30, Some(1))] {
            let rows: Vec<(i64, i64)> = (0..20).map(|n| (n, 1)).chain([(last, 1)]).collect();
            let count = Count { size: 20, class: OperatorClass::Sequenced, cancel_between: false };
            let (graph, results, _) =
                counting(vec![(Rows::boxed(rows), Delay::boxed(11, 1))], count);
            let options = RunOptions { order, ..options(1, 4, SchedulerPolicy::default()) };
            let report = start(graph, options).and_then(|job| job.wait()).expect("the job runs");
            assert!(!results.sorted().is_empty(), "{order:?}: results there are");
            let counted = report.latency.map(|latency| latency.count);
            assert_eq!(counted, bundles, "{order:?}, last row at {last}");
        }
    }
}

#[test]
fn simulated_schedules_equal_the_loop() {
    for seed in 0..200 {
        let rows = disorder(400, seed);
        let (expected, mut expected_late) = reference(&rows, 10, 20);
        expected_late.sort_unstable();
        for class in CLASSES {
            let count = Count { size: 20, class, cancel_between: seed % 2 == 0 };
            let input = (Rows::boxed(rows.clone()), Delay::boxed(10, 20));
            let (graph, results, late) = counting(vec![input], count);
            let mut options = options(3, 1 + (seed as usize % 40), policy_of(seed));
            options.clock = Arc::new(ManualClock::default());
            simulate(graph, options, 2, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(results.sorted(), expected, "seed {seed}, {class:?}");
            assert_eq!(late.sorted(), expected_late, "seed {seed}, {class:?}");
        }
    }
}

#[test]
fn few_results_of_a_watermark_leave_as_one_bundle() {
    // Every window has each of a hundred keys, so each of the eight partitions has some.
    let rows: Vec<_> = (0..20_000).map(|n| (n / 100, n % 100)).collect();
    let (expected, late) = reference(&rows, 1, 20);
    assert!(late.is_empty());
    for class in CLASSES {
        let count = Count { size: 20, class, cancel_between: false };
        let input = (Rows::boxed(rows.clone()), Delay::boxed(1, 20));
        let (graph, results, _) = counting(vec![input], count);
        let report = start(graph, options(4, 1000, SchedulerPolicy::Nem))
            .and_then(|job| job.wait())
            .expect("the job runs");
        assert_eq!(results.sorted(), expected, "{class:?}");
        let sink = report.metrics.stages.iter().find(|stage| stage.id == "sink-0");
        let sink = sink.expect("there is one for results");
        assert_eq!(sink.rows_in, 1000, "{class:?}");
        // Ten windows, of which several that have ended may leave as one if the operator commutes.
        let least = if class == OperatorClass::Commuting { 1 } else { 10 };
        assert!((least..=10).contains(&sink.bundles_in), "{class:?}: {} bundles", sink.bundles_in);
    }
}

#[test]
fn a_union_judges_each_row_against_its_own_input() {
    // The second input lags far behind the first: the joint watermark is its, and no row is late
    // for the other's sake.
    for (seed, class) in (0..40).flat_map(|seed| CLASSES.map(|class| (seed, class))) {
        let (a, b) = (disorder(300, seed), disorder(100, seed + 1000));
        let inputs = [&a, &b].map(|rows| (Rows::boxed(rows.clone()), Delay::boxed(10, 20)));
        let count = Count { size: 20, class, cancel_between: false };
        let (graph, results, late) = counting(inputs.into(), count);
        let mut options = options(3, 1 + (seed as usize % 30), policy_of(seed));
        options.clock = Arc::new(ManualClock::default());
        simulate(graph, options, 1, seed).expect("the simulation runs");
        let mut expected = std::collections::BTreeMap::new();
        let mut expected_late = Vec::new();
        for rows in [&a, &b] {
            let (results, late) = reference(rows, 10, 20);
            expected_late.extend(late);
            for (end, coded) in results {
                *expected.entry((end, coded.div_euclid(1_000_000))).or_insert(0) +=
                    coded.rem_euclid(1_000_000);
            }
        }
        let expected: Vec<_> =
            expected.into_iter().map(|((end, key), n)| (end, key * 1_000_000 + n)).collect();
        expected_late.sort_unstable();
        assert_eq!(results.sorted(), expected, "seed {seed}, {class:?}");
        assert_eq!(late.sorted(), expected_late, "seed {seed}, {class:?}");
    }
}

#[test]
fn sinks_get_stateless_results_in_order() {
    for workers in [1, 4] {
        let rows: Vec<_> = (0..20_000).map(|n| (n, n % 5)).collect();
        let collect = Collect::default();
        let mut graph = Graph::default();
        let kind = StageKind::Source { source: Rows::boxed(rows.clone()), assigner: None };
        let source = graph.add("source", "source", kind, vec![]);
        let keep = StageKind::Transform(Arc::new(Keep));
        let keep = graph.add("keep", "keep", keep, vec![Input { from: source, port: 0 }]);
        let sink = StageKind::Sink(Box::new(collect.clone()));
        graph.add("sink", "sink", sink, vec![Input { from: keep, port: 0 }]);
        start(graph, options(workers, 16, SchedulerPolicy::Nem))
            .and_then(|j| j.wait())
            .expect("runs");
        assert_eq!(collect.rows(), rows, "{workers} workers");
    }
}

#[test]
fn a_slow_sink_slows_the_source() {
    let rows: Vec<_> = (0..200_000).map(|n| (n, n % 5)).collect();
    let collect = Collect { pause: Duration::from_micros(200), ..Collect::default() };
    let mut graph = Graph::default();
    let kind = StageKind::Source { source: Rows::boxed(rows), assigner: None };
    let source = graph.add("source", "source", kind, vec![]);
    let sink = StageKind::Sink(Box::new(collect.clone()));
    graph.add("sink", "sink", sink, vec![Input { from: source, port: 0 }]);
    // A quarter of the limit may be in flight: 16 KiB, about 1000 rows of 16 bytes.
    let options =
        RunOptions { memory_limit_bytes: 64 * 1024, ..options(2, 64, SchedulerPolicy::Nem) };
    let job = start(graph, options).expect("starts");
    let report = job.wait().expect("runs");
    assert_eq!(collect.rows().len(), 200_000);
    assert!(report.peak_bytes <= 64 * 1024, "{} bytes in flight", report.peak_bytes);
}

#[test]
fn a_failing_sink_stops_the_job_and_says_where() {
    let rows: Vec<_> = (0..1_000_000).map(|n| (n, n % 5)).collect();
    let collect = Collect { fail_at: Some(1000), ..Collect::default() };
    let mut graph = Graph::default();
    let kind = StageKind::Source { source: Rows::boxed(rows), assigner: None };
    let source = graph.add("source", "source", kind, vec![]);
    let sink = StageKind::Sink(Box::new(collect.clone()));
    graph.add("sink", "hours", sink, vec![Input { from: source, port: 0 }]);
    let error = start(graph, options(2, 100, SchedulerPolicy::Nem))
        .and_then(|job| job.wait())
        .expect_err("the sink fails");
    assert_eq!(error.to_string(), "the disk is full (operator hours)");
    assert_eq!(*collect.ended.lock().expect("no panic"), "aborted");
}

struct Panics;

impl thalweg_core::Transform for Panics {
    fn name(&self) -> String {
        "panics".into()
    }
    fn apply(&self, _: thalweg_core::Bundle) -> thalweg_core::Result<thalweg_core::Bundle> {
        panic!("no such key")
    }
}

#[test]
fn a_panic_in_user_code_is_an_error() {
    let collect = Collect::default();
    let mut graph = Graph::default();
    let kind = StageKind::Source { source: Rows::boxed(vec![(1, 1)]), assigner: None };
    let source = graph.add("source", "source", kind, vec![]);
    let panics = StageKind::Transform(Arc::new(Panics));
    let panics = graph.add("panics", "my function", panics, vec![Input { from: source, port: 0 }]);
    let sink = StageKind::Sink(Box::new(collect.clone()));
    graph.add("sink", "sink", sink, vec![Input { from: panics, port: 0 }]);
    let error = start(graph, options(2, 100, SchedulerPolicy::Nem))
        .and_then(|job| job.wait())
        .expect_err("user code panics");
    assert_eq!(error.to_string(), "panicked: no such key (operator my function)");
}

#[test]
fn a_stopped_job_drains_and_leaves_its_output_unfinished() {
    let source = Box::new(Rows { rows: disorder(1000, 3).into(), bounded: false, given: 0 });
    let count = Count { size: 20, class: OperatorClass::Commuting, cancel_between: false };
    let (graph, results, _) = counting(vec![(source, Delay::boxed(0, 20))], count);
    let job = start(graph, options(2, 10, SchedulerPolicy::Nem)).expect("starts");
    let control = job.control();
    let started = Instant::now();
    while control.metrics().rows_in() < 1000 && started.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    control.cancel();
    let report = job.wait().expect("stopping is no failure");
    assert!(report.cancelled);
    assert_eq!(*results.ended.lock().expect("no panic"), "aborted");
    let (expected, _) = reference(&disorder(1000, 3), 0, 20);
    let newest = disorder(1000, 3).iter().map(|r| r.0).max().expect("rows");
    let complete: Vec<_> =
        expected.into_iter().filter(|(end, _)| Watermark(newest).closes(*end)).collect();
    assert_eq!(results.sorted(), complete, "what was complete was flushed, nothing else");
}

#[test]
fn an_idle_input_does_not_hold_results_back() {
    let quiet = Box::new(Rows { rows: Default::default(), bounded: false, given: 0 });
    let busy = (Rows::boxed(vec![(5, 1), (25, 1), (45, 1)]), Delay::boxed(0, 20));
    let count = Count { size: 20, class: OperatorClass::Commuting, cancel_between: false };
    let (graph, results, _) = counting(vec![busy, (quiet, Delay::boxed(0, 20))], count);
    let options = RunOptions {
        idle_timeout: Some(Duration::from_millis(50)),
        ..options(2, 1, SchedulerPolicy::Nem)
    };
    let job = start(graph, options).expect("starts");
    let control = job.control();
    let started = Instant::now();
    while results.rows().len() < 2 && started.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(control.metrics().stages.iter().any(|stage| stage.idle), "idleness is visible");
    control.cancel();
    let report = job.wait().expect("stopping is no failure");
    assert!(report.cancelled, "the end of the busy input is not the end of the quiet one");
    assert_eq!(results.sorted(), [(20, 1_000_001), (40, 1_000_001)]);
}
