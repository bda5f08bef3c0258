//! Damaged tables of state: an operator refuses them, and never panics.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow_schema::{Field, Schema};
use thalweg_core::{Operator, OrderContract, Partition, PartitionContext, Restored};

use super::capture_all;

/// Takes what these partitions capture, spoils one column at a time, and lets a new partition take
/// it back: without the column, or with one of another type, it must refuse; with NULL in place of
/// the values it may, but must not panic.
///
/// # Panics
/// If no rows are captured, or if what is spoilt is taken.
pub fn check_damaged(operator: &dyn Operator, partitions: &mut [Box<dyn Partition>]) {
    let intact = capture_all(partitions).expect("its state is captured");
    // Rows only are given back, so a table without any is not looked at.
    let has_rows = |name: &&str| intact.table(name).iter().any(|batch| batch.num_rows() > 0);
    let names: Vec<String> = intact.names().filter(has_rows).map(str::to_owned).collect();
    assert!(!names.is_empty(), "nothing is captured");
    for table in &names {
        let columns = intact.table(table).first().map_or(0, RecordBatch::num_columns);
        // The first column, that of the partition, is read by whoever gives the tables back.
        for place in 1..columns {
            for (what, spoil) in SPOILS {
                let spoilt = with_spoilt(&intact, table, |batch| spoil(batch, place));
                let refused = restore(operator, &spoilt).is_err();
                let name = intact.table(table)[0].schema().field(place).name().clone();
                let may_be_taken = what == "NULL";
                assert!(refused || may_be_taken, "{table}.{name}, {what}, was taken");
            }
        }
    }
    restore(operator, &intact).expect("what is intact is taken");
}

type Spoil = fn(&RecordBatch, usize) -> RecordBatch;

const SPOILS: [(&str, Spoil); 3] =
    [("not there", without), ("of another type", of_another_type), ("NULL", with_null)];

fn restore(operator: &dyn Operator, tables: &Restored) -> thalweg_core::Result<()> {
    let order = OrderContract::Epoch;
    let opening = PartitionContext { order, ..PartitionContext::only() };
    operator.open(opening)?.restore(&tables.of_partition(opening)?)
}

fn with_spoilt(
    intact: &Restored,
    spoilt: &str,
    spoil: impl Fn(&RecordBatch) -> RecordBatch,
) -> Restored {
    let mut tables = Restored::default();
    for name in intact.names() {
        let batches = intact.table(name).iter();
        let batches = batches.map(|b| if name == spoilt { spoil(b) } else { b.clone() });
        tables.add(name, batches.collect());
    }
    tables
}

fn without(batch: &RecordBatch, place: usize) -> RecordBatch {
    let kept: Vec<usize> = (0..batch.num_columns()).filter(|&at| at != place).collect();
    batch.project(&kept).expect("fewer columns")
}

fn of_another_type(batch: &RecordBatch, place: usize) -> RecordBatch {
    let was_boolean = batch.column(place).data_type() == &arrow_schema::DataType::Boolean;
    let other: ArrayRef = match was_boolean {
        true => Arc::new(arrow_array::Int8Array::from(vec![1; batch.num_rows()])),
        false => Arc::new(BooleanArray::from(vec![true; batch.num_rows()])),
    };
    with_column(batch, place, other)
}

fn with_null(batch: &RecordBatch, place: usize) -> RecordBatch {
    let nulls = new_null_array(batch.column(place).data_type(), batch.num_rows());
    with_column(batch, place, nulls)
}

fn with_column(batch: &RecordBatch, place: usize, column: ArrayRef) -> RecordBatch {
    let schema = batch.schema();
    let field = |(at, field): (usize, &Arc<Field>)| match at == place {
        true => Arc::new(Field::new(field.name(), column.data_type().clone(), true)),
        false => Arc::clone(field),
    };
    let fields: Vec<Arc<Field>> = schema.fields().iter().enumerate().map(field).collect();
    let mut columns = batch.columns().to_vec();
    columns[place] = Arc::clone(&column);
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("as long as the others")
}
