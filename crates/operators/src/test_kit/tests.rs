//! The kit must find what it is there to find: each test breaks one promise of the contract.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{Field, Schema};
use thalweg_core::operator::WatermarkCall;
use thalweg_core::{
    Bundle, Operator, OperatorClass, Output, Partition, PartitionContext, Piece, Progress, Result,
    Route, Transform, Watermark, WatermarkBefore,
};

use super::{Event, check_operator, check_transform};

fn numbers(values: Vec<i64>) -> RecordBatch {
    let array: ArrayRef = Arc::new(Int64Array::from(values));
    let field = Field::new("n", array.data_type().clone(), true);
    RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![array]).unwrap()
}

fn script() -> Vec<Event> {
    let rows = |values| Event::Rows {
        lane: 0,
        batch: numbers(values),
        watermark_before: WatermarkBefore::All(Watermark::MIN),
    };
    vec![rows((0..20).collect()), Event::Watermark(Watermark(5)), rows((20..50).collect())]
}

/// What is wrong with the operator.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    CountsBundles,
    ForgetsLastRowOfEmptyBundle,
    ForgetsWhenTimeIsUp,
    MixesEpochsUp,
}

/// Counts rows and emits the count at each watermark.
struct Counter(Fault);

impl Operator for Counter {
    fn name(&self) -> String {
        "counter".to_owned()
    }
    fn class(&self) -> OperatorClass {
        OperatorClass::Commuting
    }
    fn route(&self, _bundle: &Bundle, _partitions: usize) -> Result<Route> {
        Ok(Route::Any)
    }
    fn watermark_phases(&self) -> usize {
        2
    }
    fn open(
        &self,
        PartitionContext { partition, .. }: PartitionContext,
    ) -> Result<Box<dyn Partition>> {
        Ok(Box::new(CounterPartition { fault: self.0, partition, count: 0 }))
    }
}

struct CounterPartition {
    fault: Fault,
    partition: usize,
    count: u64,
}

impl Partition for CounterPartition {
    fn rows(&mut self, piece: Piece<'_>, output: &mut Output) -> Result<()> {
        output.accepted += piece.num_rows() as u64;
        match self.fault {
            Fault::CountsBundles => self.count += 1,
            Fault::ForgetsLastRowOfEmptyBundle if piece.num_rows() == 0 => {
                self.count = self.count.saturating_sub(1);
            }
            _ => self.count += piece.num_rows() as u64,
        }
        Ok(())
    }
    fn watermark(&mut self, call: &WatermarkCall<'_>, output: &mut Output) -> Result<Progress> {
        let emits = call.watermark == Watermark::END || self.fault == Fault::MixesEpochsUp;
        if !emits {
            return Ok(Progress::Done);
        }
        if call.phase == 0 {
            if self.fault == Fault::ForgetsWhenTimeIsUp && output.time_is_up() {
                self.count = 0;
            }
            call.exchange.put(0, Box::new(std::mem::take(&mut self.count)));
        } else if self.partition == 0 {
            let parcels = call.exchange.take(0);
            let counts = parcels.into_iter().map(|parcel| *parcel.downcast::<u64>().unwrap());
            output.emit(numbers(vec![counts.sum::<u64>() as i64]));
        }
        Ok(Progress::Done)
    }
    fn state_bytes(&self) -> usize {
        0
    }
}

#[test]
fn a_right_operator_passes() {
    let driven = check_operator(&Counter(Fault::Nothing), &script());
    assert_eq!(driven.accepted, 50);
    assert_eq!(super::rows_of(&driven.emitted), [[crate::reference::Value::Integer(50)]]);
}

#[test]
#[should_panic(expected = "should be")]
fn counting_bundles_is_found() {
    check_operator(&Counter(Fault::CountsBundles), &script());
}

#[test]
#[should_panic(expected = "should be")]
fn a_fault_at_empty_bundles_is_found() {
    check_operator(&Counter(Fault::ForgetsLastRowOfEmptyBundle), &script());
}

#[test]
#[should_panic(expected = "should be")]
fn forgetting_state_when_time_is_up_is_found() {
    check_operator(&Counter(Fault::ForgetsWhenTimeIsUp), &script());
}

/// Rows of later epochs come early, so a commuting operator must not emit a plain count.
#[test]
#[should_panic(expected = "should be")]
fn mixing_epochs_up_is_found() {
    check_operator(&Counter(Fault::MixesEpochsUp), &script());
}

/// Drops every third row that it ever saw.
struct Remembers(AtomicU64);

impl Transform for Remembers {
    fn name(&self) -> String {
        "remembers".to_owned()
    }
    fn apply(&self, mut bundle: Bundle) -> Result<Bundle> {
        let seen = self.0.fetch_add(1, Ordering::Relaxed);
        if seen % 3 == 2 {
            bundle = Bundle::new(bundle.batch.slice(0, 0), bundle.stamps);
        }
        Ok(bundle)
    }
}

#[test]
#[should_panic(expected = "should be")]
fn a_transform_with_a_memory_is_found() {
    let all = WatermarkBefore::All(Watermark::MIN);
    check_transform(&Remembers(AtomicU64::new(0)), &numbers((0..9).collect()), &all);
}
