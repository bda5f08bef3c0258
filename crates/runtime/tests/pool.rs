//! Jobs that share workers: each gives what a loop over its rows gives, none waits for another to
//! end, and none learns that another failed or was given up.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use thalweg_core::connector::{DiscardSink, Waker};
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::{Extent, OperatorClass, OrderContract, Result, Source, SourceBatch, SourcePoll};
use thalweg_runtime::{AfterCut, Pool, RunOptions, RunningJob, SnapshotMode, start};

fn pool() -> Pool {
    Pool::new(2, true, Duration::ZERO).expect("two threads")
}

const COUNT: Count = Count { size: 20, class: OperatorClass::Commuting, cancel_between: false };

fn counted(rows: &[(i64, i64)]) -> (Graph, Collect, Collect) {
    counted_into(rows, Collect::default())
}

fn counted_into(rows: &[(i64, i64)], sink: Collect) -> (Graph, Collect, Collect) {
    counting_into(vec![(Rows::boxed(rows.to_vec()), Delay::boxed(10, 20))], COUNT, sink)
}

fn on(pool: &Pool) -> RunOptions {
    RunOptions { pool: Some(pool.clone()), bundle_rows_max: 50, ..RunOptions::default() }
}

/// Rows without end, whenever it is asked.
struct Endless(Arc<AtomicU64>);

impl Source for Endless {
    fn name(&self) -> String {
        "endless".into()
    }
    fn start(&mut self, _: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let from = self.0.fetch_add(rows_max as u64, Ordering::Relaxed) as i64;
        let rows: Vec<(i64, i64)> = (from..from + rows_max as i64).map(|n| (n, n % 7)).collect();
        Ok(SourcePoll::Batch(SourceBatch::new(batch(&rows))))
    }
    fn is_bounded(&self) -> bool {
        false
    }
}

/// A job that always has work, and how many rows it has read.
fn busy(pool: &Pool) -> (RunningJob, Arc<AtomicU64>) {
    let read = Arc::new(AtomicU64::new(0));
    let mut graph = Graph::default();
    let source = Box::new(Endless(Arc::clone(&read)));
    let source =
        graph.add("source", "source", StageKind::Source { source, assigner: None }, vec![]);
    let keep = StageKind::Transform(Arc::new(Keep));
    let keep = graph.add("keep", "keep", keep, vec![Input { from: source, port: 0 }]);
    let sink = StageKind::Sink(Box::new(DiscardSink::new("forget")));
    graph.add("sink", "sink", sink, vec![Input { from: keep, port: 0 }]);
    (start(graph, on(pool)).expect("it starts"), read)
}

#[test]
fn each_job_gives_what_the_loop_gives() {
    let pool = pool();
    let orders = [OrderContract::Epoch, OrderContract::Arrival];
    let jobs: Vec<_> = (0..40)
        .map(|seed| {
            let rows = disorder(500, seed);
            let (graph, results, late) = counted(&rows);
            let order = orders[seed as usize % 2];
            let options = RunOptions { order, scheduler: policy_of(seed), ..on(&pool) };
            let job = start(graph, options).expect("it starts");
            (job, results, late, reference(&rows, 10, 20))
        })
        .collect();
    for (place, (job, results, late, (expected, mut expected_late))) in jobs.into_iter().enumerate()
    {
        let report = job.wait().expect("it ends well");
        expected_late.sort_unstable();
        assert_eq!(results.sorted(), expected, "job {place}");
        assert_eq!(late.sorted(), expected_late, "job {place}");
        assert!(!report.cancelled);
    }
    assert_eq!(format!("{pool:?}"), "Pool { workers: 2, jobs: 0 }", "they have left");
}

#[test]
fn jobs_with_much_to_do_leave_room_for_others() {
    let pool = pool();
    let busy: Vec<_> = (0..3).map(|_| busy(&pool)).collect();
    for seed in 0..5 {
        let rows = disorder(500, seed);
        let (graph, results, _) = counted(&rows);
        start(graph, on(&pool)).and_then(RunningJob::wait).expect("it ends though others continue");
        assert_eq!(results.sorted(), reference(&rows, 10, 20).0);
    }
    for (job, read) in busy {
        assert!(read.load(Ordering::Relaxed) > 0, "each gets its turn");
        job.control().cancel();
        assert!(job.wait().expect("it was stopped").cancelled);
    }
}

#[test]
fn a_job_that_fails_leaves_the_others_alone() {
    let pool = pool();
    let rows = disorder(2_000, 1);
    let start_one = || {
        let (graph, results, _) = counted(&rows);
        (start(graph, on(&pool)).expect("it starts"), results)
    };
    let (before, results_before) = start_one();
    let failing = Collect { fail_at: Some(10), ..Collect::default() };
    let (graph, results, _) = counted_into(&rows, failing);
    let failed = start(graph, on(&pool)).and_then(RunningJob::wait).expect_err("its disk is full");
    assert!(failed.to_string().contains("the disk is full"), "{failed}");
    assert_eq!(*results.ended.lock().expect("no panic"), "aborted");
    let (after, results_after) = start_one();
    for (job, results) in [(before, results_before), (after, results_after)] {
        job.wait().expect("it ends well");
        assert_eq!(results.sorted(), reference(&rows, 10, 20).0);
    }
}

#[test]
fn a_job_that_nobody_waits_for_is_given_up() {
    let pool = pool();
    let (job, read) = busy(&pool);
    while read.load(Ordering::Relaxed) == 0 {
        std::thread::yield_now();
    }
    drop(job);
    let read_then = read.load(Ordering::Relaxed);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(read.load(Ordering::Relaxed), read_then, "no worker is at it");
    assert_eq!(format!("{pool:?}"), "Pool { workers: 2, jobs: 0 }");
}

#[test]
fn cuts_are_taken_while_other_jobs_are_busy() {
    let pool = pool();
    let (other, _) = busy(&pool);
    let options = RunOptions { snapshots: Some(SnapshotMode::AtLeastOnce), ..on(&pool) };
    let source = Box::new(Rows { rows: disorder(500, 3).into(), bounded: false, given: 0 });
    let (graph, _, _) = counting(vec![(source, Delay::boxed(10, 20))], COUNT);
    let job = start(graph, options).expect("it starts");
    for _ in 0..20 {
        let limit = Duration::from_secs(60);
        let taken = job.control().take_cut(Extent::Full, AfterCut::Continue, limit);
        taken.expect("its own workers are soon done");
    }
    for job in [job, other] {
        job.control().cancel();
        job.wait().expect("it was stopped");
    }
}
