//! Drives operators as an ordered contract does: bundles in sequence, partitions in any order, and
//! what partitions give put together by its place.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave_record_batch;
use thalweg_core::operator::{Emitted, WatermarkCall};
use thalweg_core::shim::{ManualClock, SplitMix64};
use thalweg_core::{
    Bundle, Exchange, Extent, Operator, OperatorClass, OrderContract, Output, Partition,
    PartitionContext, Place, Progress, Stamps, Transform, Watermark, WatermarkBefore,
};
use thalweg_operators::reference::Value;
use thalweg_operators::test_kit::{reopened, rows_of};

/// What goes into an operator and what comes out: rows with the watermark before each, and
/// watermarks.
#[derive(Clone, Debug)]
pub enum Input {
    Rows(RecordBatch, Vec<i64>),
    Watermark(i64),
}

/// What must not change the result.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pub partitions: usize,
    pub bundle_rows: usize,
    pub seed: u64,
    /// Now and then all partitions are captured, and others, more or fewer, continue with what was
    /// captured.
    pub restores: bool,
}

/// How many partitions continue at most after a restore.
const PARTITIONS_MAX: u64 = 5;

#[derive(Default)]
pub struct Driven {
    pub outputs: Vec<Input>,
    pub late_rows: Vec<RecordBatch>,
}

impl Driven {
    pub fn rows(&self) -> Vec<Vec<Value>> {
        let batches = self.outputs.iter().filter_map(|output| match output {
            Input::Rows(batch, _) => Some(batch.clone()),
            Input::Watermark(_) => None,
        });
        rows_of(&batches.collect::<Vec<_>>())
    }
}

