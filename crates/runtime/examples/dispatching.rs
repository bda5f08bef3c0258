//! What it costs to ask the dispatcher, by the number of stages and of epochs in flight: virtual
//! cores, one bundle in each epoch, and tasks so long that every core holds an epoch of its own.
//!
//! ```text
//! cargo run --release -p thalweg-runtime --example dispatching [-- BUNDLES]
//! ```
//! Only the processor time of `next_task` counts. One thread asks, so what it costs when many cores
//! share the cache lines that are read does not show.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_buffer::ScalarBuffer;
use arrow_schema::{DataType, Field, Schema};
use cpu_time::ThreadTime;
use thalweg_core::connector::{Assign, Assigned, DiscardSink, ExactStamps, Waker};
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::shim::Clock;
use thalweg_core::{
    Bundle, Result, Source, SourceBatch, SourcePoll, Transform, Watermark, WatermarkBefore,
};
use thalweg_runtime::RunOptions;
use thalweg_runtime::simulate::{Costs, VirtualMachine, Work, run_on};

/// The processor time of the calling thread.
struct ThreadClock;

impl Clock for ThreadClock {
    fn now_ns(&self) -> u64 {
        ThreadTime::now().as_duration().as_nanos() as u64
    }
    fn wall_ms(&self) -> i64 {
        0
    }
}

/// One row at a time.
struct Rows {
    left: i64,
}

impl Source for Rows {
    fn name(&self) -> String {
        "rows".to_owned()
    }
    fn start(&mut self, _: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        if self.left == 0 {
            return Ok(SourcePoll::End);
        }
        self.left -= 1;
        let column: ArrayRef = Arc::new(Int64Array::from(vec![-self.left]));
        let schema = Schema::new(vec![Field::new("time", DataType::Int64, false)]);
        let batch = RecordBatch::try_new(Arc::new(schema), vec![column])?;
        Ok(SourcePoll::Batch(SourceBatch::new(batch)))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

/// Each batch is an epoch.
struct Each;

impl Assign for Each {
    fn assign(&mut self, batch: SourceBatch, before: Watermark, _: i64) -> Result<Assigned> {
        Ok(Assigned {
            batch: batch.batch,
            watermark_before: WatermarkBefore::All(Watermark::MIN),
            watermark_after: Watermark(before.0.max(0) + 1),
            time_extremes: None,
            quarantined: 0,
        })
    }
    fn crosses(&self, from: Watermark, to: Watermark) -> bool {
        to > from
    }
    fn row_times(&self, _: &RecordBatch) -> Result<Option<ScalarBuffer<i64>>> {
        Ok(None)
    }
    fn stamp_exactly(&mut self, _: ExactStamps) {}
}

struct Keep;

impl Transform for Keep {
    fn name(&self) -> String {
        "keep".to_owned()
    }
    fn apply(&self, bundle: Bundle) -> Result<Bundle> {
        Ok(bundle)
    }
}

/// source → a number of stages → sink.
fn graph(stages: usize, bundles: i64) -> Graph {
    let mut graph = Graph::default();
    let assigner: Option<Box<dyn Assign>> = Some(Box::new(Each));
    let source = StageKind::Source { source: Box::new(Rows { left: bundles }), assigner };
    let mut from = graph.add("source", "source", source, vec![]);
    for stage in 0..stages {
        let keep = StageKind::Transform(Arc::new(Keep));
        from = graph.add(format!("keep-{stage}"), "keep", keep, vec![Input { from, port: 0 }]);
    }
    graph.add(
        "sink",
        "sink",
        StageKind::Sink(Box::new(DiscardSink::new("nowhere"))),
        vec![Input { from, port: 0 }],
    );
    graph
}

fn main() -> Result<()> {
    let bundles = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(20_000);
    println!("stages | cores | ns for an answer");
    for stages in [1, 4, 16] {
        for cores in [1, 4, 16, 56, 128] {
            // A row of a stage takes 100 us, and a poll next to nothing.
            let row_costs = (1..=stages).map(|stage| ((stage, Work::Bundle), 100_000.0));
            let row_costs: HashMap<_, _> = row_costs.chain([((0, Work::Poll), 100.0)]).collect();
            let costs = Costs::Measured(Arc::new(ThreadClock), Arc::new(row_costs));
            let machine =
                VirtualMachine { wake_ns: 0, ..VirtualMachine::new((1, cores), costs, 1) };
            let report = run_on(&machine, graph(stages, bundles), RunOptions::default())?;
            let answers = report.asked.0 - report.asked.1;
            println!("{stages} | {cores} | {}", report.asking_ns / answers);
        }
    }
    Ok(())
}
