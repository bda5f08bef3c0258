//! Tuples that are processed for a while and given on.
//!
//! **Invariant:** the sink sees each tuple once and in order, or the run fails.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use thalweg_core::connector::Waker;
use thalweg_core::graph::{Graph, Input, StageKind};
use thalweg_core::operator::WatermarkInterest;
use thalweg_core::shim::{Clock, ManualClock};
use thalweg_core::{
    Bundle, Error, Operator, OperatorClass, Output, Partition, PartitionContext, Piece, Place,
    Result, Route, RowKind, Sink, Source, SourceBatch, SourcePoll,
};
use thalweg_runtime::simulate::VirtualClock;
use thalweg_workloads::random::Random;

/// How keys are distributed over [0, 1].
#[derive(Clone, Copy, Debug)]
pub enum Keys {
    /// Evenly.
    Uniform,
    /// Normally around the middle, with this deviation where [0, 1] is [-1, 1]; those outside are
    /// drawn again.
    Normal(f64),
}

impl Keys {
    fn draw(self, random: &mut Random) -> f64 {
        let Keys::Normal(sigma) = self else { return random.unit() };
        loop {
            let key = random.normal(0.0, sigma);
            if key.abs() < 1.0 {
                return (key + 1.0) / 2.0;
            }
        }
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Keys::Uniform => write!(formatter, "uniform"),
            Keys::Normal(sigma) => write!(formatter, "sigma {sigma}"),
        }
    }
}

/// What a run does.
#[derive(Clone, Copy)]
pub struct Load {
    /// How many tuples.
    pub tuples: usize,
    /// Their keys.
    pub keys: Keys,
    /// Decides the keys.
    pub seed: u64,
    /// Ranges of keys.
    pub partitions: usize,
    /// What a tuple costs.
    pub cost: Duration,
}

/// What moves when a tuple is processed, and the time on the machine.
type Clocks = (Arc<ManualClock>, Arc<VirtualClock>);

impl Load {
    /// A source, the operator and a sink that looks at the clock.
    pub fn graph(self, (spent, clock): Clocks, results: &Results) -> Graph {
        let mut graph = Graph::default();
        let random = Random::new(self.seed, 0, 0);
        let source = Box::new(Tuples { load: self, sent: 0, random });
        let kind = StageKind::Source { source, assigner: None };
        let source = graph.add("tuples", "tuples", kind, vec![]);
        let input = |from| vec![Input { from, port: 0 }];
        let busy = Busy { load: self, spent, clock: clock.clone() };
        let busy = graph.add("busy", "busy", StageKind::Operator(Arc::new(busy)), input(source));
        let sink = StageKind::Sink(Box::new(Exit { clock, results: results.clone() }));
        graph.add("exit", "exit", sink, input(busy));
        graph
    }
}

/// A batch of pairs: the number of a tuple, and its partition or the moment when it was begun.
fn batch(rows: &[[i64; 2]]) -> RecordBatch {
    let column = |n: usize| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row[n])))
    };
    let fields = ["number", "value"].map(|name| Field::new(name, DataType::Int64, false));
    let schema = Arc::new(Schema::new(fields.to_vec()));
    RecordBatch::try_new(schema, (0..2).map(column).collect()).expect("columns fit")
}

fn values(batch: &RecordBatch, column: usize) -> &[i64] {
    batch.column(column).as_primitive::<Int64Type>().values()
}

struct Tuples {
    load: Load,
    sent: usize,
    random: Random,
}

impl Source for Tuples {
    fn name(&self) -> String {
        "tuples".into()
    }
    fn start(&mut self, _: Waker) -> Result<()> {
        Ok(())
    }
    fn poll(&mut self, _: usize) -> Result<SourcePoll> {
        if self.sent == self.load.tuples {
            return Ok(SourcePoll::End);
        }
        let partitions = self.load.partitions;
        let partition = (self.load.keys.draw(&mut self.random) * partitions as f64) as usize;
        let row = [self.sent as i64, partition.min(partitions - 1) as i64];
        self.sent += 1;
        Ok(SourcePoll::Batch(SourceBatch::new(batch(&[row]))))
    }
    fn is_bounded(&self) -> bool {
        true
    }
}

#[derive(Clone)]
struct Busy {
    load: Load,
    spent: Arc<ManualClock>,
    clock: Arc<VirtualClock>,
}

impl Operator for Busy {
    fn name(&self) -> String {
        "busy".into()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Sequenced
    }
    fn partitions(&self) -> Option<usize> {
        Some(self.load.partitions)
    }
    fn watermark_interest(&self) -> WatermarkInterest {
        WatermarkInterest::Grids(Vec::new())
    }
    fn route(&self, bundle: &Bundle, partitions: usize) -> Result<Route> {
        let mut parts = vec![Vec::new(); partitions];
        for (row, &partition) in values(&bundle.batch, 1).iter().enumerate() {
            parts[partition as usize].push(row as u32);
        }
        Ok(Route::Scatter(parts))
    }
    fn open(&self, _: PartitionContext) -> Result<Box<dyn Partition>> {
        Ok(Box::new(self.clone()))
    }
}

impl Partition for Busy {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        let numbers = values(&piece.bundle.batch, 0);
        let all: Vec<u32> = (0..numbers.len() as u32).collect();
        let causes = piece.rows.unwrap_or(&all).to_vec();
        let process = |&row: &u32| {
            let began_ns = self.clock.now_ns();
            self.spent.advance(self.load.cost);
            [numbers[row as usize], began_ns as i64]
        };
        let rows: Vec<_> = causes.iter().map(process).collect();
        output.emit_at(batch(&rows), Place::Caused(causes));
        Ok(())
    }
    fn state_bytes(&self) -> usize {
        0
    }
}

/// How many tuples have left, and how long they took together.
#[derive(Clone, Default)]
pub struct Results(Arc<Mutex<(usize, u64)>>);

impl Results {
    /// How long a tuple took, in nanoseconds.
    ///
    /// # Errors
    /// If not all of them have left.
    pub fn mean_latency_ns(&self, tuples: usize) -> Result<f64> {
        let (left, latency_ns) = *self.0.lock().expect("no panic");
        if left != tuples {
            return Err(Error::internal(format!("{left} of {tuples} tuples have left")));
        }
        Ok(latency_ns as f64 / tuples as f64)
    }
}

struct Exit {
    clock: Arc<VirtualClock>,
    results: Results,
}

impl Sink for Exit {
    fn name(&self) -> String {
        "exit".into()
    }
    fn write(&mut self, batch: &RecordBatch, _: Option<&[RowKind]>) -> Result<()> {
        let now_ns = self.clock.now_ns();
        let mut results = self.results.0.lock().expect("no panic");
        for (&number, &began_ns) in values(batch, 0).iter().zip(values(batch, 1)) {
            if number != results.0 as i64 {
                let text = format!("tuple {number} left where {} was due", results.0);
                return Err(Error::internal(text));
            }
            results.0 += 1;
            results.1 += now_ns - began_ns as u64;
        }
        Ok(())
    }
    fn finish(&mut self) -> Result<()> {
        Ok(())
    }
    fn abort(&mut self) {}
}
