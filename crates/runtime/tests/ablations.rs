//! Decisions of the design switched off one at a time: results stay the same under each, by seeds
//! of the simulator and on threads, and each does what it is called.

mod common;

use std::sync::{Arc, Mutex};

use common::*;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::shim::ManualClock;
use thalweg_core::{
    Bundle, Grid, Operator, OperatorClass, Output, Partition, PartitionContext, Piece, Result,
    Route, Transform,
};
use thalweg_runtime::simulate::{AssumedCosts, Costs, VirtualMachine, run_on, simulate};
use thalweg_runtime::{Ablation, RunOptions, start};

const ABLATIONS: [Ablation; 5] = [
    Ablation::Nothing,
    Ablation::InOrderEpochs,
    Ablation::IgnoreEpochBoundaries,
    Ablation::EstimatedMoments,
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

/// An operator whose partitions pass rows on as they come.
struct Pass;

impl Operator for Pass {
    fn name(&self) -> String {
        "pass".into()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Commuting
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Grids(vec![Grid { period_ms: 10, offset_ms: 0 }])
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let mut parts = vec![Vec::new(); partitions];
        for (row, time) in column(&bundle.batch, 0).into_iter().enumerate() {
            parts[time as usize % partitions].push(row as u32);
        }
        Ok(Route::Scatter(parts))
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(PassPartition))
    }
}

struct PassPartition;

impl Partition for PassPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let (times, keys) = (column(&piece.bundle.batch, 0), column(&piece.bundle.batch, 1));
        let all: Vec<u32> = (0..times.len() as u32).collect();
        let rows = piece.rows.unwrap_or(&all).iter().map(|&row| row as usize);
        output.emit(batch(&rows.map(|row| (times[row], keys[row])).collect::<Vec<_>>()));
        Ok(())
    }
    fn state_bytes(&self) -> usize {
        0
    }
}

/// source → watch → watch → sink on four virtual cores: what the two stages have seen. Every ten
/// rows are an epoch. With `passes` an operator stands in between.
fn watched(ablation: Ablation, seed: u64, passes: bool) -> [Vec<(u64, i64)>; 2] {
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
        if passes && place == 0 {
            let pass = StageKind::Operator(Arc::new(Pass));
            from = graph.add("pass", "pass", pass, vec![Input { from, port: 0 }]);
        }
    }
    let sink = StageKind::Sink(Box::new(results.clone()));
    graph.add("sink", "sink", sink, vec![Input { from, port: 0 }]);
    let options = RunOptions { bundle_rows_max: 2, ablation, ..RunOptions::default() };
    let costs = AssumedCosts { ask_ns: 100, task_ns: 1_000, polled_row_ns: 10, row_ns: 500 };
    let machine =
        VirtualMachine { wake_ns: 0, ..VirtualMachine::new((1, 4), Costs::Assumed(costs), seed) };
    run_on(&machine, graph, options).expect("the simulation runs");
    assert_eq!(results.sorted(), rows);
    seen.map(|seen| seen.lock().expect("no panic").clone())
}

#[test]
fn results_are_the_same_on_virtual_cores() {
    for (ablation, seed) in ABLATIONS.into_iter().flat_map(|a| (0..5).map(move |seed| (a, seed))) {
        watched(ablation, seed, seed % 2 == 0);
    }
}

#[test]
fn in_order_an_epoch_is_finished_before_the_next_one_begins() {
    for seed in 0..10 {
        for stage in watched(Ablation::InOrderEpochs, seed, false) {
            assert!(stage.is_sorted_by_key(|&(epoch, _)| epoch), "seed {seed}: {stage:?}");
        }
    }
}

#[test]
fn without_boundaries_rows_come_early_and_never_late() {
    let strangers = |ablation| -> usize {
        let of_seed = |seed| {
            let [first, second] = watched(ablation, seed, false);
            let epoch_of = |time: i64| first.iter().find(|row| row.1 == time).map(|row| row.0);
            second.iter().filter(|&&(epoch, time)| Some(epoch) != epoch_of(time)).count()
        };
        (0..10).map(of_seed).sum()
    };
    assert_eq!(strangers(Ablation::Nothing), 0);
    assert!(strangers(Ablation::IgnoreEpochBoundaries) > 0);
}

/// Rows of a partition get into the epoch that the partition is in; without boundaries also into
/// one that it has left, while others are still there.
#[test]
fn without_boundaries_results_of_operators_come_early_and_never_late() {
    let strangers = |ablation| -> usize {
        let of_seed = |seed| {
            let [first, second] = watched(ablation, seed, true);
            // Joined results have several times; of two in a bundle the first watch saw the least.
            let epoch_of = |time: i64| first.iter().find(|row| (row.1..row.1 + 2).contains(&time));
            let pairs = second.iter().filter_map(|&(epoch, time)| Some((epoch, epoch_of(time)?.0)));
            let pairs: Vec<(u64, u64)> = pairs.collect();
            assert!(pairs.iter().all(|(behind, before)| behind <= before), "{ablation:?}, {seed}");
            pairs.iter().filter(|(behind, before)| behind < before).count()
        };
        (0..20).map(of_seed).sum()
    };
    let [with, without] = [Ablation::Nothing, Ablation::IgnoreEpochBoundaries].map(strangers);
    assert!(without > with, "{without} rows in older epochs, {with} with boundaries");
}

/// Two epochs are open at once where inputs differ; the one that is likely to end first is needed
/// first.
#[test]
fn open_epochs_are_taken_by_their_likely_ends() {
    let order = |ablation| -> Vec<i64> {
        let seen: Seen = Arc::default();
        let results = Collect::default();
        let mut graph = Graph::default();
        let mut inputs = Vec::new();
        // Rows of one input are ten times as far apart, and so are the ends of its epochs.
        for (place, step) in [1, 10].into_iter().enumerate() {
            let rows = (0..400).map(|n| (n * step, n)).collect();
            let assigner = Delay::boxed(step, 10 * step);
            let source = StageKind::Source { source: Rows::boxed(rows), assigner };
            let from = graph.add(format!("source-{place}"), "source", source, vec![]);
            inputs.push(Input { from, port: 0 });
        }
        let watch = StageKind::Transform(Arc::new(Watch(Arc::clone(&seen))));
        let from = graph.add("watch", "watch", watch, inputs);
        let sink = StageKind::Sink(Box::new(results.clone()));
        graph.add("sink", "sink", sink, vec![Input { from, port: 0 }]);
        let options = RunOptions { bundle_rows_max: 2, ablation, ..RunOptions::default() };
        let costs = AssumedCosts { ask_ns: 100, task_ns: 1_000, polled_row_ns: 10, row_ns: 500 };
        let machine =
            VirtualMachine { wake_ns: 0, ..VirtualMachine::new((1, 2), Costs::Assumed(costs), 1) };
        run_on(&machine, graph, options).expect("the simulation runs");
        assert_eq!(results.sorted().len(), 800);
        seen.lock().expect("no panic").iter().map(|&(_, time)| time).collect()
    };
    assert_ne!(order(Ablation::Nothing), order(Ablation::EstimatedMoments));
}
