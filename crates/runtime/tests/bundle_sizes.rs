//! How large bundles are. Rows of a source that brings a few at a time: where nobody sees them
//! before a watermark they wait for each other, and what comes of them is the same. And rows of a
//! source that always has more.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::*;
use thalweg_core::connector::Waker;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{Bundle, OperatorClass, Result, Source, SourceBatch, SourcePoll, Transform};
use thalweg_runtime::simulate::simulate;
use thalweg_runtime::{RunOptions, SchedulerPolicy, start};

/// Gives one to seven rows, then none, and calls for itself at once; quiet until it is released,
/// and behind the last row if it does not end.
struct Trickle {
    rows: Rows,
    random: SplitMix64,
    has_given: bool,
    may_begin: Arc<AtomicBool>,
    waker: Option<Waker>,
}

impl Trickle {
    fn boxed(rows: Vec<(i64, i64)>, bounded: bool) -> Box<Trickle> {
        Box::new(Trickle {
            rows: Rows { rows: rows.into(), bounded, given: 0 },
            random: SplitMix64::new(7),
            has_given: false,
            may_begin: Arc::new(AtomicBool::new(true)),
            waker: None,
        })
    }
}

impl Source for Trickle {
    fn name(&self) -> String {
        "trickle".into()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.waker = Some(waker);
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let call = self.waker.as_ref().expect("it was started");
        if !self.may_begin.load(Ordering::SeqCst) {
            call();
            return Ok(SourcePoll::Pending);
        }
        if std::mem::take(&mut self.has_given) {
            if !self.rows.rows.is_empty() || self.rows.bounded {
                call();
            }
            return Ok(SourcePoll::Pending);
        }
        self.has_given = !self.rows.rows.is_empty();
        let rows = 1 + self.random.below(7) as usize;
        match self.rows.poll(rows.min(rows_max))? {
            SourcePoll::Batch(SourceBatch { batch, .. }) => {
                Ok(SourcePoll::Batch(SourceBatch::new(batch)))
            }
            other => Ok(other),
        }
    }
    fn is_bounded(&self) -> bool {
        self.rows.bounded
    }
}

fn count(class: OperatorClass) -> Count {
    Count { size: 20, class, cancel_between: false }
}

fn options(workers: usize) -> RunOptions {
    RunOptions { workers, scheduler: SchedulerPolicy::Nem, ..RunOptions::default() }
}

#[test]
fn results_and_late_rows_are_those_of_the_loop() {
    for seed in 0..100 {
        let rows = disorder(400, seed);
        let (expected, mut expected_late) = reference(&rows, 10, 20);
        expected_late.sort_unstable();
        for class in [OperatorClass::Commuting, OperatorClass::Sequenced] {
            let input: StampedSource = (Trickle::boxed(rows.clone(), true), Delay::boxed(10, 20));
            let (graph, results, late) = counting(vec![input], count(class));
            let mut options = options(3);
            options.clock = Arc::new(ManualClock::default());
            simulate(graph, options, 2, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            assert_eq!(results.sorted(), expected, "seed {seed}, {class:?}");
            assert_eq!(late.sorted(), expected_late, "seed {seed}, {class:?}");
        }
    }
}

#[test]
fn bundles_are_as_many_as_epochs() {
    // Times that only grow: 2,000 rows, a window of 20 each 60 rows.
    let rows: Vec<_> = (0..2_000).map(|n| (n / 3, n % 5)).collect();
    let bundles = |linger| {
        let input: StampedSource = (Trickle::boxed(rows.clone(), true), Delay::boxed(0, 20));
        let (graph, results, _) = counting(vec![input], count(OperatorClass::Commuting));
        // The clock stands still: rows wait for nothing but watermarks.
        let clock = Arc::new(ManualClock::default());
        let options = RunOptions { bundle_linger: linger, clock, ..options(2) };
        let report = simulate(graph, options, 1, 3).expect("the simulation runs");
        assert_eq!(results.sorted(), reference(&rows, 0, 20).0);
        report.metrics.stages[0].bundles_in
    };
    let (waiting, at_once) = (bundles(Duration::from_millis(1)), bundles(Duration::ZERO));
    assert!(waiting <= 40, "{waiting} bundles for 34 windows");
    assert!(at_once >= 400, "{at_once} bundles where rows may not wait");
}

#[test]
fn rows_of_an_input_that_has_gone_quiet_do_not_stay_behind() {
    let input: StampedSource = (Trickle::boxed(vec![(5, 1), (6, 1)], false), Delay::boxed(0, 20));
    let (graph, _, _) = counting(vec![input], count(OperatorClass::Commuting));
    let job = start(graph, options(2)).expect("starts");
    let control = job.control();
    let started = Instant::now();
    let taken = || control.metrics().stages.iter().map(|stage| stage.accepted).sum::<u64>();
    while taken() < 2 && started.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(taken(), 2);
    control.cancel();
    assert!(job.wait().expect("stopping is no failure").cancelled);
}

#[test]
fn rows_that_wait_when_their_input_becomes_idle_are_not_late() {
    let quiet = Trickle::boxed(vec![(5, 1), (6, 1)], false);
    let later = Trickle::boxed((0..300).map(|n| (n, 2)).collect(), true);
    let may_begin = Arc::clone(&later.may_begin);
    may_begin.store(false, Ordering::SeqCst);
    let inputs: [StampedSource; 2] = [(quiet, Delay::boxed(0, 20)), (later, Delay::boxed(0, 20))];
    let (graph, results, late) = counting(inputs.into(), count(OperatorClass::Commuting));
    let options = RunOptions { idle_timeout: Some(Duration::from_millis(1)), ..options(2) };
    let job = start(graph, options).expect("starts");
    let control = job.control();
    let started = Instant::now();
    let has_time = || started.elapsed() < Duration::from_secs(20);
    while !control.metrics().stages[0].idle && has_time() {
        std::thread::sleep(Duration::from_millis(1));
    }
    may_begin.store(true, Ordering::SeqCst);
    while results.rows().is_empty() && has_time() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(results.rows().contains(&(20, 1_000_002)), "{:?}", results.rows());
    assert_eq!(late.rows(), []);
    control.cancel();
    assert!(job.wait().expect("stopping is no failure").cancelled);
}

/// Takes five microseconds for each row.
struct Slow;

impl Transform for Slow {
    fn name(&self) -> String {
        "slow".into()
    }
    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        std::thread::sleep(Duration::from_micros(5 * bundle.num_rows() as u64));
        Ok(bundle)
    }
}

