//! Virtual cores: a seed reproduces a run, more cores are faster until something serial stops them,
//! and bundles stay on their NUMA node where they can.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::RecordBatch;
use common::*;
use thalweg_core::connector::Waker;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::shim::Clock;
use thalweg_core::{
    Bundle, OperatorClass, OrderContract, Result, Source, SourceBatch, SourcePoll, Transform,
};
use thalweg_runtime::RunOptions;
use thalweg_runtime::numa_memory::NumaMemory;
use thalweg_runtime::simulate::{
    AssumedCosts, Costs, VirtualClock, VirtualMachine, VirtualReport, Work, run_on,
};

/// A number of nodes of some cores each.
fn machine(nodes: usize, cores: usize, seed: u64) -> VirtualMachine {
    let costs = AssumedCosts { ask_ns: 200, task_ns: 1_000, polled_row_ns: 2, row_ns: 500 };
    VirtualMachine::new((nodes, cores), Costs::Assumed(costs), seed)
}

/// Counts rows of seven keys on a machine and checks the result.
fn count(machine: &VirtualMachine, rows: usize) -> VirtualReport {
    let rows: Vec<_> = (0..rows as i64).map(|n| (n / 10, n % 7)).collect();
    let (expected, _) = reference(&rows, 1, 100);
    let count = Count { size: 100, class: OperatorClass::Commuting, cancel_between: false };
    let (graph, results, _) = counting(vec![(Rows::boxed(rows), Delay::boxed(1, 100))], count);
    let options = RunOptions { bundle_rows_max: 64, ..RunOptions::default() };
    let report = run_on(machine, graph, options).expect("the job runs");
    assert_eq!(results.sorted(), expected, "seed {}", machine.seed);
    report
}

