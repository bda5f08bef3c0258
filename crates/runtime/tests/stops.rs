//! A job that is stopped gives up soon, and one that fails at once, wherever it is: between items,
//! within the rows of an item, within a watermark, and while rows come in.

mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_buffer::ScalarBuffer;
use common::*;
use thalweg_core::connector::{Assign, Assigned, ExactStamps};
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::operator::{WatermarkCall, WatermarkInterest};
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::*;
use thalweg_runtime::simulate::Simulation;
use thalweg_runtime::{JobControl, RunOptions};

/// How often a partition asks for more time for one watermark.
const WATERMARK_CALLS: usize = 50;

/// How the job ends in the middle of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Stop,
    Failure,
}

/// Counts calls. One of them ends the job.
#[derive(Default)]
struct Calls {
    count: AtomicUsize,
    /// The call that ends the job.
    last: usize,
    end: Option<End>,
    control: OnceLock<JobControl>,
    clock: Arc<ManualClock>,
}

impl Calls {
    fn new(last: usize, end: End) -> Arc<Self> {
        Arc::new(Calls { last, end: Some(end), ..Calls::default() })
    }
    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
    fn call(&self) {
        if self.count.fetch_add(1, Ordering::SeqCst) + 1 != self.last {
            return;
        }
        let control = self.control.get().expect("the job has begun");
        match self.end {
            Some(End::Failure) => control.fail(Error::user("the test wants it")),
            _ => control.cancel(),
        }
        // All the time that a stopped job has is over.
        self.clock.advance(Duration::from_secs(1));
    }
}

/// Rows and watermarks take a call each, or many.
struct Busy(Arc<Calls>);

struct BusyPartition {
    calls: Arc<Calls>,
    of_watermark: usize,
}

impl Operator for Busy {
    fn name(&self) -> String {
        "busy".into()
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Every
    }
    fn rows_depend_on_watermarks(&self) -> bool {
        true
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let mut parts = vec![Vec::new(); partitions];
        for (row, key) in column(&bundle.batch, 1).into_iter().enumerate() {
            parts[key.unsigned_abs() as usize % partitions].push(row as u32);
        }
        Ok(Route::Scatter(parts))
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(BusyPartition { calls: Arc::clone(&self.0), of_watermark: 0 }))
    }
}

impl Partition for BusyPartition {
    fn rows(&mut self, _: Piece<'_>, _: &mut Output) -> Result<()> {
        self.calls.call();
        Ok(())
    }
    fn watermark(&mut self, _: &WatermarkCall<'_>, _: &mut Output) -> Result<Progress> {
        self.calls.call();
        self.of_watermark = (self.of_watermark + 1) % WATERMARK_CALLS;
        Ok(if self.of_watermark == 0 { Progress::Done } else { Progress::More })
    }
    fn state_bytes(&self) -> usize {
        0
    }
}

/// Runs until a call has ended the job. How many calls came after that one.
fn calls_after_the_end(
    (source, assigner): StampedSource,
    calls: &Arc<Calls>,
    (order, bundle_rows_max, seed): (OrderContract, usize, u64),
) -> usize {
    let mut graph = Graph::default();
    let source = graph.add("source", "source", StageKind::Source { source, assigner }, vec![]);
    let input = |from| vec![Input { from, port: 0 }];
    let busy = StageKind::Operator(Arc::new(Busy(Arc::clone(calls))));
    let busy = graph.add("busy", "busy", busy, input(source));
    graph.add("sink", "sink", StageKind::Sink(Box::new(Collect::default())), input(busy));
    let clock = Arc::clone(&calls.clock);
    let workers = 1 + seed as usize % 4;
    let options = RunOptions { workers, bundle_rows_max, order, clock, ..RunOptions::default() };
    let mut simulation = Simulation::begin(graph, options, 1, seed, None).expect("it begins");
    assert!(calls.control.set(simulation.control()).is_ok());
    for _ in 0..20_000 {
        if simulation.is_over() {
            break;
        }
        simulation.step();
    }
    assert!(calls.count() >= calls.last, "seed {seed}: {} calls", calls.count());
    assert!(simulation.is_over(), "seed {seed}, {order}: the job has given up");
    calls.count() - calls.last
}

#[test]
fn nothing_is_called_once_the_job_gives_up() {
    for order in [OrderContract::Epoch, OrderContract::Arrival] {
        for seed in 0..100 {
            let mut random = SplitMix64::new(seed);
            let end = if random.below(2) == 0 { End::Stop } else { End::Failure };
            let calls = Calls::new(1 + random.below(200) as usize, end);
            // Rows of a bundle come in slices of 256 at first; watermarks are few or many.
            let rows = (0..20_000).map(|n| (n / 100, n % 7)).collect();
            let bundle_rows_max = [1, 40, 20_000][random.below(3) as usize];
            let step = 1 + random.below(50) as i64;
            let input = (Rows::boxed(rows), Delay::boxed(0, step));
            let after = calls_after_the_end(input, &calls, (order, bundle_rows_max, seed));
            assert_eq!(after, 0, "seed {seed}, {order}, {end:?}, {bundle_rows_max} rows");
        }
    }
}

/// Ends the job when it is asked whether a watermark matters.
struct Ending(Delay, Arc<Calls>);

impl Assign for Ending {
    fn assign(&mut self, batch: SourceBatch, before: Watermark, wall_ms: i64) -> Result<Assigned> {
        self.0.assign(batch, before, wall_ms)
    }
    fn crosses(&self, from: Watermark, to: Watermark) -> bool {
        self.1.call();
        self.0.crosses(from, to)
    }
    fn highest(&self, batch: &RecordBatch) -> Option<Watermark> {
        self.0.highest(batch)
    }
    fn row_times(&self, batch: &RecordBatch) -> Result<Option<ScalarBuffer<i64>>> {
        self.0.row_times(batch)
    }
    fn stamp_exactly(&mut self, _: ExactStamps) {}
}

#[test]
fn a_bundle_that_becomes_many_elements_is_left() {
    let of_watermarks = Calls::new(100, End::Stop);
    let delay = Delay { delay: 0, step: 1 };
    let assigner = Box::new(Ending(delay, Arc::clone(&of_watermarks)));
    let source = Rows::boxed((0..20_000).map(|n| (n, n % 7)).collect());
    let input: StampedSource = (source, Some(assigner));
    let mut graph = Graph::default();
    let kind = StageKind::Source { source: input.0, assigner: input.1 };
    let source = graph.add("source", "source", kind, vec![]);
    // Not called: nothing enters.
    let busy = StageKind::Operator(Arc::new(Busy(Calls::new(usize::MAX, End::Stop))));
    let busy = graph.add("busy", "busy", busy, vec![Input { from: source, port: 0 }]);
    let sink = StageKind::Sink(Box::new(Collect::default()));
    graph.add("sink", "sink", sink, vec![Input { from: busy, port: 0 }]);
    let order = OrderContract::Arrival;
    let clock = Arc::clone(&of_watermarks.clock);
    let options = RunOptions { workers: 1, order, clock, ..RunOptions::default() };
    let mut simulation = Simulation::begin(graph, options, 1, 0, None).expect("it begins");
    assert!(of_watermarks.control.set(simulation.control()).is_ok());
    while !simulation.is_over() {
        simulation.step();
    }
    let entered = simulation.control().metrics().stages[0].rows_out;
    assert_eq!(entered, 0, "it was known before the first element that the job gives up");
}