#[test]
fn a_slow_stage_gets_no_large_bundles() {
    let rows: Vec<_> = (0..40_000).map(|n| (n, n % 5)).collect();
    let collect = Collect::default();
    let mut graph = Graph::default();
    let kind = StageKind::Source { source: Rows::boxed(rows.clone()), assigner: None };
    let source = graph.add("source", "source", kind, vec![]);
    let kind = StageKind::Transform(Arc::new(Slow));
    let slow = graph.add("slow", "slow", kind, vec![Input { from: source, port: 0 }]);
    let sink = StageKind::Sink(Box::new(collect.clone()));
    graph.add("sink", "sink", sink, vec![Input { from: slow, port: 0 }]);
    let report = start(graph, options(1)).and_then(|job| job.wait()).expect("the job runs");
    assert_eq!(collect.rows(), rows);
    // A thousand rows take five milliseconds, and bundles of fewer are not asked for. Else there
    // would be six.
    let bundles = report.metrics.stages[1].bundles_in;
    assert!(bundles >= 30, "{bundles} bundles");
}

/// Keeps the first bundle until all rows have come, for a while at most.
#[derive(Default)]
struct HoldsFirst {
    rows: AtomicUsize,
    has_begun: AtomicBool,
    has_waited_in_vain: Arc<AtomicBool>,
}

impl HoldsFirst {
    const ROWS: usize = 20;
}

impl Transform for HoldsFirst {
    fn name(&self) -> String {
        "holds first".into()
    }
    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        self.rows.fetch_add(bundle.num_rows(), Ordering::SeqCst);
        if !self.has_begun.swap(true, Ordering::SeqCst) {
            let started = Instant::now();
            while self.rows.load(Ordering::SeqCst) < Self::ROWS {
                if started.elapsed() > Duration::from_secs(20) {
                    self.has_waited_in_vain.store(true, Ordering::SeqCst);
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(bundle)
    }
}

#[test]
fn rows_that_wait_while_a_worker_is_busy_leave_without_a_call() {
    let rows: Vec<_> = (0..HoldsFirst::ROWS as i64).map(|n| (n, n)).collect();
    let collect = Collect::default();
    let holds = HoldsFirst::default();
    let has_waited_in_vain = Arc::clone(&holds.has_waited_in_vain);
    let mut graph = Graph::default();
    // It is quiet behind its last row, and never ends.
    let source = Trickle::boxed(rows.clone(), false);
    let kind = StageKind::Source { source, assigner: None };
    let source = graph.add("source", "source", kind, vec![]);
    let kind = StageKind::Transform(Arc::new(holds));
    let holds = graph.add("holds", "holds", kind, vec![Input { from: source, port: 0 }]);
    let sink = StageKind::Sink(Box::new(collect.clone()));
    graph.add("sink", "sink", sink, vec![Input { from: holds, port: 0 }]);
    let job = start(graph, options(2)).expect("starts");
    let started = Instant::now();
    while collect.rows().len() < rows.len() && started.elapsed() < Duration::from_secs(30) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(collect.rows(), rows);
    assert!(!has_waited_in_vain.load(Ordering::SeqCst), "the first bundle blocked the others");
    job.control().cancel();
    assert!(job.wait().expect("stopping is no failure").cancelled);
}

/// Where inputs meet, a bundle of one that has much spans few windows, or what is ahead of the
/// other would wait in many. Alone it spans any number.
#[test]
fn bundles_span_few_windows_where_there_are_other_inputs() {
    // A window of 20 each 400 rows; bundles grow from 1,024 rows on.
    let rows: Vec<_> = (0..60_000).map(|n| (n / 20, n % 5)).collect();
    let bundles = |inputs: usize| {
        let input = || -> StampedSource { (Rows::boxed(rows.clone()), Delay::boxed(0, 20)) };
        let inputs = (0..inputs).map(|_| input()).collect();
        let (graph, results, _) = counting(inputs, count(OperatorClass::Commuting));
        let clock = Arc::new(ManualClock::default());
        let report = simulate(graph, RunOptions { clock, ..options(2) }, 1, 3);
        assert!(!results.sorted().is_empty());
        report.expect("the simulation runs").metrics.stages[0].bundles_in
    };
    assert!(bundles(1) <= 8, "1,024, 2,048, 4,096 rows, and so on: {}", bundles(1));
    assert!((25..=60).contains(&bundles(2)), "of 1,024 and 2,048 rows: {}", bundles(2));
}