/// The same rows in the same order, doubles bit for bit; all NaN are one.
pub fn assert_same(actual: &[Vec<Value>], expected: &[Vec<Value>], what: &str) {
    let same = |(a, b): (&Value, &Value)| match (a, b) {
        (Value::Double(a), Value::Double(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        (a, b) => a == b,
    };
    for (n, (a, b)) in actual.iter().zip(expected).enumerate() {
        let equal = a.len() == b.len() && a.iter().zip(b).all(same);
        assert!(equal, "{what}: row {n} is\n{a:?}, not\n{b:?}");
    }
    assert_eq!(actual.len(), expected.len(), "{what}: number of rows");
}

/// Cuts rows into bundles.
fn bundles(inputs: &[Input], bundle_rows: usize) -> Vec<Input> {
    let mut cut = Vec::new();
    for input in inputs {
        let Input::Rows(batch, before) = input else {
            cut.push(input.clone());
            continue;
        };
        let mut from = 0;
        while from < batch.num_rows() {
            let rows = bundle_rows.min(batch.num_rows() - from);
            let before = before[from..from + rows].to_vec();
            cut.push(Input::Rows(batch.slice(from, rows), before));
            from += rows;
        }
    }
    cut
}

fn bundle(batch: &RecordBatch, before: &[i64], epoch: u64) -> Bundle {
    let watermark_before = match before {
        [first, others @ ..] if others.iter().all(|other| other == first) => {
            WatermarkBefore::All(Watermark(*first))
        }
        before => WatermarkBefore::Rows(before.to_vec().into()),
    };
    Bundle::new(batch.clone(), Stamps { epoch, watermark_before, ..Stamps::first() })
}

/// A stateless stage: each bundle becomes one bundle.
pub fn drive_chain(chain: &dyn Transform, inputs: &[Input], schedule: &Schedule) -> Vec<Input> {
    let apply = |input: &Input| match input {
        Input::Watermark(watermark) => Input::Watermark(*watermark),
        Input::Rows(batch, before) => {
            let applied = chain.apply(bundle(batch, before, 0)).expect("rows without errors");
            let before = |row| applied.stamps.watermark_before.at(row).0;
            let before = (0..applied.num_rows()).map(before).collect();
            Input::Rows(applied.batch, before)
        }
    };
    bundles(inputs, schedule.bundle_rows).iter().map(apply).collect()
}

struct Driver<'a> {
    operator: &'a dyn Operator,
    partitions: Vec<Box<dyn Partition>>,
    random: SplitMix64,
    epoch: u64,
    passed: i64,
    driven: Driven,
}

/// Runs an operator over its inputs.
pub fn drive(operator: &dyn Operator, inputs: &[Input], schedule: &Schedule) -> Driven {
    let count = if operator.is_singleton() { 1 } else { schedule.partitions };
    let open = |opening| operator.open(opening).expect("a partition");
    let mut driver = Driver {
        operator,
        partitions: openings(count).map(open).collect(),
        random: SplitMix64::new(schedule.seed),
        epoch: 0,
        passed: i64::MIN,
        driven: Driven::default(),
    };
    let inputs = bundles(inputs, schedule.bundle_rows);
    let mut next = 0;
    let restores = schedule.restores && captures_state(operator);
    while let Some(input) = inputs.get(next) {
        if restores && driver.random.below(4) == 0 {
            driver.restore();
        }
        next += 1;
        match input {
            Input::Rows(batch, before) => driver.rows(batch, before),
            Input::Watermark(watermark) => next = driver.watermark(*watermark, &inputs, next),
        }
    }
    driver.driven
}

fn openings(partitions: usize) -> impl Iterator<Item = PartitionContext> {
    let order = OrderContract::Arrival;
    (0..partitions).map(move |partition| PartitionContext { partition, partitions, order })
}

fn captures_state(operator: &dyn Operator) -> bool {
    operator.open(PartitionContext::only()).is_ok_and(|mut open| open.capture(Extent::Full).is_ok())
}

impl Driver<'_> {
    /// Other partitions continue where these are.
    fn restore(&mut self) {
        let most = if self.operator.is_singleton() { 1 } else { PARTITIONS_MAX };
        let count = 1 + self.random.below(most) as usize;
        let order = OrderContract::Arrival;
        let reopened = reopened(self.operator, &mut self.partitions, count, order);
        self.partitions = reopened.expect("what was captured is restored");
    }

    fn rows(&mut self, batch: &RecordBatch, before: &[i64]) {
        self.epoch += 1;
        let bundle = bundle(batch, before, self.epoch);
        let count = self.partitions.len();
        let route = self.operator.route(&bundle, count).expect("a route");
        let mut shares: Vec<_> = route.shares(self.random.below(count as u64) as usize).collect();
        shuffle(&mut shares, &mut self.random);
        let mut emitted = Vec::new();
        for share in shares {
            let (partition, mut output) = (share.partition, self.output());
            let piece = share.piece(&bundle, 1);
            self.partitions[partition].rows(piece, &mut output).expect("rows without errors");
            emitted.extend(output.emitted.into_iter().map(|emitted| (partition, emitted)));
        }
        self.put_together(emitted);
    }

    /// Returns the number of the next input: rows behind the watermark may be taken between its
    /// phases.
    fn watermark(&mut self, watermark: i64, inputs: &[Input], mut next: usize) -> usize {
        let exchange = Exchange::new(self.partitions.len());
        let phases = self.operator.watermark_phases();
        for phase in 0..phases {
            let mut order: Vec<usize> = (0..self.partitions.len()).collect();
            shuffle(&mut order, &mut self.random);
            let mut emitted = Vec::new();
            for partition in order {
                let call =
                    WatermarkCall { watermark: Watermark(watermark), phase, exchange: &exchange };
                let mut progress = Progress::More;
                while progress == Progress::More {
                    let mut output = self.output();
                    let partition_state = &mut self.partitions[partition];
                    progress = partition_state.watermark(&call, &mut output).expect("a result");
                    emitted.extend(output.emitted.into_iter().map(|emitted| (partition, emitted)));
                }
            }
            self.put_together(emitted);
            let early = self.operator.class() == OperatorClass::Commuting && phase + 1 < phases;
            while let (true, Some(Input::Rows(batch, before)), 1..) =
                (early, inputs.get(next), self.random.below(3))
            {
                self.rows(batch, before);
                next += 1;
            }
        }
        if let Some(Watermark(passed)) = self.operator.output_watermark(Watermark(watermark)) {
            self.passed = passed;
            self.driven.outputs.push(Input::Watermark(passed));
        }
        next
    }

    /// Time is up at once in half of the calls.
    fn output(&mut self) -> Output {
        let deadline_ns = if self.random.below(2) == 0 { 0 } else { u64::MAX };
        Output::new(Arc::new(ManualClock::default()), deadline_ns)
    }

    /// By place, then by partition, then as emitted.
    fn put_together(&mut self, mut emitted: Vec<(usize, Emitted)>) {
        emitted.sort_by_key(|&(partition, _)| partition);
        for port in 0..self.operator.ports() {
            let of_port: Vec<&Emitted> =
                emitted.iter().map(|(_, emitted)| emitted).filter(|e| e.port == port).collect();
            let Some(first) = of_port.first() else { continue };
            let mut rows: Vec<(i64, usize, usize)> = Vec::new();
            for (number, emitted) in of_port.iter().enumerate() {
                let places = (0..emitted.batch.num_rows()).map(|row| place_of(&emitted.place, row));
                rows.extend(places.enumerate().map(|(row, place)| (place, number, row)));
            }
            rows.sort_by_key(|&(place, _, _)| place);
            let batches: Vec<&RecordBatch> = of_port.iter().map(|emitted| &emitted.batch).collect();
            let indices: Vec<(usize, usize)> =
                rows.iter().map(|&(_, number, row)| (number, row)).collect();
            let batch = if first.batch.num_columns() == 0 {
                concat_batches(&first.batch.schema(), batches).expect("one schema")
            } else {
                interleave_record_batch(&batches, &indices).expect("one schema")
            };
            if port == 0 {
                let before = vec![self.passed; batch.num_rows()];
                self.driven.outputs.push(Input::Rows(batch, before));
            } else {
                self.driven.late_rows.push(batch);
            }
        }
    }
}

fn place_of(place: &Place, row: usize) -> i64 {
    match place {
        Place::AsEmitted => i64::MAX,
        Place::Caused(causes) => causes[row].into(),
        Place::WindowEnd(end) => *end,
        Place::WindowEnds(ends) => ends[row],
        Place::OfCalls(of) => of.places[row],
    }
}

fn shuffle<T>(items: &mut [T], random: &mut SplitMix64) {
    for n in (1..items.len()).rev() {
        items.swap(n, random.below(n as u64 + 1) as usize);
    }
}
