//! Decisions of the design switched off one at a time: results stay the same under each, by seeds
//! of the simulator and on threads, and each does what it is called.

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::shim::ManualClock;
use thalweg_core::{Bundle, OperatorClass, Result, Transform};
use thalweg_runtime::simulate::{AssumedCosts, Costs, VirtualMachine, run_on, simulate};
use thalweg_runtime::topology::Topology;
use thalweg_runtime::{Ablation, RunOptions, start};

const ABLATIONS: [Ablation; 4] = [
    Ablation::Nothing,
    Ablation::InOrderEpochs,
    Ablation::IgnoreEpochBoundaries,
    Ablation::NoPriority,
];

#[test]
fn results_are_the_same_in_the_simulator() {
    for seed in 0..60 {
        let rows = disorder(300, seed);
        let (expected, mut expected_late) = reference(&rows, 10, 20);
        expected_late.sort_unstable();
        for ablation in ABLATIONS {
            for class in [OperatorClass::Commuting, OperatorClass::Sequenced] {
                let count = Count { size: 20, class, cancel_between: seed % 2 == 0 };
                let input = (Rows::boxed(rows.clone()), Delay::boxed(10, 20));
                let (graph, results, late) = counting(vec![input], count);
                let options = RunOptions {
                    workers: 4,
                    bundle_rows_max: 1 + (seed as usize % 30),
                    scheduler: policy_of(seed),
                    ablation,
                    clock: Arc::new(ManualClock::default()),
                    ..RunOptions::default()
                };
                simulate(graph, options, 2, seed).expect("the simulation runs");
                let what = format!("seed {seed}, {ablation:?}, {class:?}");
                assert_eq!(results.sorted(), expected, "{what}");
                assert_eq!(late.sorted(), expected_late, "{what}");
            }
        }
    }
}

#[test]
fn results_are_the_same_on_threads() {
    let rows = disorder(4_000, 3);
    let (expected, mut expected_late) = reference(&rows, 10, 20);
    expected_late.sort_unstable();
    for ablation in ABLATIONS {
        for bundle_rows_max in [3, 500] {
            let count = Count { size: 20, class: OperatorClass::Commuting, cancel_between: false };
            let input = (Rows::boxed(rows.clone()), Delay::boxed(10, 20));
            let (graph, results, late) = counting(vec![input], count);
            let options =
                RunOptions { workers: 3, bundle_rows_max, ablation, ..RunOptions::default() };
            start(graph, options).and_then(|job| job.wait()).expect("the job runs");
            assert_eq!(results.sorted(), expected, "{ablation:?}");
            assert_eq!(late.sorted(), expected_late, "{ablation:?}");
        }
    }
}

#[test]
fn an_epoch_that_fills_the_memory_is_not_held() {
    let rows: Vec<_> = (0..2_000).map(|n| (n, n % 5)).collect();
    let (expected, _) = reference(&rows, 0, 5_000);
    let count = Count { size: 5_000, class: OperatorClass::Commuting, cancel_between: false };
    let input = (Rows::boxed(rows), Delay::boxed(0, 5_000));
    let (graph, results, _) = counting(vec![input], count);
    let options = RunOptions {
        workers: 2,
        bundle_rows_max: 16,
        ablation: Ablation::InOrderEpochs,
        memory_limit_bytes: 64 * 1024,
        clock: Arc::new(ManualClock::default()),
        ..RunOptions::default()
    };
    simulate(graph, options, 1, 1).expect("the simulation runs");
    assert_eq!(results.sorted(), expected);
}

/// What a stage has seen of each bundle: the epoch of its container and the least row time.
type Seen = Arc<Mutex<Vec<(u64, i64)>>>;

/// Takes bundles down, and changes nothing.
struct Watch(Seen);

impl Transform for Watch {
    fn name(&self) -> String {
        "watch".into()
    }
    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        if let Some(&time) = column(&bundle.batch, 0).iter().min() {
            self.0.lock().expect("no panic").push((bundle.stamps.epoch, time));
        }
        Ok(bundle)
    }
}

/// source → watch → watch → sink on four virtual cores: what the two stages have seen. Every ten
/// rows are an epoch.
fn watched(ablation: Ablation, seed: u64) -> [Vec<(u64, i64)>; 2] {
    let rows: Vec<_> = (0..200).map(|n| (n, 0)).collect();
    let seen: [Seen; 2] = Default::default();
    let results = Collect::default();
    let mut graph = Graph::default();
    let source =
        StageKind::Source { source: Rows::boxed(rows.clone()), assigner: Delay::boxed(1, 10) };
    let mut from = graph.add("source", "source", source, vec![]);
    for (place, seen) in seen.iter().enumerate() {
        let watch = StageKind::Transform(Arc::new(Watch(Arc::clone(seen))));
        from = graph.add(format!("watch-{place}"), "watch", watch, vec![Input { from, port: 0 }]);
    }
    let sink = StageKind::Sink(Box::new(results.clone()));
    graph.add("sink", "sink", sink, vec![Input { from, port: 0 }]);
    let options = RunOptions { bundle_rows_max: 2, ablation, ..RunOptions::default() };
    let costs = AssumedCosts { ask_ns: 100, task_ns: 1_000, polled_row_ns: 10, row_ns: 500 };
    let machine = VirtualMachine {
        topology: Topology { nodes: vec![(0..4).collect()] },
        costs: Costs::Assumed(costs),
        wake_ns: 0,
        seed,
    };
    run_on(&machine, graph, options).expect("the simulation runs");
    assert_eq!(results.sorted(), rows);
    seen.map(|seen| seen.lock().expect("no panic").clone())
}

#[test]
fn results_are_the_same_on_virtual_cores() {
    for (ablation, seed) in ABLATIONS.into_iter().flat_map(|a| (0..5).map(move |seed| (a, seed))) {
        watched(ablation, seed);
    }
}

#[test]
fn in_order_an_epoch_is_finished_before_the_next_one_begins() {
    for seed in 0..10 {
        for stage in watched(Ablation::InOrderEpochs, seed) {
            assert!(stage.is_sorted_by_key(|&(epoch, _)| epoch), "seed {seed}: {stage:?}");
        }
    }
}

#[test]
fn without_boundaries_rows_come_early_and_never_late() {
    let strangers = |ablation| -> usize {
        let of_seed = |seed| {
            let [first, second] = watched(ablation, seed);
            let epoch_of = |time: i64| first.iter().find(|row| row.1 == time).map(|row| row.0);
            second.iter().filter(|&&(epoch, time)| Some(epoch) != epoch_of(time)).count()
        };
        (0..10).map(of_seed).sum()
    };
    assert_eq!(strangers(Ablation::Nothing), 0);
    assert!(strangers(Ablation::IgnoreEpochBoundaries) > 0);
}
