//! Sources behind gates are not asked before what they wait for has ended, in the simulator, under
//! every policy, in every contract, and with so little memory that rows which wait for theirs fill
//! it.

mod common;

use std::sync::{Arc, Mutex};

use common::{Collect, Delay, Keep, POLICIES, Rows};
use thalweg_core::connector::Waker;
use thalweg_core::graph::{Gate, Graph, Input, StageId, StageKind};
use thalweg_core::shim::ManualClock;
use thalweg_core::*;
use thalweg_runtime::RunOptions;
use thalweg_runtime::simulate::simulate;

type Log = Arc<Mutex<Vec<(&'static str, bool)>>>;

/// Notes who is asked, and whether that was the end.
struct Noted {
    name: &'static str,
    rows: Rows,
    log: Log,
}

impl Source for Noted {
    fn name(&self) -> String {
        self.name.into()
    }
    fn start(&mut self, waker: Waker) -> Result<()> {
        self.rows.start(waker)
    }
    fn poll(&mut self, rows_max: usize) -> Result<SourcePoll> {
        let answer = self.rows.poll(rows_max)?;
        let is_end = matches!(answer, SourcePoll::End);
        self.log.lock().expect("no panic").push((self.name, is_end));
        Ok(answer)
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// Takes rows and gives none.
struct Opener;

struct Taken(usize);

impl Operator for Opener {
    fn name(&self) -> String {
        "opener".into()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Sequenced
    }
    fn is_singleton(&self) -> bool {
        true
    }
    fn route(&self, bundle: &Bundle, _: usize) -> Result<Route> {
        Ok(Route::Scatter(vec![(0..bundle.num_rows() as u32).collect()]))
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(Taken(0)))
    }
}

impl Partition for Taken {
    fn rows(&mut self, piece: Piece<'_>, _: &mut Output) -> Result<()> {
        self.0 += piece.num_rows();
        Ok(())
    }
    fn state_bytes(&self) -> usize {
        self.0
    }
}

struct Built {
    graph: Graph,
    log: Log,
}

impl Built {
    fn source(&mut self, name: &'static str, count: i64) -> Input {
        let rows = Rows { rows: (0..count).map(|n| (n, n)).collect(), bounded: true, given: 0 };
        let source = Box::new(Noted { name, rows, log: Arc::clone(&self.log) });
        let kind = StageKind::Source { source, assigner: Delay::boxed(0, 10) };
        Input { from: self.graph.add(name, name, kind, vec![]), port: 0 }
    }
    fn keep(&mut self, name: &str, from: Input) -> Input {
        let kind = StageKind::Transform(Arc::new(Keep));
        Input { from: self.graph.add(name, name, kind, vec![from]), port: 0 }
    }
    fn opener(&mut self, name: &str, from: Input) -> StageId {
        self.graph.add(name, name, StageKind::Operator(Arc::new(Opener)), vec![from])
    }
}

/// What is read first is itself behind a gate: inner, then middle, then probe. Another source goes
/// to the same sink as probe and waits for nothing.
fn nested(log: &Log) -> (Graph, Collect) {
    let mut built = Built { graph: Graph::default(), log: Arc::clone(log) };
    let other = built.source("other", 200);
    let other = built.keep("keep-other", other);
    let inner = built.source("inner", 50);
    let first = built.opener("first", inner);
    let middle = built.source("middle", 50);
    let kept = built.keep("keep-middle", middle);
    let second = built.opener("second", kept);
    let probe = built.source("probe", 100);
    let probe = built.keep("keep-probe", probe);
    built.graph.add_gate(&[kept], first);
    built.graph.add_gate(&[probe], second);
    let sink = Collect::default();
    built.graph.add("sink", "sink", StageKind::Sink(Box::new(sink.clone())), vec![probe, other]);
    (built.graph, sink)
}

#[test]
fn nobody_is_asked_before_the_gate_is_open() {
    for order in [OrderContract::Epoch, OrderContract::Arrival, OrderContract::EventTime] {
        for (seed, policy) in (0..24).zip(POLICIES.iter().cycle()) {
            for memory_limit_bytes in [400, 4000, 1 << 30] {
                let log = Log::default();
                let (graph, sink) = nested(&log);
                let options = RunOptions {
                    workers: 3,
                    bundle_rows_max: 4,
                    scheduler: *policy,
                    order,
                    memory_limit_bytes,
                    clock: Arc::new(ManualClock::default()),
                    ..RunOptions::default()
                };
                let what = format!("{order}, seed {seed}, {policy:?}, {memory_limit_bytes} bytes");
                simulate(graph, options, 1, seed).unwrap_or_else(|error| panic!("{what}: {error}"));
                assert_eq!(sink.rows().len(), 300, "{what}");
                let log = log.lock().expect("no panic");
                let end =
                    |name| log.iter().position(|&entry| entry == (name, true)).expect("ended");
                let first = |name| log.iter().position(|&(who, _)| who == name).expect("asked");
                assert!(first("middle") > end("inner"), "{what}");
                assert!(first("probe") > end("middle"), "{what}");
            }
        }
    }
}

#[test]
fn a_gate_that_waits_for_itself_is_refused() {
    let log = Log::default();
    let mut built = Built { graph: Graph::default(), log };
    let source = built.source("both", 10);
    let opener = built.opener("first", source);
    let kept = built.keep("keep", source);
    built.graph.gates.push(Gate { source: source.from, opened_by: opener });
    built.graph.add("sink", "sink", StageKind::Sink(Box::new(Collect::default())), vec![kept]);
    let options = RunOptions { workers: 1, ..RunOptions::default() };
    let error = simulate(built.graph, options, 1, 0).expect_err("a circle");
    assert!(error.to_string().contains("wait for one another"), "{error}");
}