#[test]
fn a_seed_reproduces_a_run() {
    let run = |seed| {
        let report = count(&machine(2, 8, seed), 8_000);
        (report.elapsed_ns, report.asked, report.bundles, report.busy_ns)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn more_cores_are_faster_until_the_source_is_not() {
    let elapsed = |cores| count(&machine(1, cores, 3), 16_000).elapsed_ns as f64;
    let [one, four, sixteen] = [1, 4, 16].map(elapsed);
    assert!((3.0..=4.01).contains(&(one / four)), "{}", one / four);
    assert!((6.0..=16.01).contains(&(one / sixteen)), "{}", one / sixteen);
    let report = count(&machine(1, 128, 3), 16_000);
    // A source brings a row in 2 ns, of which all others make a microsecond and more of work, and a
    // poll costs a microsecond: it is the bound.
    assert!(report.spent_ns(Work::Poll) <= report.elapsed_ns);
    assert!(report.utilization() < 1.0);
}

#[test]
fn a_source_is_asked_by_one_worker_at_a_time() {
    for seed in 0..5 {
        let mut machine = machine(1, 32, seed);
        let costs = AssumedCosts { ask_ns: 100, task_ns: 1_000, polled_row_ns: 1_000, row_ns: 10 };
        machine.clock = VirtualClock::new(Costs::Assumed(costs));
        let report = count(&machine, 20_000);
        let polls_ns = report.spent_ns(Work::Poll);
        assert!(polls_ns <= report.elapsed_ns, "{polls_ns} of {}", report.elapsed_ns);
        // The rest is the end, when the last watermark goes through all partitions.
        assert!(polls_ns * 4 > report.elapsed_ns * 3, "{polls_ns} of {}", report.elapsed_ns);
        assert!(report.asked.1 < 4 * report.asked.0, "nobody spins: {:?}", report.asked);
    }
}

#[test]
fn bundles_stay_on_their_node_where_they_can() {
    for (nodes, seed) in [2, 4].into_iter().flat_map(|nodes| (0..5).map(move |s| (nodes, s))) {
        let report = count(&machine(nodes, 4, seed), 16_000);
        let (near, far) = report.bundles;
        let share = near as f64 / (near + far) as f64;
        let by_chance = 1.0 / nodes as f64;
        assert!(share > by_chance * 1.3, "{nodes} nodes, seed {seed}: {share}");
        assert!(far > 0, "nobody waits for what is near: {nodes} nodes, seed {seed}");
    }
}

/// Epochs of a bundle end faster than their watermarks pass 32 partitions twice. One that is on
/// its way does not keep the others from ending, and what has ended meanwhile goes as one.
#[test]
fn watermarks_that_wait_for_one_another_go_together() {
    for (seed, cancel_between) in (0..10).map(|seed| (seed, seed % 2 == 1)) {
        let rows: Vec<_> = (0..8_000).map(|n| (n / 10, n % 7)).collect();
        let (expected, _) = reference(&rows, 1, 2);
        let count = Count { size: 2, class: OperatorClass::Commuting, cancel_between };
        let (graph, results, _) = counting(vec![(Rows::boxed(rows), Delay::boxed(1, 2))], count);
        let options = RunOptions { bundle_rows_max: 64, ..RunOptions::default() };
        let report = run_on(&machine(1, 16, seed), graph, options).expect("the job runs");
        assert_eq!(results.sorted(), expected, "seed {seed}");
        let watermarks = report.work.iter().filter(|(_, _, work, _)| *work == Work::Watermark);
        let tasks: u64 = watermarks.map(|(_, _, _, total)| total.tasks).sum();
        // Each bundle ends an epoch, and one by one they would be 126 watermarks of 62 tasks.
        assert!(tasks < 126 * 62 / 4, "seed {seed}: {tasks} tasks");
        // What only the end of the input closes is one bundle, which has no latency.
        let report = report.report;
        let sink = report.metrics.stages.iter().find(|stage| stage.id == "sink-0");
        let bundles = sink.expect("there is one for results").bundles_in;
        assert_eq!(report.latency.map(|latency| latency.count + 1), Some(bundles), "seed {seed}");
    }
}

/// Where rows are depends on their time alone, as if another program had made them.
#[derive(Clone, Copy)]
struct MadeUp {
    nodes: usize,
}

impl MadeUp {
    fn place_of(self, batch: &RecordBatch) -> usize {
        column(batch, 0).first().map_or(0, |time| *time as usize / 7 % self.nodes)
    }
}

impl NumaMemory for MadeUp {
    fn node_of(&self, batch: &RecordBatch) -> Option<usize> {
        (batch.num_rows() > 0).then(|| self.place_of(batch))
    }
}

/// Counts bundles by whether their label is the node that their rows are on.
struct Labels {
    memory: MadeUp,
    right: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
}

impl Transform for Labels {
    fn name(&self) -> String {
        "labels".into()
    }
    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        let is_right = usize::from(bundle.stamps.numa_node) == self.memory.place_of(&bundle.batch);
        let counter = if is_right { &self.right } else { &self.wrong };
        counter.fetch_add(1, Ordering::Relaxed);
        Ok(bundle)
    }
}

#[test]
fn a_bundle_is_where_its_memory_is() {
    for (nodes, seed) in [2, 4].into_iter().flat_map(|nodes| (0..5).map(move |s| (nodes, s))) {
        let memory = MadeUp { nodes };
        let [right, wrong] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let labels = Labels { memory, right: right.clone(), wrong: wrong.clone() };
        let rows: Vec<_> = (0..16_000).map(|n| (n / 10, n % 7)).collect();
        let results = Collect::default();
        let mut graph = Graph::default();
        let kind = StageKind::Source { source: Rows::boxed(rows), assigner: Delay::boxed(1, 100) };
        let input = |from| vec![Input { from, port: 0 }];
        let source = graph.add("source", "source", kind, vec![]);
        let kind = StageKind::Transform(Arc::new(labels));
        let labels = graph.add("labels", "labels", kind, input(source));
        let kind = StageKind::Sink(Box::new(results.clone()));
        graph.add("sink", "sink", kind, input(labels));
        let mut machine = machine(nodes, 4, seed);
        machine.numa_memory = Some(Arc::new(memory));
        let options = RunOptions { bundle_rows_max: 64, ..RunOptions::default() };
        let report = run_on(&machine, graph, options).expect("the job runs");
        assert_eq!(results.sorted().len(), 16_000);
        let [right, wrong] = [right, wrong].map(|counter| counter.load(Ordering::Relaxed));
        assert_eq!((right > 200, wrong), (true, 0), "{nodes} nodes, seed {seed}");
        let (near, far) = report.bundles;
        let share = near as f64 / (near + far) as f64;
        assert!(share > 1.3 / nodes as f64, "{nodes} nodes, seed {seed}: {share}");
    }
}

#[test]
fn no_node_starves() {
    for (nodes, seed) in [2, 4].into_iter().flat_map(|nodes| (0..5).map(move |s| (nodes, s))) {
        let report = count(&machine(nodes, 2, seed), 16_000);
        let of_node = |node: usize| -> u64 { report.busy_ns[node * 2..node * 2 + 2].iter().sum() };
        let busy: Vec<u64> = (0..nodes).map(of_node).collect();
        let (least, most) = (busy.iter().min().expect("nodes"), busy.iter().max().expect("nodes"));
        assert!(least * 2 > *most, "{nodes} nodes, seed {seed}: {busy:?}");
    }
}

/// Numbers that come when they are due, by the machine's clock.
struct Due {
    clock: Arc<VirtualClock>,
    pause_ns: u64,
    next: u64,
    waker: Option<Waker>,
    early: Arc<AtomicU64>,
}

const DUE_ROWS: u64 = 500;

impl Source for Due {
    fn name(&self) -> String {
        "due".into()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.waker = Some(waker);
        Ok(())
    }
    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        if self.next == DUE_ROWS {
            return Ok(SourcePoll::End);
        }
        let due_ns = (self.next + 1) * self.pause_ns;
        if due_ns > self.clock.now_ns() {
            self.early.fetch_add(1, Ordering::Relaxed);
            let waker = self.waker.clone().expect("it was started");
            self.clock.wake_at(due_ns, waker);
            return Ok(SourcePoll::Pending);
        }
        self.next += 1;
        Ok(SourcePoll::Batch(SourceBatch::new(batch(&[(self.next as i64, 0)]))))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

#[test]
fn sources_may_wait_for_a_moment() {
    for (pause_ns, is_bound_by_rows) in [(20_000, true), (100, false)] {
        let machine = machine(1, 2, 1);
        let early = Arc::new(AtomicU64::new(0));
        let clock = machine.clock.clone();
        let source = Due { clock, pause_ns, next: 0, waker: None, early: early.clone() };
        let results = Collect::default();
        let mut graph = Graph::default();
        let kind = StageKind::Source { source: Box::new(source), assigner: None };
        let source = graph.add("due", "due", kind, vec![]);
        let sink = StageKind::Sink(Box::new(results.clone()));
        graph.add("sink", "sink", sink, vec![Input { from: source, port: 0 }]);
        let report = run_on(&machine, graph, RunOptions::default()).expect("the job runs");
        assert_eq!(results.sorted().len(), DUE_ROWS as usize);
        let last_ns = pause_ns * DUE_ROWS;
        assert!(report.elapsed_ns >= last_ns, "{} of {last_ns}", report.elapsed_ns);
        let waited = early.load(Ordering::Relaxed);
        if is_bound_by_rows {
            assert!(report.elapsed_ns < last_ns + 50_000, "{} of {last_ns}", report.elapsed_ns);
            assert_eq!(waited, DUE_ROWS, "it is asked when a row is due, and once ahead");
        } else {
            assert!(waited < DUE_ROWS / 4, "{waited}: it is behind and waits for nothing");
        }
    }
}

/// One worker, a source that always has rows, and a partition to which few of them come: nothing
/// but the policy lets a watermark through.
#[test]
fn no_policy_leaves_watermarks_for_the_end_of_the_input() {
    for policy in POLICIES {
        let is_kept = |n: i64| n % 50 == 0;
        let rows = (0..10_000).map(|n| (n, if is_kept(n) { n % 7 } else { -1 })).collect();
        let kept: Vec<_> = (0..10_000).filter(|&n| is_kept(n)).map(|n| (n, n % 7)).collect();
        let (expected, _) = reference(&kept, 1, 100);
        let count = Count { size: 100, class: OperatorClass::Sequenced, cancel_between: false };
        let source = (Rows::boxed(rows), Delay::boxed(1, 100));
        let (graph, results, _) = counting(vec![source], count);
        let options = RunOptions {
            scheduler: policy,
            order: OrderContract::Arrival,
            bundle_rows_max: 1,
            ..RunOptions::default()
        };
        let report = run_on(&machine(1, 1, 1), graph, options).expect("the job runs");
        assert_eq!(results.sorted(), expected, "{policy:?}");
        let passage = report.report.passage.expect("an ordered contract");
        let (last_us, end_us) = (passage.max_us, report.elapsed_ns / 1000);
        assert!(last_us < end_us / 4, "{policy:?}: {last_us} of {end_us} us");
    }
}
